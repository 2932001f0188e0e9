#!/bin/bash
# strace follows a job's processes and sees the same calls with the same results.
# machine: apps
# pool: 1G
# timeout: 120
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/debuggee.c tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

cat >"$WORK/script" <<'SCRIPT'
"$1"
text=$(echo substituted)
(echo "$text"; exit 3)
"$2"/registered >/dev/null
cat /proc/sys/kernel/ostype
SCRIPT
# The calls of each process in order, without addresses and numbers of processes.
cat >"$WORK/traced" <<'TRACED'
strace -ff -qq -e trace=memory,execve,fork,vfork,clone,clone3,exit_group -e signal=none -o trace "$@"
for file in $(ls trace.* | sort -t . -k 2n); do
	echo "process:"
	sed -E 's/0x[0-9a-f]{6,}/ADDRESS/g; s/=\[[0-9]+/=[N/; s/^((v?fork|clone3?)\(.*\) += )[0-9]+/\1N/' $file
done
TRACED
same strace sh "$WORK/traced" sh "$WORK/script" "$BUILT/debuggee" "$HPMMAP_ROOT/build/tests-vm"
took strace 8
took debuggee 16
took registered 4
cat "$WORK/strace"
