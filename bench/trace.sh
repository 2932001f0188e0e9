#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in the guest: trace.sh DIR. The pictures of docs/trace.md.
set -euo pipefail

dir=$1
job=(build/bench/rebuild 60 96)

cd "$HPMMAP_ROOT"
thp=/sys/kernel/mm/transparent_hugepage
echo always >$thp/enabled
echo always >$thp/defrag
# khugepaged looks all the time: on a real node it has hours for what a guest shows in seconds.
echo 20 >$thp/khugepaged/scan_sleep_millisecs
echo 20 >$thp/khugepaged/alloc_sleep_millisecs
echo 4096 >$thp/khugepaged/pages_to_scan

hpmmap pool add --node 0 --size 384M --leave 256M

neighbour_mib=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 1024 - 165))
build/bench/fragment $neighbour_mib >/tmp/neighbour &
neighbour=$!
trap 'kill $neighbour' EXIT
until grep -q ready /tmp/neighbour; do sleep 0.5; done

record() {
	local name=$1
	shift
	echo "== $name: $*"
	hpmmap trace record -o "$dir/$name.trace" -- "$@" | tee "/tmp/$name.out"
	hpmmap trace report "$dir/$name.trace" | tee "$dir/$name.txt"
	hpmmap trace plot "$dir/$name.trace" -o "$dir/$name.png" -o "$dir/$name.svg"
	hpmmap trace report "$dir/$name.trace" --after "$(sed -n 's/^start-up was over at //p' "/tmp/$name.out")" \
		>"$dir/$name-after.txt"
}

record trace-thp "${job[@]}"
record trace-hpmmap hpmmap run --strict --image -- "${job[@]}"
