#!/bin/bash
# The cost of a child of a small process, in instructions, natively and registered: of one that ends
# at once, and of one that executes a program.
# machine: icount
# pool: 256M
# timeout: 300
# tier: newest  contexts are made and given up in the same way on every kernel
# paths: kernel/as/own/ctx.* kernel/as/life/life.* kernel/as/store/draft.* kernel/as/life/snapshot.* kernel/as/life/share.*
# paths: kernel/task/fork.* kernel/task/exec.* tests/vm/programs/fork_cost.c
. "$(dirname "$0")/../guest/lib.sh"

! is_debug_kernel || skip "instructions of a debug kernel tell nothing"

# Programs that lie in memory, at the same addresses each time.
mount -t tmpfs tmpfs /mnt
cp /bin/busybox "$HPMMAP_ROOT/build/tests-vm/fork_cost" /mnt
ln -s busybox /mnt/true
cost() {
	setarch --addr-no-randomize "$@" /mnt/fork_cost /mnt/true
}

hpmmap run -- sleep 1000 &
job=$!
within 30 is_registered $job || fail "the job does not register"
cost >/dev/null
read -r fork_native exec_native <<<"$(cost)"
read -r fork_ours exec_ours <<<"$(cost hpmmap run --)"
kill $job
wait $job || true
umount /mnt

# compare WHAT NATIVE REGISTERED MOST: in percent of the native cost. This CPU zeroes and copies
# bytewise, and each byte counts.
compare() {
	echo "$1: $2 natively, $3 registered, $(($3 * 100 / $2)) %"
	[ $(($3 * 100)) -le $(($2 * $4)) ] || fail "$1 costs $(($3 * 100 / $2)) % of what it costs natively, more than $4 %"
}
compare "fork, exit and wait" "$fork_native" "$fork_ours" 130
compare "vfork, execve and wait" "$exec_native" "$exec_ours" 170
