#!/bin/bash
# hpmmap trace: every page fault is recorded with its kind, and the counts agree with the kernel's.
# takes: 60
# pool: 512M
# timeout: 240
# tier: newest  the hooks are the same functions on every kernel that is tested
# paths: kernel/trace.* kernel/as/own/stats.* crates/hpmmap-trace/ crates/hpmmap-bpf/ tests/vm/guest/trace.sh tests/vm/guest/check_trace.py
# paths: tests/vm/programs/faults.c
. "$(dirname "$0")/../guest/trace.sh"

[ -e /sys/kernel/btf/vmlinux ] || skip "this kernel has no BTF, which BPF programs need"
hooked() { grep -q '^handle_mm_fault ' /sys/kernel/tracing/enabled_functions; }
is_free() { ! hooked; }
hooked && fail "the fault handler is traced already"

echo "== known numbers"
hpmmap trace record -o known -- "$faults" small zero thp hugetlb shared private fork populate kernel threads >known.out
check known known.out known

# with_zram SIZE COMMAND: with the disk /dev/zram0, if the kernel has one.
with_zram() {
	modprobe zram num_devices=1 || { echo "this kernel has no zram: no test of $2"; return; }
	echo "$1" >/sys/block/zram0/disksize
	"$2"
	rmmod zram
}

echo "== swap"
swapped() {
	mkswap /dev/zram0 >/dev/null
	swapon /dev/zram0
	hpmmap trace record -o swap -- "$faults" swap >swap.out
	check swap swap.out known
	swapoff /dev/zram0
}
with_zram 64M swapped

echo "== the status is the command's, and so are its streams"
expect 7 hpmmap trace record -q -o status -- sh -c 'exit 7'
expect 137 hpmmap trace record -q -o status -- sh -c 'kill -9 $$'
[ "$(echo text | hpmmap trace record -q -o status -- cat)" = text ] || fail "the command has other streams"

echo "== under hpmmap run: no page fault after the start"
# Without --image the program's own text, which is Linux's, would fault.
hpmmap trace record -o ours -- hpmmap run --strict --image -- "$faults" small thp >ours.out
check ours ours.out none
expect_pool_free

echo "== a buffer that is too small drops events, never counts"
hpmmap trace record --buffer 64K -o small -- python3 -c '
import mmap
for i in range(20):
    m = mmap.mmap(-1, 4 << 20)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, 4 << 20, 4096): m[at] = 1'
hpmmap trace report small --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["faults"]["agree"], report["faults"]
# Dropped are events of all sorts: the names of files, each time they are tried, too.
missing = report["faults"]["recorded"] - report["faults"]["in_file"]
assert 0 <= missing <= report["dropped"], report
assert sum(row["count"] for row in report["kinds"]) == report["faults"]["recorded"], report["kinds"]
print("dropped", report["dropped"])'

echo "== what is there already"
sleep 1000 &
sleeper=$!
"$faults" forever >/dev/null &
victim=$!
hpmmap trace record -q -o attached -p $victim &
recorder=$!
within 20 has_faults attached || fail "nothing is recorded of a process that was there"
kill -INT $recorder
wait $recorder || fail "the recorder ended with $?"
kill -0 $victim || fail "the process was killed"
hpmmap trace report attached --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["complete"] and report["faults"]["agree"], report["faults"]
assert report["faults"]["getrusage"] is None and report["running"] == 1, report
assert report["faults"]["in_file"] > 100, report["faults"]
assert [row["process"] for row in report["ranks"]] == ["faults"], report["ranks"]'
kill -9 $victim $sleeper
wait $victim $sleeper || true

echo "== killed"
hpmmap trace record -q -o killed -- "$faults" forever >/dev/null &
recorder=$!
running() { pgrep -f "^$faults forever"; }
within 20 running || fail "the command does not start"
child=$(pgrep -f "^$faults forever")
kill -9 "$child"
status=0
wait $recorder || status=$?
[ $status = 137 ] || fail "the recorder of a killed command ends with $status"
hpmmap trace report killed --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["complete"] and report["exit_status"] == 137 and report["faults"]["agree"], report["faults"]'
while_recorded() { hooked || fail "the fault handler is not traced while it is recorded"; }
kill_recorder
within 10 is_free || fail "the BPF programs of a killed recorder are left"

