#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest: faults.sh DIR RUN... with RUN as APP:RANKS:MEMORY:ITERATIONS:MANAGER:NEIGHBOUR, such as minimd:1:32M:8:thp:build.
# Every page fault of mini-applications under thp, hugetlb or hpmmap, alone (none) or beside a build. DIR gets
# APP-RANKS-MANAGER-NEIGHBOUR.json and .csv of `hpmmap trace report`.
set -euo pipefail

dir=$1
shift
cd "$HPMMAP_ROOT"
thp=/sys/kernel/mm/transparent_hugepage
mount -t tmpfs -o size=64M none /mnt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/mnt
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

echo always >$thp/enabled
# khugepaged looks all the time: on a host it has hours for what a guest shows in seconds.
echo 20 >$thp/khugepaged/scan_sleep_millisecs
echo 20 >$thp/khugepaged/alloc_sleep_millisecs
echo 4096 >$thp/khugepaged/pages_to_scan

# Files of C that take an optimising compiler long.
for file in 1 2 3 4; do
	for function in $(seq 40); do
		echo "double work_${file}_$function(double *a, const double *b, long n) { double s = $function; for (long i = 1; i < n; i++)" \
			"{ a[i] = b[i - 1] * $function.5 + b[i] / $file.25; if (a[i] > s) s += a[i] * b[i % 7]; } return s; }"
	done >/mnt/work$file.c
done
printf 'CFLAGS := -O2\nall: work1.o work2.o work3.o work4.o\n' >/mnt/Makefile

neighbours=()
begin() {
	[ "$1" = build ] || return 0
	local free
	free=$(($(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) / 1024))
	# What remains is little more than the job takes of ordinary memory.
	setsid build/bench/fragment $((free - ${2:-0} - 160)) >/mnt/fragment 2>&1 &
	neighbours+=($!)
	until grep -q ready /mnt/fragment; do sleep 0.5; done
	setsid bash -c 'while make --silent --always-make --directory=/mnt --jobs=2 all; do :; done' >/dev/null 2>&1 &
	neighbours+=($!)
}
end() {
	local pid
	for pid in "${neighbours[@]}"; do
		# Each leads a process group.
		kill -- "-$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	neighbours=()
}
trap end EXIT

one() { # APP RANKS MEMORY ITERATIONS MANAGER NEIGHBOUR
	local app=$1 ranks=$2 memory=$3 iterations=$4 manager=$5 neighbour=$6 name=$1-$2-$5-$6 ordinary=0 job=()
	# As the seed does: the memory of the job is reserved or offline, the neighbour has the rest.
	local job_mib=$((ranks * ${memory%M} * 3 / 2 + 64))
	case $manager in
	thp) ordinary=$job_mib ;;
	hugetlb)
		echo $((job_mib / 2)) >/proc/sys/vm/nr_hugepages
		job=(env GLIBC_TUNABLES=glibc.malloc.hugetlb=2:glibc.malloc.mmap_max=0)
		;;
	hpmmap)
		hpmmap pool add --node 0 --size $(((job_mib + 127) / 128 * 128))M --leave 256M >/dev/null
		job=(hpmmap run --)
		;;
	esac
	begin "$neighbour" $ordinary
	hpmmap trace record -o /mnt/trace -- mpirun.openmpi -n "$ranks" "${job[@]}" "build/bench/apps/$app" --memory "$memory" \
		--iterations "$iterations" --started /mnt/started --json >"/mnt/$name.out"
	end
	hpmmap trace report --json /mnt/trace >"$dir/$name.json"
	hpmmap trace report --csv /mnt/trace >"$dir/$name.csv"
	cp "/mnt/$name.out" "$dir/"
	rm -f /mnt/trace /mnt/started
	[ "$manager" != hugetlb ] || echo 0 >/proc/sys/vm/nr_hugepages
	[ "$manager" != hpmmap ] || hpmmap pool remove --all >/dev/null
	echo "study: $name"
}

for run in "$@"; do
	IFS=: read -ra words <<<"$run"
	one "${words[@]}"
done
