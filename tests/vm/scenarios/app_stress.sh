#!/bin/bash
# The memory stressors of stress-ng with --verify, as an ordinary user: a number of
# operations each, and none finds an error.
# takes: 45
# machine: apps
# pool: 2304M
# timeout: 600
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: kernel/as/ kernel/call/ tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

AS=(setpriv --reuid "$USER_ID" --regid "$USER_ID" --groups "$(getent group hpmmap | cut -d: -f3)")
# Some take all there is.
hpmmap pool limit --user "$USER_ID" --size 100% >/dev/null
REGISTERED=(hpmmap run --)
FALLBACKS=yes
filter() {
	grep -E 'successful|fail|error|warn|skip' | sed -E 's/\[[0-9]+\]//; s/completed in .*/completed/'
}

# Operations, stressor, its further options. An operation of vforkmany or mmapfixed
# may take for ever: they have some seconds.
stress() {
	local operations stressor options
	while read -r operations stressor options; do
		# shellcheck disable=SC2086 # several words
		same "$stressor" stress-ng "--$stressor" 1 "--$stressor-ops" $((operations * SCALE)) --verify $options
		took stress-ng 4
	done
}
stress <<'LIST'
2 mmap --mmap-bytes 1M
5 mremap --mremap-bytes 4M
1000 brk
1 madvise
5 mlock
50 vm --vm-bytes 8M
20 fork
1000000 vforkmany --timeout 2
50 mprotect
5 mmapmany
1 remap
1 vm-rw --vm-rw-bytes 2M
20 pthread
LIST
# These do less, or what others do, too.
! longer || stress <<'LIST'
500 malloc --malloc-bytes 1M
50 bigheap
1000000 mmapfixed --timeout 2
5 vm-segv
5 clone
1 mmapfork
1 stack
20 vfork
20 mincore
5 munmap
50 mmapaddr
1 memthrash
1 vm-addr
5 bad-altstack
LIST
