#!/bin/bash
# With vm.overcommit_memory=2 pool memory does not count for Linux's commit limit.
# pool: 512M
# paths: kernel/call/step/handle.* kernel/as/own/reserve.* kernel/as/change/commit.* kernel/mem/block/linux_page.*
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

# A call that makes memory accessible, piece by piece, gets what the pools have. Nothing of Linux
# stands in, as Linux has not promised it.
pieces='
import ctypes, sys
MB, RW = 1 << 20, 3
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
FAILED = ctypes.c_void_p(-1).value
start = libc.mmap(None, 1000 * MB, 0, 0x22, -1, 0)
got = 0
if sys.argv[1] == "mprotect":
    while got < 1000 and libc.mprotect(start + got * MB, 50 * MB, RW) == 0:
        got += 50
else:
    start = libc.mmap(None, 50 * MB, RW, 0x22, -1, 0)
    while got < 1000 and start != FAILED:
        got += 50
        start = libc.mremap(start, got * MB, (got + 50) * MB, 1)  # MREMAP_MAYMOVE
print(got)'
for call in mprotect mremap; do
	got=$(hpmmap run -- python3 -c "$pieces" $call)
	echo "$call: $got of 1000 MB become accessible"
	[ "$got" -ge 200 ] && [ "$got" -le 512 ] || fail "with 512 MB in the pools $call makes $got MB accessible"
done
restore

# Pages of Linux that stand in are in Committed_AS as long as they are there.
before=$(committed_kib)
hpmmap run -- python3 -c "
import mmap, sys
def committed():
    return int(next(line for line in open('/proc/meminfo') if line.startswith('Committed_AS')).split()[1]) >> 10
before = committed()
held = mmap.mmap(-1, 600 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
reserved = committed()
held[::4096] = bytes(len(held) // 4096)
touched = committed()
print(f'Committed_AS: {before} MB, {reserved} with a reservation, {touched} when it is touched')
sys.exit(not(reserved - before < 20 and 60 < touched - before < 200))" || fail "Committed_AS does not have what stands in"
after=$(committed_kib)
[ $((after - before)) -lt $((30 << 10)) ] || fail "of Committed_AS $before kB have become $after"
