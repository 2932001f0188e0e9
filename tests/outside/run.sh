#!/bin/bash
# Run the outside programs natively and under hpmmap run, in a guest, and compare:
# run.sh [NAME...], of those in programs; by default all.
set -euo pipefail
. "$(dirname "$0")/../vm/guest/lib.sh"

here=$HPMMAP_ROOT/tests/outside
built=$HPMMAP_ROOT/build/outside
records=$built/records/$HPMMAP_KVER
[ -e "$built/built" ] || fail "the programs are not built: tests/outside/build.sh"
mkdir -p "$records"/{native,hpmmap}

# What ends in a SIGSEGV is no news here.
sysctl -q vm.unprivileged_userfaultfd=1 debug.exception-trace=0
restore() {
	sysctl -q vm.unprivileged_userfaultfd=0 debug.exception-trace=1
	[ ! -e /sys/kernel/mm/ksm/run ] || echo 2 >/sys/kernel/mm/ksm/run
}
trap restore EXIT
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug

# end_session LEADER: kills what is left of a session. Some that fail leave children, which fork.
end_session() {
	local tries=100
	while pkill -KILL --session "$1"; do
		((tries--)) || fail "processes do not end: $(pgrep --list-full --session "$1")"
		sleep 0.1
	done
}

# run_one HOW NAME TIMEOUT COMMAND...: its output and, in a line of its own, how it ended.
run_one() {
	local how=$1 name=$2 timeout=$3 status=0 prefix=()
	shift 3
	[ "$how" = native ] || prefix=(hpmmap run --)
	: >"$records/$how/$name"
	# What outlives it may still write.
	setsid timeout --kill-after=10 "$timeout" "${prefix[@]}" "$built/$1" "${@:2}" >>"$records/$how/$name" 2>&1 </dev/null &
	wait $! || status=$?
	end_session $!
	printf '\nexit status %d\n' $status >>"$records/$how/$name"
}

names=()
cd /tmp
while read -r name timeout command; do
	[[ -n $name && $name != \#* ]] || continue
	[ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
	names+=("$name")
	started=$SECONDS
	read -ra words <<<"$command"
	for how in native hpmmap; do
		run_one $how "$name" "$timeout" "${words[@]}"
	done
	echo "$name: $((SECONDS - started)) s"
	expect_pool_free
done <"$here/programs"
"$here/compare.py" "$records" "${names[@]}"
