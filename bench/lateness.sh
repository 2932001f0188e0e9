#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: see README.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=$here/../build/bench
# Else the C library writes in every child.
export GLIBC_TUNABLES=glibc.pthread.rseq=0

hpmmap pool add --node 0 --size "${1:-1G}" --leave 256M >/dev/null
# Hooks stay in place, so that no run pays for them.
hpmmap run -- sleep 100000 &
resident=$!
sleep 5

printf '%-10s %-8s %12s %12s\n' processes pinned native registered
while read -r processes pipes; do
	native=$("$out/lateness" "$out/crowd" "$processes" "$pipes")
	registered=$("$out/lateness" hpmmap run -- "$out/crowd" "$processes" "$pipes")
	printf '%-10d %-8d %12s %12s\n' "$processes" $((pipes * 16)) "$native" "$registered"
done <<-'CROWDS'
	0 0
	100 0
	10000 0
	0 2
	0 28
	10000 28
CROWDS
kill $resident
wait $resident || true
hpmmap pool remove --all >/dev/null
