#!/bin/bash
# A user that maps and unmaps repeatedly leaves clean memory to others. If it is short all the same, the thread zeroes what live processes gave up.
# pool: 512M
# takes: 60
# timeout: 480
# tier: newest  allocator and zeroing are the same on every kernel
# paths: kernel/mem/ kernel/as/change/discard.* tests/vm/programs/soil.c
. "$(dirname "$0")/../guest/lib.sh"

soil=$HPMMAP_ROOT/build/tests-vm/soil
other=2003

clean() { pool_bytes clean_bytes; }
free() { pool_bytes free_bytes; }
is_clean() { [ "$(free)" = "$(clean)" ]; }
half_is_clean() { [ $((2 * $(clean))) -ge "$(free)" ]; }

# start WHO ARGUMENT...: a program that is ready, and its PID in $pid.
start() {
	local who=$1
	shift
	rm -f /tmp/ready
	$who hpmmap run --strict -- "$soil" "$@" >/tmp/ready &
	within 60 grep -q ready /tmp/ready || fail "soil $*: not ready"
	pid=$(sed 's/ready //' /tmp/ready)
}
finish() {
	kill -KILL "$@"
	within 20 is_clean || fail "what a process left is not zeroed: of $(($(free) / MIB)) MB free $(($(clean) / MIB)) MB"
}
# expect_clean_for MB: so much that another user maps is clean; its PID in $pid.
expect_clean_for() {
	local cleared
	MEMBER_ID=$other start as_member hold "$1"
	cleared=$(context_of "$pid" cleared_bytes)
	[ "$cleared" -le $((2 * MIB)) ] || fail "$((cleared / MIB)) MB of what another user mapped were zeroed in its calls"
}

within 20 is_clean || fail "the pool does not become clean"
hpmmap pool limit --user $USER_ID --size 16M

# The thread hardly gets its CPU, so that what it zeroes for children that end does not help.
thread=$(pgrep -x hpmmap_zero/0)
cpus=$(taskset -pc "$thread" | sed 's/.*: //')
busy=()
thread_slow() {
	taskset -pc 1 "$thread" >/dev/null
	for _ in 1 2 3; do
		taskset -c 1 sh -c 'while :; do :; done' &
		busy+=($!)
	done
}
thread_fast() {
	[ ${#busy[@]} = 0 ] || kill -KILL "${busy[@]}"
	busy=()
	taskset -pc "$cpus" "$thread" >/dev/null
}

trap thread_fast EXIT
for how in 'map 2 1300' 'discard 2 1300' 'fork 2 160'; do
	echo "== a user with a limit of 16 MB: $how"
	[[ $how != fork* ]] || thread_slow
	start as_member $how
	attacker=$pid
	echo "of $(($(free) / MIB)) MB free $(($(clean) / MIB)) MB are clean"
	# As much as it may hold, what it gave up last, and its own memory.
	[ $(($(free) - $(clean))) -le $((32 * MIB)) ] || fail "a user with a limit of 16 MB has soiled $((($(free) - $(clean)) / MIB)) MB"
	expect_clean_for 192
	thread_fast
	finish $attacker "$pid"
done

echo "== without a limit"
start command map 64 16
attacker=$pid
echo "of $(($(free) / MIB)) MB free $(($(clean) / MIB)) MB are clean"
[ $((2 * $(clean) + 128 * MIB)) -ge "$(free)" ] || fail "a user has soiled all but $(($(clean) / MIB)) MB of $(($(free) / MIB))"
expect_clean_for 192
echo "with 192 MB mapped by another user of $(($(free) / MIB)) MB free $(($(clean) / MIB)) MB are clean"
within 20 half_is_clean || fail "of $(($(free) / MIB)) MB free only $(($(clean) / MIB)) MB are clean, and the thread sleeps"
finish $attacker "$pid"
expect_pool_free
