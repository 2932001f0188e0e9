#!/bin/bash
# Memory that is promised to users, cgroups and launches is theirs to the last block, whoever tries to take
# it; a promise that cannot be kept is refused, and one whose cgroup or launch has ended is gone.
# takes: 200
# machine: promises
# pool: 0
# timeout: 600
# tier: newest  accounts are the same on every kernel
# paths: kernel/mem/block/promise.* kernel/mem/block/account.* kernel/mem/block/payer.* kernel/mem/pool/ kernel/chardev.*
. "$(dirname "$0")/../guest/lib.sh"

for node in 0 1; do
	hpmmap pool add --node $node --size 256M --leave 256M >/dev/null || fail "no pool on NUMA node $node"
done
hpmmap pool limit --default --size none
top=/sys/fs/cgroup/promise
mkdir -p $top/a/inner $top/a/other $top/b
within_cgroup() { bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' bash "$@"; }
ALICE=2001 BOB=2002
of() { # USER CGROUP COMMAND...
	local user=$1 cgroup=$2
	shift 2
	within_cgroup "$cgroup" setpriv --reuid "$user" --regid "$user" --groups "$(getent group hpmmap | cut -d: -f3)" "$@"
}

# The users need not be able to read it.
takes=$(cat "$HPMMAP_ROOT/tests/vm/guest/take_all.py")
# taker NAME COMMAND...: it is done when the file is there, and ends by gone NAME.
declare -A takers
taker() {
	local name=$1 file=/tmp/taken-$1
	shift
	rm -f "$file"
	"$@" >/dev/null 2>&1 &
	takers[$name]=$!
	within 60 test -e "$file" || fail "$name does not come to an end"
}
takes_all() { # NAME USER CGROUP [MB]
	taker "$1" of "$2" "$3" hpmmap run --strict -- python3 -c "$takes" "/tmp/taken-$1" ${4-}
}
gone() {
	local name
	for name in "$@"; do
		kill -KILL "$(pgrep -f "^python3 .*/tmp/taken-$name")" || fail "$name has ended"
		wait "${takers[$name]}" || true
		rm "/tmp/taken-$name"
	done
}
MB() { echo $(($(pool_bytes "$1") / MIB)); }
# promised FREE-BUT-PROMISED, in MB
promised() { [ "$(MB promised_bytes)" = "$1" ] || fail "$(MB promised_bytes) MB are promised and free, not $1: $(hpmmap pool limit --list)"; }
# holds KIND NAME NODE PROMISED HELD, in MB
holds() {
	hpmmap pool limit --list --json | python3 -c '
import json, sys
kind, name, *figures = sys.argv[1:]
one = {(p["kind"], p["name"], p["node"]): p for p in json.load(sys.stdin)["promises"]}[kind, name, int(figures[0])]
assert [one["promised_bytes"] >> 20, one["held_bytes"] >> 20] == [int(n) for n in figures[1:]], one' "$@" ||
		fail "it is not so: $*"
}
min() { hpmmap pool limit "$@" >/dev/null; }

# Each gets what it was promised to the last block, whoever comes first.
[ "$(hpmmap pool limit --cgroup /promise/a --min 0:64M,1:64M)" = 'promised to cgroup /promise/a: 64M of NUMA node 0, 64M of NUMA node 1' ] || fail 'nothing is said'
min --cgroup $top/b --min 0:64M,1:32M
promised 224
expect_error 1 '300M cannot be promised to user 2003: at most 288M of all pools together can be, where 512M are free and 224M' min --user 2003 --min 300M
expect_error 1 '200M of NUMA node 1 cannot be promised to user 2003: at most 160M of NUMA node 1 can be, where 256M are free and 96M' min --user 2003 --min 1:200M
expect_error 1 '9 has no pool|no pool' min --user 2003 --min 9:2M
# A change that cannot be kept on one NUMA node changes none.
expect_error 1 'at most 224M of NUMA node 1 can be' min --cgroup $top/a --min 0:2M,1:230M
promised 224
takes_all bob $BOB $top/b
[ "$(MB free_bytes)" = 128 ] || fail "of 512 MB bob leaves $(MB free_bytes), not the 128 that are promised to alice"
promised 128
expect_error 125 'used up|no memory for the launch' of 2003 $top hpmmap run --strict -- true
takes_all alice $ALICE $top/a
[ "$(MB free_bytes)" = 0 ] || fail "alice leaves $(MB free_bytes) MB of what was promised to her"
holds cgroup /promise/a 0 64 64
holds cgroup /promise/a 1 64 64
promised 0
gone alice bob
within 10 pool_is_free || fail 'memory is left'
takes_all alice $ALICE $top/a
[ "$(MB free_bytes)" = 96 ] || fail "alice leaves $(MB free_bytes) MB, not the 96 that are promised to bob"
takes_all bob $BOB $top/b
[ "$(MB free_bytes)" = 0 ] || fail "bob does not get all he was promised: $(MB free_bytes) MB are free"
gone alice bob

# A promise ends with its cgroup, and a figure shows it at once.
within 10 rmdir $top/b
promised 128
mkdir $top/b
promised 128

# Within another promise it is taken out of that, and what exceeds it is kept on top.
min --cgroup $top/a/inner --min 0:32M
promised 128
min --cgroup $top/a/inner --min 0:96M
promised 160
min --cgroup $top/a/inner --min 0:32M
promised 128
takes_all bob $BOB $top/b
[ "$(MB free_bytes)" = 128 ] || fail "beside promises within promises bob leaves $(MB free_bytes) MB"
takes_all other $ALICE $top/a/other
[ "$(MB free_bytes)" = 32 ] || fail "a cgroup beside one with a promise leaves it $(MB free_bytes) MB, not 32"
takes_all inner $ALICE $top/a/inner
[ "$(MB free_bytes)" = 0 ] || fail "a promise within another one is not kept: $(MB free_bytes) MB are free"
gone bob other inner
min --cgroup $top/a/inner --min none

# What a user holds in a cgroup with a promise counts for that, and elsewhere for the user's.
min --user $ALICE --min 0:32M
promised 160
takes_all alice $ALICE $top/a 16
holds user "$ALICE" 0 32 0
gone alice
taker alice of $ALICE $top/b hpmmap run --strict --node 0 -- python3 -c "$takes" /tmp/taken-alice 16
held=$(hpmmap pool limit --list --json | python3 -c '
import json, sys
print(*(p["held_bytes"] >> 20 for p in json.load(sys.stdin)["promises"] if p["kind"] == "user"))')
[ "$held" -ge 16 ] || fail "outside of the cgroup alice holds $held MB of what she was promised"
# A promise to the cgroup she is in changes what counts for which.
min --cgroup $top/b --min 0:48M
holds user "$ALICE" 0 32 0
min --cgroup $top/b --min none
gone alice

# A launch: of an ordinary user out of what was promised to the user, of root out of free memory.
within 10 pool_is_free || fail 'memory is left'
expect_error 125 'reserve 0:16M|--reserve 16M of NUMA node 0: 0 of what is promised' of 2003 $top hpmmap run --reserve 0:16M -- true
expect_error 125 'cannot be promised to the launch: at most' hpmmap run --reserve 1G -- true
taker alice of $ALICE $top/b hpmmap run --strict --reserve 0:16M -- python3 -c "$takes" /tmp/taken-alice 4
[ "$(MB promised_bytes)" -le 160 ] || fail 'what a launch reserves is not taken out of what was promised to its user'
hpmmap pool limit --user $ALICE --size 8M >/dev/null
expect_error 125 'the limit of user .* \(8M\) lets the launch hold 8M at most' of $ALICE $top/b hpmmap run --reserve 0:16M -- true
hpmmap pool limit --user $ALICE --size default >/dev/null
# Launches of a user, and of a cgroup, reserve no more together than may be held.
for what in "--user $ALICE" "--cgroup $top/b"; do
	hpmmap pool limit $what --size 24M >/dev/null
	expect_error 125 'reserve 16M of NUMA node 0: with what other launches reserve' of $ALICE $top/b hpmmap run --reserve 0:16M -- true
	of $ALICE $top/b hpmmap run --reserve 0:8M -- true || fail "a launch cannot reserve what the limit of $what leaves"
	hpmmap pool limit $what --size default >/dev/null
done
# What it was taken out of ends before it.
min --user $ALICE --min none
promised 128
taker root hpmmap run --strict --reserve 64M -- python3 -c "$takes" /tmp/taken-root 4
hpmmap pool limit --list | grep -E '^launch +[0-9]+ +1 +32M' >/dev/null || fail "there is no launch: $(hpmmap pool limit --list)"
gone alice root
only_a() { [ "$(MB promised_bytes)" = 128 ]; }
within 10 only_a || fail "what was reserved for killed launches is left: $(hpmmap pool limit --list)"

# Two users who take at the same time, each with other memory on each NUMA node.
min --user $ALICE --min 0:96M,1:32M
min --user $BOB --min 0:32M,1:96M
for one in "alice $ALICE" "bob $BOB"; do
	rm -f "/tmp/taken-${one% *}"
	of "${one#* }" $top/b hpmmap run --strict -- python3 -c "$takes" "/tmp/taken-${one% *}" >/dev/null 2>&1 &
	takers[${one% *}]=$!
done
both_took() { [ -e /tmp/taken-alice ] && [ -e /tmp/taken-bob ]; }
within 60 both_took || fail 'two users do not come to an end'
[ "$(MB free_bytes)" = 128 ] || fail "two users leave $(MB free_bytes) MB, not the 128 that are promised to a cgroup"
hpmmap pool limit --list --json | python3 -c '
import json, sys
users = [one for one in json.load(sys.stdin)["promises"] if one["kind"] == "user"]
assert len(users) == 4 and all(one["held_bytes"] >= one["promised_bytes"] for one in users), users' ||
	fail 'a user does not have all that was promised'
gone alice bob
min --user $ALICE --min none
min --user $BOB --min none
within 10 only_a || fail "promises to users are left: $(hpmmap pool limit --list)"

# Memory that is promised stays in the pools.
min --cgroup $top/a --min 0:200M
expect_error 1 'less free than is promised.*promised: 200M of NUMA node 0 to cgroup /promise/a' hpmmap pool remove --node 0 --size 128M
expect_error 1 'less free than is promised.*promised: 200M of NUMA node 0 to cgroup /promise/a' hpmmap pool set --node 0 --size 0
hpmmap pool remove --node 1 --size 128M >/dev/null || fail 'memory that is not promised does not leave the pool'
hpmmap pool add --node 1 --size 128M --leave 256M >/dev/null

# What others keep for reuse goes before a promise is refused, and before one is broken.
of $BOB $top/b hpmmap run -- python3 -c '
import mmap, time
mmap.mmap(-1, 280 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000000).close()
held = mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
open("/tmp/taken-keeper", "w").close()
time.sleep(1000)' /tmp/taken-keeper &
takers[keeper]=$!
within 60 test -e /tmp/taken-keeper || fail 'nothing is kept for reuse'
min --user 2003 --min 280M || fail 'memory that is kept for reuse is not promised'
min --user 2003 --min none
takes_all alice $ALICE $top/a 400
[ "$(MB free_bytes)" -le 112 ] || fail 'what others keep for reuse is not taken back'
gone alice keeper

# The file, the reports, and the metrics.
printf 'user 2003 64M min=1:16M\ncgroup /promise/b min=8M\ncgroup /promise/a min=1:600M\ndefault none\n' >/tmp/limits
expect_error 1 '/tmp/limits:3: 600M of NUMA node 1 cannot be promised' hpmmap pool limit --load /tmp/limits
hpmmap status --prometheus >/tmp/metrics
for line in 'hpmmap_promise_bytes{kind="user",name="2003",node="1"} 16777216' 'hpmmap_pool_promised_bytes{node="0"}' \
	'hpmmap_promise_held_bytes{kind="cgroup",name="/promise/b",node="0"} 0'; do
	grep -F "$line" /tmp/metrics >/dev/null || fail "the metrics do not have $line: $(cat /tmp/metrics)"
done
hpmmap status | grep 'Free, but promised: .* of NUMA node 0' >/dev/null || fail "status does not tell: $(hpmmap status)"
printf 'user 2003 64M\ndefault none\n' >/tmp/limits
hpmmap pool limit --load /tmp/limits
hpmmap pool limit --list | grep '^user *2003 *1 ' && fail 'what the file does not say any more is promised'
hpmmap pool limit --user 2003 --size default
min --cgroup $top/b --min none
min --cgroup $top/a --min 0:64M,1:64M

# Promises come and go while four processes take and give back: each promise that is kept leaves the others theirs.
storm='
import mmap, random, sys, time
until = time.monotonic() + 600
while time.monotonic() < until:
    held = []
    try:
        for _ in range(random.randrange(1, 12)):
            held.append(mmap.mmap(-1, random.randrange(1, 24) << 21, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except OSError:
        pass
    if len(sys.argv) > 2:
        open(sys.argv[1], "w").close()'
for name in storm1 storm2 storm3 storm4; do
	group=$top/b
	[ $name != storm4 ] || group=$top/a/other
	taker $name of $ALICE $group hpmmap run -- python3 -c "$storm" /tmp/taken-$name x
done
python3 - <<'END' || fail 'promises and storms'
import ctypes, errno, fcntl, os, random, struct
SET, LIST = 0xC028B608, 0xC018B609
device = os.open("/dev/hpmmap", os.O_RDWR)
groups = [os.open("/sys/fs/cgroup/promise/" + name, os.O_RDONLY) for name in ("a/inner", "b")]
kept = refused = 0
for i in range(200):
    parts = b"".join(struct.pack("iIQ", node, 0, random.randrange(1, 48) << 21) for node in (0, 1))
    if i % 4 == 3:
        parts = struct.pack("iIQ", -1, 0, random.randrange(1, 64) << 21)
    array = ctypes.create_string_buffer(parts)
    for nr in (len(parts) // 16, 0):
        arg = bytearray(struct.pack("IIIiQIiQ", 40, 2, 0, groups[i % 2], ctypes.addressof(array), nr, 0, 0))
        try:
            fcntl.ioctl(device, SET, arg)
            kept += nr != 0
        except OSError as error:
            assert error.errno == errno.ENOSPC and nr, error
            refused += 1
        # The debug build compares what was counted step by step.
        fcntl.ioctl(device, LIST, bytearray(struct.pack("IIQII", 24, 0, 0, 0, 0)))
print("kept", kept, "refused", refused)
assert kept > 20
END
gone storm1 storm2 storm3 storm4
within 10 pool_is_free || fail 'memory is left'
promised 128

# A memory error breaks a promise: that is shown, and only what is there is handed out.
min --cgroup $top/a --min 1:256M
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"
start=$(hpmmap pool list --verbose --json | python3 -c '
import json, sys
print(next(one["start"] for one in json.load(sys.stdin)["blocks"] if one["node"] == 1))')
printf '0x%x' "$start" >/sys/devices/system/memory/hard_offline_page
[ "$(MB broken_bytes)" = 2 ] || fail "$(MB broken_bytes) MB of a promise are broken, not 2"
hpmmap status | grep '256M of NUMA node 1, 2M of it lost to memory errors' >/dev/null || fail "status does not tell: $(hpmmap status)"
hpmmap doctor | grep 'NUMA node 1 has 2M less free than is promised' >/dev/null || fail 'doctor does not tell'
takes_all bob $BOB $top/b
[ "$(MB free_bytes)" = 254 ] || fail "bob takes what is left of a broken promise: $(MB free_bytes) MB are free"
gone bob
min --cgroup $top/a --min none
within 10 rmdir $top/a/inner $top/a/other $top/a $top/b $top
promised 0
nothing_runs() { [ "$(contexts)" = 0 ]; }
within 10 nothing_runs || fail 'a context is left'
hpmmap pool remove --all >/dev/null 2>&1 || true
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug
echo $((start / 4096)) >/sys/kernel/debug/hwpoison/unpoison-pfn
rmmod hwpoison-inject
echo online >/sys/devices/system/memory/memory$((start / BLOCK_BYTES))/state
hpmmap pool limit --default --size 50%
