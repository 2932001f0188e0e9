# shellcheck shell=bash disable=SC2034 # the scenarios use what is set here
# Shared by the scenarios with real programs: a program runs natively and
# registered, must do the same, and must have had pool memory.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What the programs are given as their size; larger for long runs.
SCALE=${HPMMAP_TEST_SCALE:-1}
APPS=$HPMMAP_ROOT/tests/vm/programs/apps
BUILT=$HPMMAP_ROOT/build/tests-vm/apps
TRACE=/sys/kernel/tracing/instances/hpmmap-apps
WORK=$(mktemp -d /tmp/apps.XXXXXX)
chmod 755 "$WORK"

# Takes out of the output what differs from run to run.
filter() {
	cat
}
# Who runs them; by default root.
AS=()
# How they are registered. Strict, so that all memory must come from the pool; a
# scenario that uses up the pool has another policy and allows fallbacks.
REGISTERED=(hpmmap run --strict --)
FALLBACKS=no

# The tracepoints tell what each process got, however short it lived.
mkdir -p "$TRACE"
echo 4096 >"$TRACE/buffer_size_kb"
echo 1 >"$TRACE/options/record-tgid"
trace_end() {
	local enabled
	for enabled in "$TRACE"/events/hpmmap/*/enable; do echo 0 >"$enabled"; done
	rmdir "$TRACE"
	rm -rf "$WORK"
}
trap trace_end EXIT
for event in register alloc fallback; do
	echo 1 >"$TRACE/events/hpmmap/hpmmap_$event/enable"
done

centiseconds() {
	awk '{ print int($1 * 100) }' /proc/uptime
}

# run_once NAME COMMAND...: in an empty directory; output to $WORK/NAME.
run_once() {
	local name=$1 status=0 from
	shift
	rm -rf "$WORK/directory"
	install -d -m 1777 "$WORK/directory"
	from=$(centiseconds)
	(cd "$WORK/directory" && exec "$@") </dev/null >"$WORK/$name.raw" 2>&1 || status=$?
	TOOK=$(($(centiseconds) - from))
	[ $status = 0 ] || { tail -n 40 "$WORK/$name.raw"; fail "status $status: $*"; }
	filter <"$WORK/$name.raw" >"$WORK/$name"
	[ -s "$WORK/$name" ] || fail "no output: $*"
}

# Lines "BLOCKS PROCESSES COMMAND" of pool memory by command, and "fallback"
# in place of the numbers if it got ordinary memory instead.
taken() {
	sed -nE 's/^ *(.+)-([0-9]+) +\( *([-0-9]+)\) \[.* hpmmap_(register|alloc|fallback): (.*[a-z]=)?([0-9]+)$/\4 \2 \3 \6 \1/p' \
		"$TRACE/trace" | awk '
		{
			command = $5
			for (i = 6; i <= NF; i++) command = command " " $i
			process = $3 ~ /^[0-9]+$/ ? $3 : $2
			if ($2 == process || !(process in name)) name[process] = command
		}
		$1 == "alloc" { blocks[process] += $4 }
		$1 == "fallback" { fallbacks[process] = 1 }
		END {
			for (process in name) {
				sum[name[process]] += blocks[process]
				count[name[process]]++
			}
			for (command in sum) print sum[command], count[command], command
			for (process in fallbacks) print "fallback", 1, name[process]
		}'
}

# same NAME COMMAND...: natively and registered.
same() {
	local name=$1 native
	shift
	run_once "$name.native" "${AS[@]}" "$@"
	native=$TOOK
	same_as "$name.native" "$name" "${AS[@]}" "${REGISTERED[@]}" "$@"
	awk -v name="$name" -v native="$native" -v registered="$TOOK" 'BEGIN {
		printf "%s: natively %.1f s, registered %.1f s (%.2f)\n", name,
			native / 100, registered / 100, registered / (native ? native : 1)
	}'
}

# same_as REFERENCE NAME COMMAND...: the command, which registers something, must
# do what was recorded as REFERENCE.
same_as() {
	local reference=$1 name=$2
	shift 2
	: >"$TRACE/trace"
	run_once "$name" "$@"
	taken | sort -rn >"$WORK/taken"
	diff -a "$WORK/$reference" "$WORK/$name" || fail "$name: registered it does something else (+)"
	! grep -h -v '^overrun: 0$' <(grep -h '^overrun:' "$TRACE"/per_cpu/*/stats) || fail "$name: the trace was too small"
	if [ $FALLBACKS = no ] && grep ^fallback "$WORK/taken"; then
		fail "$name: not all memory came from the pool"
	fi
}

# took COMMAND MIB [PROCESSES]: in the run before, processes of that name had at
# least so much pool memory in all, one process after another.
took() {
	local line blocks processes
	line=$(awk -v command="$1" '$1 != "fallback" {
		name = $3
		for (i = 4; i <= NF; i++) name = name " " $i
		if (name == command) print
	}' "$WORK/taken")
	[ -n "$line" ] || { cat "$WORK/taken"; fail "no process '$1' was registered"; }
	read -r blocks processes _ <<<"$line"
	echo "pool memory: $1: $((blocks * 2)) MB, $processes processes"
	[ $((blocks * 2)) -ge "$2" ] || fail "$1 had $((blocks * 2)) MB of pool memory, expected were $2 MB"
	[ "$processes" -ge "${3:-1}" ] || fail "$processes processes $1 were registered, expected were $3"
}
