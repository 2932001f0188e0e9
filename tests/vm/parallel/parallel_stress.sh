#!/bin/bash
# stress-ng's memory stressors, several of each at once and registered, while the kernel
# compacts, merges, reclaims and looks at all of it.
# machine: parallel
# pool: 1536M
# timeout: 360
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

echo 1 >/sys/kernel/mm/ksm/run
echo always >/sys/kernel/mm/transparent_hugepage/enabled
disturb() {
	local dir
	while sleep 0.3; do
		echo 1 >/proc/sys/vm/compact_memory
		echo 1 >/proc/sys/vm/drop_caches
		for dir in /proc/[0-9]*; do
			cat "$dir/smaps" "$dir/numa_maps" "$dir/maps" >/dev/null 2>&1 || true
			head -c 65536 "$dir/pagemap" >/dev/null 2>&1 || true
			echo 1 2>/dev/null >"$dir/clear_refs" || true
		done
	done
}
disturb &
disturber=$!

cd /tmp
install -d -o $USER_ID /tmp/stress
cd /tmp/stress
until is_over; do
	while read -r stressors; do
		! is_over || break
		echo "$stressors"
		# shellcheck disable=SC2086 # several words
		as_member hpmmap run -- stress-ng $stressors --timeout 12 --oomable >log 2>&1 </dev/null ||
			{ tail -n 30 log; fail "stress-ng $stressors"; }
		! grep -qE 'fail(ed|ure)? *:|corrupt|mismatch' log || { tail -n 30 log; fail "stress-ng $stressors"; }
		expect_pool_free
	done <<-'LIST'
		--fork 2 --mmap 1 --mmap-bytes 8M --vm 1 --vm-bytes 16M --verify
		--mremap 2 --mremap-bytes 8M --brk 2 --mmapfork 1
		--vfork 1 --clone 1 --pthread 2 --malloc 1 --malloc-bytes 16M --verify
		--madvise 1 --mlock 1 --munmap 1 --mprotect 1 --vm-rw 1 --vm-rw-bytes 4M
		--userfaultfd 1 --userfaultfd-bytes 4M --vm-splice 1 --vm-splice-bytes 4M --fork 1 --vm 1 --vm-bytes 16M
		--stack 1 --bigheap 1 --bigheap-growth 64K --fork 2 --brk 1
	LIST
done
kill $disturber
wait $disturber || true
echo 2 >/sys/kernel/mm/ksm/run
echo 0 >/sys/kernel/mm/ksm/run
