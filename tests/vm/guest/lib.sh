# shellcheck shell=bash
# Shared by the scenarios. Runs in the guest, as root.
set -euo pipefail

SYSFS=/sys/kernel/hpmmap
CONTEXTS=/proc/hpmmap
BLOCK_BYTES=$((0x$(cat /sys/devices/system/memory/block_size_bytes)))
MIB=$((1 << 20))

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# skip REASON: the scenario cannot be run here. Not a pass: it is reported.
skip() {
	echo "SKIP: $*"
	exit 77
}

# What is asked often asks no other program: starting one takes a tenth of a second here.

# Sum of one file of all nodes' pools.
pool_bytes() {
	local file value sum=0
	for file in "$SYSFS"/nodes/node*/"$1"; do
		[ ! -e "$file" ] || { read -r value <"$file" && sum=$((sum + value)); }
	done
	echo $sum
}

memtotal_kib() {
	local name kib unit
	read -r name kib unit </proc/meminfo
	[ "$name $unit" = "MemTotal: kB" ] || fail "/proc/meminfo begins with $name"
	echo "$kib"
}

# contexts [NAME]: how many there are, or a value of each.
contexts() {
	local name value n=0
	while read -r name value; do
		[ "$name" != id ] || n=$((n + 1))
		[ "$name" != "${1-}" ] || echo "$value"
	done <$CONTEXTS
	[ $# != 0 ] || echo $n
}

# context_of PID NAME: a value of the context of a process; fails if it has none.
context_of() {
	local name value pid=
	while read -r name value; do
		[ "$name" != id ] || pid=
		[ "$name" != pid ] || pid=$value
		if [ "$pid" = "$1" ] && [ "$name" = "$2" ]; then
			echo "$value"
			return
		fi
	done <$CONTEXTS
	return 1
}

is_registered() {
	context_of "$1" job >/dev/null
}

# within SECONDS COMMAND...: wait until the command succeeds.
within() {
	local tries=$(($1 * 5))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 0.2
	done
}

nothing_pinned() {
	[ "$(pool_bytes pinned_bytes)" = 0 ]
}

pool_is_free() {
	[ "$(contexts)" = 0 ] && [ "$(pool_bytes free_bytes)" = "$(pool_bytes total_bytes)" ] && nothing_pinned
}

# Contexts are freed after their process is gone: some of it in the background.
expect_pool_free() {
	within 10 pool_is_free ||
		fail "after the jobs: $(contexts) contexts, $(pool_bytes free_bytes) of $(pool_bytes total_bytes) bytes free, $(pool_bytes pinned_bytes) pinned"
}

offline_blocks() {
	cat /sys/devices/system/memory/memory*/state | awk '/^offline$/ { n++ } END { print n + 0 }'
}

# set_pool SIZE: the pools hold this much in total, on one node; 0 for nothing.
set_pool() {
	local want have
	want=$(numfmt --from=iec "$1")
	have=$(pool_bytes total_bytes)
	[ "$have" != "$want" ] || return 0
	# Pools on the node grow: each block that goes or comes takes a while.
	if [ "$have" -gt "$want" ] || [ -e "$SYSFS/nodes/node1" ]; then
		hpmmap pool remove --all >/dev/null || return 1
	fi
	[ "$want" = 0 ] || hpmmap pool add --node 0 --size "$1" --up-to --leave 256M >/dev/null
}

# expect STATUS COMMAND...: the command must end with this status.
expect() {
	local want=$1 got=0
	shift
	"$@" || got=$?
	[ $got = "$want" ] || fail "status $got instead of $want: $*"
}

# expect_error STATUS PATTERN COMMAND...: it must fail with one line of error
# output that matches.
expect_error() {
	local want=$1 pattern=$2 got=0 output
	shift 2
	output=$("$@" 2>&1 >/dev/null) || got=$?
	echo "$* -> $got: $output"
	[ $got = "$want" ] || fail "status $got instead of $want: $*"
	[ "$(wc -l <<<"$output")" = 1 ] || fail "not one line of error output: $*"
	grep -qE "$pattern" <<<"$output" || fail "the error of '$*' does not match '$pattern'"
}

# Load the module as the harness does.
load_module() {
	insmod "$HPMMAP_MODULE"
	within 5 test -c /dev/hpmmap || fail "no /dev/hpmmap"
	chown root:hpmmap /dev/hpmmap
	chmod 0660 /dev/hpmmap
	[ ! -c /dev/xpmem ] || chown root:hpmmap /dev/xpmem
}

TRACING=/sys/kernel/tracing
zero_trace_start() {
	echo >$TRACING/trace
	echo 1 >$TRACING/events/hpmmap/hpmmap_zero/enable
}

zero_trace_stop() {
	echo 0 >$TRACING/events/hpmmap/hpmmap_zero/enable
}

# zeroed COMM: blocks that processes of this name have zeroed since zero_trace_start.
zeroed() {
	awk -v comm="$1" '$0 !~ /^#/ && index($0, " " comm "-") && sub(/.* blocks=/, "") { n += $0 } END { print n + 0 }' $TRACING/trace
}

# The hooks are removed some time after the last job has ended.
unload_module() {
	within 20 rmmod hpmmap || rmmod hpmmap || fail "the module does not unload"
}

# An ordinary user; as_member is one in the group of the device.
USER_ID=2001
as_user() {
	setpriv --reuid $USER_ID --regid $USER_ID --clear-groups "$@"
}
as_member() {
	setpriv --reuid "${MEMBER_ID:-$USER_ID}" --regid "${MEMBER_ID:-$USER_ID}" \
		--groups "$(getent group hpmmap | cut -d: -f3)" "$@"
}

# Whether this is one of the longer runs, which do more of what takes long.
longer() {
	[ "${HPMMAP_TIER:-check}" != check ]
}

# A kernel of scripts/build-debug-kernel: slow, and with other figures.
is_debug_kernel() {
	[ -e /sys/kernel/debug/kmemleak ]
}

# fuzz_twins ARGUMENT...: the same random calls natively and under HPMMAP, with the
# options RUN_OPTIONS, must give the same results.
RUN_OPTIONS=()
fuzz_twins() {
	local dir=/tmp/fuzz-twins space=$HPMMAP_ROOT/build/tests-fuzz/space
	rm -rf $dir
	mkdir -p $dir/native $dir/hpmmap
	"$space" "$@" --log $dir/native --expect native
	hpmmap run "${RUN_OPTIONS[@]}" -- "$space" "$@" --log $dir/hpmmap --expect registered
	[ "$(cat $dir/native/* | wc -l)" -gt 50 ] || fail "the fuzzer wrote no log"
	diff -r $dir/native $dir/hpmmap >$dir/difference || {
		head -n 20 $dir/difference
		fail "space $*: results differ between Linux (<) and HPMMAP (>)"
	}
	expect_pool_free
}

# guided SECONDS: the fuzzer of tests/fuzz/guided.c. What it ran last is in build/vm/guided,
# also if the guest has not survived it.
guided() {
	local dir=$HPMMAP_ROOT/build/vm/guided/$HPMMAP_KVER
	mkdir -p "$dir"
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	# Of a guest of its own, to anybody.
	sysctl -q vm.unprivileged_userfaultfd=1 debug.exception-trace=0
	# Stacks that many processes leave when they are killed are of no use.
	ulimit -c 0
	"$HPMMAP_ROOT/build/tests-fuzz/guided" --seed "${HPMMAP_SEED:-1}" --seconds "$1" --log "$dir" || {
		echo w >/proc/sysrq-trigger
		fail "the programs are in build/vm/guided/$HPMMAP_KVER: guided --print FILE"
	}
	sysctl -q vm.unprivileged_userfaultfd=0 debug.exception-trace=1
	# Who was killed between shmget(2) and shmctl(2) has left a segment, which is memory of the pools.
	ipcs -m
	ipcrm --all=shm
	expect_pool_free
}

# A program that is told by lines what to do, and answers: serve FIRST-ANSWER COMMAND...
serve() {
	local first=$1
	shift
	mkfifo /tmp/orders /tmp/answers
	"$@" </tmp/orders >/tmp/answers &
	job=$!
	exec 7>/tmp/orders 8</tmp/answers
	rm /tmp/orders /tmp/answers
	answer "$first"
}
# A debug kernel takes minutes to transfer 64 MB.
answer() {
	local line
	read -r -t 600 line <&8 || fail "process $job does not answer"
	[ "$line" = "$1" ] || fail "process $job says '$line' instead of '$1'"
}
# order WORD ANSWER
order() {
	echo "$1" >&7
	answer "$2"
}
# It ends by itself then, if it has not been killed.
served() {
	exec 7>&- 8<&-
	wait "$job" || true
}

pinned() { [ "$(pool_bytes pinned_bytes)" -ge $(($1 * MIB)) ]; }
expect_pinned() { within 10 pinned "$1" || fail "$(pool_bytes pinned_bytes) bytes are shown as pinned, not $1 MB"; }

# Another job takes all memory there is: "${TAKE_ALL[@]}" [FILE [MB]], see there.
TAKE_ALL=(hpmmap run --strict -- python3 "$HPMMAP_ROOT/tests/vm/guest/take_all.py")
