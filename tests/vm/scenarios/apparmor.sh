#!/bin/bash
# AppArmor: a program whose profile allows only files has all of its memory registered: shared memory
# without a name has no path that a profile could name.
# pool: 256M
# timeout: 120
# takes: 20
# paths: kernel/fs/ kernel/as/map/file.*
. "$(dirname "$0")/../guest/lib.sh"

command -v apparmor_parser >/dev/null || skip "there is no apparmor_parser: apt-get install apparmor"
mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security
[ -e /sys/kernel/security/apparmor/.load ] || skip "this kernel runs without AppArmor"

PROFILE=hpmmap-files-only
apparmor_parser --replace --skip-cache <<<"profile $PROFILE { file, }"
trap 'apparmor_parser --remove <<<"profile $PROFILE { file, }"' EXIT

cat >/tmp/confined.py <<'PYTHON'
import ctypes, mmap, os, sys

SIZE = 4 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p

def called(value, name):
    assert value not in (-1, 2**64 - 1), f"{name}: {os.strerror(ctypes.get_errno())}"
    return value

def held():
    return int(open("/sys/kernel/hpmmap/shared/held_bytes").read())

with open("/proc/self/attr/current") as label:
    assert label.read().startswith(sys.argv[1]), "not confined"
own = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
own[:] = b"a" * SIZE
before = held()
anonymous = mmap.mmap(-1, SIZE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
anonymous[:] = b"b" * SIZE
fd = os.memfd_create("confined", 0)
os.ftruncate(fd, SIZE)
assert os.pwrite(fd, b"c" * SIZE, 0) == SIZE
memfd = mmap.mmap(fd, SIZE)
assert memfd[SIZE - 1:] == b"c"
again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
assert os.pread(again, 1, 0) == b"c"
segment = called(libc.shmget(0, SIZE, 0o1600), "shmget")
address = called(libc.shmat(segment, None, 0), "shmat")
called(libc.shmctl(segment, 0, None), "shmctl")
ctypes.memset(address, 100, SIZE)
called(libc.mprotect(ctypes.c_void_p(address), SIZE, 5), "mprotect")
if os.fork() == 0:
    os._exit(anonymous[0] != ord("b"))
assert os.wait()[1] == 0
if sys.argv[2] == "registered":
    assert held() - before == 3 * SIZE, f"{held() - before} bytes are of the pools"
PYTHON

confined() { bash -c 'echo "exec $0" >/proc/self/attr/exec && exec python3 /tmp/confined.py "$0" "$1"' $PROFILE "$@"; }
confined native || fail "the profile is too narrow for the program as such"
export -f confined
export PROFILE
as_member hpmmap run --strict -- bash -c 'confined registered' || fail "registered the program does not get all of its memory"
rm /tmp/confined.py
expect_pool_free
