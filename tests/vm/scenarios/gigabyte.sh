#!/bin/bash
# Jobs with --page-size 1G: one entry maps a gigabyte, on Linux 6.12 and newer; elsewhere entries of
# 2 MB do. What sem_gigabyte does not see: several jobs, the module that goes and comes, memory errors.
# machine: gigabytes
# pool: 3584M
# timeout: 300
# takes: 60
# paths: kernel/as/map/gigabyte.* kernel/as/store/entry.* kernel/as/life/failure.* kernel/hook.* kernel/mem/ tests/guest/sem_gigabyte.c
. "$(dirname "$0")/../guest/lib.sh"

IFS=. read -r major minor _ < <(uname -r)
has=0
if [ $((major * 100 + minor)) -ge 612 ] && grep -qw pdpe1gb /proc/cpuinfo && [ -d /sys/kernel/mm/transparent_hugepage ]; then
	has=1
fi

# stat_of NAME: of all jobs together.
stat_of() {
	cat $SYSFS/jobs/*/stat | awk -v name="$1" '$1 == name { n += $2 } END { print n + 0 }'
}

# Holds a gigabyte: dd copies a line by a buffer of that size, and waits for more.
hold() {
	local line
	# Each its own: another one would read the line.
	rm -f /tmp/gigabyte.in /tmp/gigabyte.out
	mkfifo /tmp/gigabyte.in /tmp/gigabyte.out
	exec 5<>/tmp/gigabyte.in 6<>/tmp/gigabyte.out
	echo ready >&5
	hpmmap run --page-size "$1" -- dd bs=1G status=none <&5 >&6 &
	job=$!
	read -r -t 60 line <&6 && [ "$line" = ready ] || fail "the job does not get ready"
}
let_go() {
	kill "$@"
	wait "$@" || true
}

hold 2M
[ "$(stat_of entries_1g)" = 0 ] || fail "an entry of 1 GB without --page-size 1G"
let_go $job
expect_pool_free

# Two jobs, of which one is killed; the other one is looked at.
hold 1G
first=$job
[ "$(stat_of entries_1g)" = $has ] || fail "$(stat_of entries_1g) entries of 1 GB, not $has"
[ "$(stat_of entries_2m)" -ge $((has ? 0 : 512)) ] || fail "$(stat_of entries_2m) entries of 2 MB"
[ "$(stat_of faults)" = 0 ] || fail "$(stat_of faults) page faults"
contexts run_bytes | grep -x $((has * 1024 * MIB)) >/dev/null || fail "held as one: $(contexts run_bytes) bytes"
hold 1G
[ "$(stat_of entries_1g)" = $((2 * has)) ] || fail "the second job: $(stat_of entries_1g) entries of 1 GB"
[ "$(pool_bytes free_bytes)" -le $((1536 * MIB)) ] || fail "$(pool_bytes free_bytes) bytes are free"
let_go $first
cat /proc/$job/smaps /proc/$job/numa_maps >/dev/null
awk '$1 == "Rss:" && $2 >= 1048576 { found = 1 } END { exit !found }' /proc/$job/smaps || fail "smaps shows no gigabyte"
let_go $job
expect_pool_free

[ "$(grep -cx yes $SYSFS/gigabytes)" = $has ] || fail "has=$has, and $SYSFS/gigabytes says $(cat $SYSFS/gigabytes)"
hpmmap run --page-size 1G -- true 2>/tmp/said
[ "$(grep -c 'entries are of 2 MB' /tmp/said)" = $((1 - has)) ] || { cat /tmp/said; fail "has=$has, and run says this"; }

# A gigabyte for a device, which is one run, and is not split.
hpmmap run --strict --page-size 1G -- "$HPMMAP_ROOT/build/tests-vm/runs" 1024 | tee /tmp/said
grep -qx '1024 MB in 1 runs' /tmp/said || fail "a gigabyte has several runs"
expect_pool_free

# A region that begins below a gigabyte has one all the same.
hpmmap run --page-size 1G --region 1026M@0x3fe00000 -- sleep 60 &
job=$!
is_registered() {
	[ "$(stat_of programs_registered)" = 1 ]
}
within 20 is_registered || fail "a program with a region is not registered"
[ "$(stat_of entries_1g)" = $has ] || fail "a region across a gigabyte has $(stat_of entries_1g) entries of 1 GB"
let_go $job
expect_pool_free

# Functions of the kernel are redirected until the module goes.
hpmmap pool remove --all >/dev/null
unload_module
load_module
set_pool 2G
hold 1G
[ "$(stat_of entries_1g)" = $has ] || fail "after the module was loaded again: $(stat_of entries_1g) entries of 1 GB"
let_go $job
expect_pool_free

# Memory errors: the rest of the gigabyte stays, and is not given back as one.
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"
all_but() {
	[ $(($(pool_bytes free_bytes) + $1 * 2 * MIB)) = "$(pool_bytes total_bytes)" ] && nothing_pinned
}
# Of these gigabytes two are whole even where the kernel holds pages in some of their memory blocks.
set_pool 4608M
errors=0
for how in touched untouched; do
	HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_GIGABYTES=yes HPMMAP_TEST_POISON=$how HPMMAP_TEST_ONLY=memory_error \
		hpmmap run --page-size 1G -- "$HPMMAP_ROOT/build/tests/sem_gigabyte"
	within 10 all_but $((errors += 1)) || fail "$(grep . $SYSFS/nodes/node0/*)"
done
mapfile -t frames < <(dmesg | sed -n 's/.*hpmmap: memory error at \(0x[0-9a-f]*\)000, node.*/\1/p')
[ ${#frames[@]} = $errors ] || fail "the kernel log tells of ${#frames[@]} errors"
expect 1 hpmmap pool remove --all
for frame in "${frames[@]}"; do
	echo "$frame" >/sys/kernel/debug/hwpoison/unpoison-pfn
done
rmmod hwpoison-inject
for state in /sys/devices/system/memory/memory*/state; do
	[ "$(cat "$state")" = online ] || echo online >"$state"
done
