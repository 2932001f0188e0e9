#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: see README.md.
set -euo pipefail

# Microseconds of the guest: thousands of instructions.
cost_of() {
	local from=${EPOCHREALTIME/./}
	"$@" </dev/null >/dev/null
	echo $((${EPOCHREALTIME/./} - from))
}

# The least of some runs: what the kernel's caches and timers add varies.
least() {
	for _ in 1 2 3; do
		cost_of "$@"
	done | sort -n | head -n 1
}

# per_child BODY COMMAND...: a shell that does so many times what BODY says,
# more and fewer: the difference is free of start and end.
few=5
many=25
per_child() {
	local body=$1
	shift
	# shellcheck disable=SC2016
	local loop='i=0; while [ $i -lt $0 ]; do '"$body"'; i=$((i + 1)); done'
	local a b
	a=$(least "$@" -c "$loop" $few)
	b=$(least "$@" -c "$loop" $many)
	echo $(((b - a) * 1000 / (many - few)))
}

hpmmap pool add --node 0 --size 512M --leave 256M >/dev/null
# Hooks stay in place, so that no run pays for them.
hpmmap run -- sleep 100000 &
resident=$!
sleep 5

printf '%-6s %-24s %12s %12s %8s\n' shell child native registered ratio
for shell in dash bash; do
	while read -r title body; do
		native=$(per_child "$body" $shell)
		registered=$(per_child "$body" hpmmap run --strict -- $shell)
		awk -v shell=$shell -v title="$title" -v native="$native" -v registered="$registered" 'BEGIN {
			printf "%-6s %-24s %12d %12d %8.2f\n", shell, title, native, registered, registered / native
		}'
	done <<-'KINDS'
		subshell (exit 3) || :
		substitution text=$(echo text)
		program /bin/true
		pipeline echo text | cat
	KINDS
done
kill $resident
wait $resident || true
hpmmap pool remove --all >/dev/null
