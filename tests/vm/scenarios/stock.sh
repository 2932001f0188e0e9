#!/bin/bash
# Calls take blocks from the stock of their CPU and rarely touch data that all CPUs share. Figures, limits and requests do not show the stocks.
# machine: programs
# pool: 2G
# takes: 20
# paths: kernel/mem/
. "$(dirname "$0")/../guest/lib.sh"

probes=/sys/kernel/tracing/kprobe_events
trap 'echo 0 >/sys/kernel/tracing/events/kprobes/enable; echo >$probes' EXIT

# A process that has mapped and unmapped 2 MB often enough, and waits.
cat >/tmp/cycle.py <<'PYTHON'
import mmap, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
for _ in range(int(sys.argv[2])):
    with mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
        m[0] = 1
print("ready", flush=True)
sys.stdin.read()
PYTHON
start() {
	local who=$1
	shift
	rm -f /tmp/ready /tmp/go
	mkfifo /tmp/go
	$who hpmmap run --strict -- python3 /tmp/cycle.py "$@" </tmp/go >/tmp/ready &
	pid=$!
	exec 9>/tmp/go
	within 60 grep -q ready /tmp/ready || fail "cycle.py $*: not ready"
}
finish() {
	exec 9>&-
	wait "$pid" || fail "a process failed"
}

echo "== what is shared"
rounds=2000
for function in account_charge account_uncharge; do
	echo "p:$function hpmmap:hpmmap_$function" >>$probes
done
echo 1 >/sys/kernel/tracing/events/kprobes/enable
start command 0 $rounds
while read -r function hits _; do
	echo "$function: $hits times for $rounds rounds"
	[ "$hits" -gt 0 ] && [ $((hits * 5)) -le $rounds ] || fail "$function is called $hits times for $rounds rounds of two calls"
done </sys/kernel/tracing/kprobe_profile

echo "== figures"
held=$(awk '$1 == "held_bytes" { sum += $2 } END { print sum }' /proc/hpmmap)
[ $(($(pool_bytes free_bytes) + held)) = "$(pool_bytes total_bytes)" ] ||
	fail "of $(pool_bytes total_bytes) bytes $held are held and $(pool_bytes free_bytes) free"
finish
expect_pool_free

whole='import mmap, sys; mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)'
echo "== a limit that another CPU has something of"
hpmmap pool limit --user $USER_ID --size 1536M
start as_member 0 100
held=$(awk '$1 == "held_bytes" { sum += $2 } END { print sum }' /proc/hpmmap)
start_second() { as_member taskset -c 1 hpmmap run --strict -- python3 -c "$whole" "$1"; }
# What the second process itself needs is less than 64 MB.
start_second $((1536 - held / MIB - 64)) || fail "a limit of which nothing is used refuses a request"
! start_second $((1536 - held / MIB + 2)) 2>/dev/null || fail "a limit is exceeded"
finish

echo "== memory that another CPU has at hand"
hpmmap pool limit --user $USER_ID --size 100%
total=$(pool_bytes total_bytes)
start command 0 100
# Nothing here asks for a figure of the pool, which would empty what CPUs have at hand.
taskset -c 1 hpmmap run --strict -- python3 -c '
import mmap, sys
held = sum(int(line.split()[1]) for line in open("/proc/hpmmap") if line.startswith("held_bytes"))
mmap.mmap(-1, int(sys.argv[1]) - held - (8 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)' "$total" ||
	fail "a request failed though all of it was free"
finish

echo "== memory that leaves the pool"
start command 0 100
hpmmap pool remove --size 1G || fail "memory at hand keeps the pool from shrinking"
finish
expect_pool_free
