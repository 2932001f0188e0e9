#!/bin/bash
# Write the records of all cases: run.sh OUTPUT [OPTION OF CONFORMANCE...] [PATTERN...] -- [COMMAND...]
# The command is the prefix of every program: none, or hpmmap run. With patterns only the
# matching cases run.
set -euo pipefail

target=$1
shift
options=()
only_cases=
while [ "$1" != -- ]; do
	case $1 in
	--only-big | [!-]*) only_cases=1 ;;
	esac
	options+=("$1")
	shift
done
shift
prefix=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# In a guest the files of the host are slow to start from, and to write to.
output=$scratch/record
built=$scratch
cp "$(dirname "$0")"/../../build/conformance/{conformance,program32,crashes,break_*} "$built"

# A few cases that use every call, for where it is the surroundings that matter.
SOME=(mmap/anywhere mmap/fixed_middle mmap/read_only munmap/middle mprotect/none mremap/fixed_from_the_middle
	madvise/dontneed brk/shrink_and_grow fork/both_write)

# in_place NAME COMMAND...: the few cases run by a command that makes their surroundings.
in_place() {
	local name=$1
	shift
	"$@" "$built/conformance" --few --as "$name" "${SOME[@]}" >>"$output"
}

# observe CALL CASE COMMAND...: what a command prints and how it ends is what is observed.
observe() {
	local call=$1 case=$2 text status=0
	shift 2
	text=$("$@" 2>&1 </dev/null) || status=$?
	text=$(tr -c '[:alnum:] _.,:;=+/()<>[]{}-' ' ' <<<"$text")
	printf '{"kernel": "%s", "registered": %s}\n' "$(uname -r)" "$([ ${#prefix[@]} = 0 ] && echo false || echo true)"
	printf '{"call": "%s", "case": "%s", "process": "main", "align": "any", "observed": "%s status=%s"}\n' \
		"$call" "$case" "${text%% }" "$status"
	echo '{"end": 1}'
} >>"$output"

core_dump() {
	local core=$scratch/core old
	old=$(cat /proc/sys/kernel/core_pattern)
	echo "$core" >/proc/sys/kernel/core_pattern
	(ulimit -c unlimited; cd "$scratch" && "${prefix[@]}" "$built/crashes") >/dev/null 2>&1 || echo "status $?"
	echo "$old" >/proc/sys/kernel/core_pattern
	texts "$core"*
}

# What a core has of the texts that "crashes" leaves.
texts() {
	gdb -nx -batch -ex 'printf "%s, ", heap + 50000' -ex 'printf "%s, ", mapping + (8 << 20) - 64' \
		-ex 'printf "%s, ", read_only + 4096' -ex 'printf "%s\n", stack' "$built/crashes" "$1" 2>&1 |
		grep -a 'on the'
}

# The core that a debugger writes, from what /proc/PID/smaps tells it, with a coredump_filter.
debugger_core() {
	local core=$scratch/debugger_core
	rm -f "$core"
	gdb -nx -batch ${prefix[@]:+-ex "set exec-wrapper ${prefix[*]}"} -ex run -ex "shell echo $1 >/proc/\$(pgrep -nx crashes)/coredump_filter" \
		-ex "generate-core-file $core" "$built/crashes" >/dev/null 2>&1
	texts "$core" || echo nothing
}

"${prefix[@]}" "$built/conformance" "${options[@]}" >"$output"
if [ -n "$only_cases" ]; then
	cp "$output" "$target"
	exit
fi

in_place in_user_namespace unshare --user --map-root-user --mount --pid --fork "${prefix[@]}"
in_place unsharing "${prefix[@]}" unshare --user --map-root-user --mount --pid --fork --mount-proc
in_place in_chroot "${prefix[@]}" chroot /
in_place no_new_privileges setpriv --no-new-privs "${prefix[@]}"
in_place fixed_layout setarch --addr-no-randomize "${prefix[@]}"
in_place legacy_layout setarch --addr-compat-layout "${prefix[@]}"
in_place unlimited_stack prlimit --stack=unlimited "${prefix[@]}"
in_place small_stack prlimit --stack=262144 "${prefix[@]}"
observe program_of_32_bits runs "${prefix[@]}" "$built/program32"
for kind in static static-pie pie no-pie; do
	observe brk "begins_in_${kind/-/_}" "${prefix[@]}" "$built/break_$kind"
	observe brk "begins_in_${kind/-/_}_fixed" "${prefix[@]}" setarch --addr-no-randomize "$built/break_$kind"
done
observe core_dump gdb_reads_it core_dump
observe core_dump gdb_writes_it debugger_core 0x33
observe core_dump gdb_writes_private_memory debugger_core 0x1
observe core_dump gdb_writes_none debugger_core 0x0
cp "$output" "$target"
