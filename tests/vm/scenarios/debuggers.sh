#!/bin/bash
# strace and gdb see and change a job's memory.
# pool: 512M
# paths: kernel/as/change/fault.* kernel/as/life/vmops.*
. "$(dirname "$0")/../guest/lib.sh"

hpmmap run -- strace -f -o /tmp/trace sh -c 'echo traced | cat'
grep -q 'mmap(' /tmp/trace || fail "strace saw no mmap"

hpmmap run -- python3 -c '
import ctypes, mmap, os, sys, time
memory = mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[0:8] = b"original"
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open("/tmp/address.new", "w") as out:
    print(address, file=out)
os.rename("/tmp/address.new", "/tmp/address")
while memory[0:8] == b"original":
    time.sleep(0.1)
sys.exit(0 if memory[0:8] == b"replaced" else 1)
' &
job=$!
within 60 test -e /tmp/address || fail "the job does not get ready"
address=$(cat /tmp/address)
rm /tmp/address
timeout 60 gdb -nx -batch -p $job -ex "x/s (char *)$address" -ex "set {char[9]}$address = \"replaced\"" \
	-ex detach >/tmp/gdb 2>&1 || { cat /tmp/gdb; fail "gdb: status $?"; }
grep -q '"original' /tmp/gdb || { cat /tmp/gdb; fail "gdb does not see the content"; }
expect 0 wait $job

# A core dump of a job that crashes holds its memory.
echo '/tmp/core' >/proc/sys/kernel/core_pattern
ulimit -c unlimited
hpmmap run -- python3 -c '
import mmap, os
memory = mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[1 << 20:(1 << 20) + 22] = b"".join([b"HPMMAP", b"-CORE-", b"CONTENT-42"])
os.abort()' && fail "the job did not crash"
grep -q 'HPMMAP-CORE-CONTENT-42' /tmp/core* || fail "the core dump does not hold the memory"
rm -f /tmp/core*