echo "== errors"
expect_error 127 "cannot run 'nonexistent'" hpmmap trace record -o x -- nonexistent
[ ! -e x ] || fail "an empty file is left"
expect_error 125 'there is no process 4194305' hpmmap trace record -o x -p 4194305
expect_error 125 'not a power of two' hpmmap trace record -o x --buffer 3M -- true
expect_error 125 'cannot write /nonexistent/x' hpmmap trace record -o /nonexistent/x -- true
expect_error 125 'no permission to load BPF programs' as_user "$(command -v hpmmap)" trace record -o /tmp/x -- true
expect_error 1 'cannot read none' hpmmap trace report none
expect_error 1 "not a file of 'hpmmap trace record'" hpmmap trace report known.out
expect_error 2 'has to end in .png or .svg' hpmmap trace plot known -o known.jpg
expect_error 2 'expected seconds' hpmmap trace report known --after soon

# More of the reports, and causes that are rare.
longer || exit 0

echo "== stolen time"
hpmmap trace record -o stolen -- python3 -c '
import mmap
MADV_COLLAPSE = 25
m = mmap.mmap(-1, 6 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 6 << 20, 4096): m[at] = 1
m.madvise(mmap.MADV_HUGEPAGE)
m.madvise(MADV_COLLAPSE)
open("/proc/sys/vm/compact_memory", "w").write("1")'
hpmmap trace report stolen
hpmmap trace report stolen --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["faults"]["agree"], report["faults"]
stolen = {row["cause"]: row for row in report["stolen"]}
# Two whole large pages at least; each node and zone.
assert stolen["merge"]["count"] >= 2, stolen
assert stolen["compaction"]["count"] >= 1, stolen
assert all(row["sum_ns"] >= row["max_ns"] > 0 for row in stolen.values() if row["count"]), stolen'

echo "== many processes and threads"
hpmmap trace record -o many -- sh -c "for i in 1 2 3 4; do $faults small fork threads >/dev/null & done; wait"
hpmmap trace report many --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["faults"]["agree"] and report["running"] == 0, report["faults"]
# A shell, and four times a program, its two children and its four threads.
assert len({row["pid"] for row in report["ranks"]}) == 1 + 4 * 3, report["ranks"]
assert len(report["threads"]) >= 1 + 4 * (3 + 4), report["threads"]'

echo "== pictures and tables"
hpmmap trace plot known -o known.png -o known.svg
[ "$(head -c 4 known.png | tail -c 3)" = PNG ] || fail "known.png is no picture"
grep -q 'stalled\|4 KB' known.svg || fail "known.svg does not say what its colours mean"
for by in kind mapping thread rank; do
	hpmmap trace report known --by $by --unit cycles >$by.txt
	grep -q 'they agree' $by.txt || fail "the report by $by does not say that the counts agree"
done
cat kind.txt

echo "== capabilities are enough"
mkdir --mode 1777 user
capabilities=+bpf,+perfmon,+sys_ptrace
setpriv --reuid $USER_ID --regid $USER_ID --clear-groups --inh-caps=$capabilities --ambient-caps=$capabilities \
	hpmmap trace record -o user/capable -- "$faults" small >capable.out
check user/capable capable.out capable

echo "== reclaim of the program's own, by the limit of its cgroup"
limited() {
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control
	mkdir /sys/fs/cgroup/small
	echo 24M >/sys/fs/cgroup/small/memory.max
	mkdir disk
	mkfs.ext4 -q /dev/zram0
	mount /dev/zram0 disk
	head -c 40M /dev/zero >disk/file
	sync
	echo 3 >/proc/sys/vm/drop_caches
	hpmmap trace record -q -o reclaim -- sh -c 'echo $$ >/sys/fs/cgroup/small/cgroup.procs && exec "$@"' sh python3 -c '
import mmap
file = open("disk/file")
m = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for at in range(0, len(m), 4096): m[at]'
	umount disk
	rmdir /sys/fs/cgroup/small
	hpmmap trace report reclaim
	hpmmap trace report reclaim --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["faults"]["agree"], report["faults"]
stolen = {row["cause"]: row for row in report["stolen"]}
assert stolen["reclaim"]["count"] >= 1 and stolen["reclaim"]["sum_ns"] > 0, stolen
waited = [row for row in report["kinds"] if row.get("stall") == "reclaim"]
assert waited and sum(row["count"] for row in waited) >= 1, report["kinds"]'
}
with_zram 64M limited

echo "== ranks are those of mpirun"
mpirun -n 2 --allow-run-as-root --oversubscribe true || fail "mpirun does not work here"
hpmmap trace record -q -o ranks -- mpirun -n 2 --allow-run-as-root --oversubscribe sh -c "$faults small >/dev/null; sleep 0.3"
hpmmap trace report ranks --by rank
hpmmap trace report ranks --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["faults"]["agree"], report["faults"]
ranks = {row["rank"] for row in report["ranks"] if row["process"] == "sh"}
assert ranks == {0, 1}, report["ranks"]'
hpmmap trace plot ranks -o ranks.svg
grep -q 'rank 1' ranks.svg || fail "no panel for each rank"
