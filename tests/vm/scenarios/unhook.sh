#!/bin/bash
# A launch does not wait while hooks are set and removed and a task runs in the kernel for long without sleeping.
# pool: 128M
# timeout: 120
# paths: kernel/hook.* kernel/task/exec.*
. "$(dirname "$0")/../guest/lib.sh"

hooks_are() {
	[ "$(cat $SYSFS/hooks_active)" = "$1" ]
}

# launch: a program under the hooks, in less than 5 seconds.
launch() {
	local begin=$SECONDS
	hpmmap run -- true
	[ $((SECONDS - begin)) -lt 5 ] || fail "a launch took $((SECONDS - begin)) seconds"
}

# The zero page, 16 million times: any user may.
python3 -c 'import mmap
m = mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
m.madvise(mmap.MADV_NOHUGEPAGE)
print("populating", flush=True)
m.madvise(22)' >/tmp/unhook &
hog=$!
trap 'kill -9 $hog 2>/dev/null || true' EXIT
within 20 grep -q populating /tmp/unhook || fail "the hog does not begin"
for round in 1 2 3; do
	launch
	hooks_are 1 || fail "round $round: a launch without hooks"
	# They are removed about now, and again.
	sleep 2.8
	launch
	launch
	within 10 hooks_are 0 || fail "round $round: the hooks stay"
done
kill -0 $hog 2>/dev/null && [ "$(awk '/^voluntary/ { print $2 }' /proc/$hog/status)" -lt 1000 ] || fail "the hog has ended, or sleeps"
kill -9 $hog
expect_pool_free
