#!/bin/bash
# With vm.overcommit_memory=2 pool memory is in addition to what Linux commits to.
# pool: 512M
# paths: kernel/call/handle.* kernel/as/reserve.* kernel/as/commit.*
. "$(dirname "$0")/../guest/lib.sh"

whole='
import mmap, sys
try:
    held = mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError as error:
    print(error)
    sys.exit(3)
held[-1] = 1'
committed_kib() {
	awk '$1 == "Committed_AS:" { print $2 }' /proc/meminfo
}

kbytes=$(cat /proc/sys/vm/overcommit_kbytes)
ratio=$(cat /proc/sys/vm/overcommit_ratio)
restore() {
	sysctl -q vm.overcommit_memory=0
	# Each sets the other one to 0.
	[ "$kbytes" = 0 ] && sysctl -q vm.overcommit_ratio="$ratio" || sysctl -q vm.overcommit_kbytes="$kbytes"
}
trap restore EXIT
sysctl -q vm.overcommit_kbytes=$(($(committed_kib) + (200 << 10))) vm.overcommit_memory=2

expect 0 python3 -c "$whole" 50
expect 3 python3 -c "$whole" 400
before=$(committed_kib)
hpmmap run --strict -- python3 -c "$whole
held[::4096] = bytes(len(held) // 4096)
after = int(next(line for line in open('/proc/meminfo') if line.startswith('Committed_AS')).split()[1])
sys.exit(0 if after - $before < 100 << 10 else 4)" 400 || fail "400 MB of the pools: status $?"
# What the pools do not have is Linux's, if that has it.
expect 3 hpmmap run --strict -- python3 -c "$whole" 1000
expect 3 hpmmap run -- python3 -c "$whole" 1000
