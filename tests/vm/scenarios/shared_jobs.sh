#!/bin/bash
# Shared memory without a name (mmap, memfd_create, shmget) in a launch comes from the pools. If they have too
# little it is ordinary memory, with --strict an error; with --shared linux it is always ordinary. PostgreSQL with its shared
# memory there.
# pool: 256M
# timeout: 400
# takes: 90
# tier: all  sem_shared_job asks the same of programs of our own
# paths: kernel/fs/ kernel/call/shared.* kernel/call/mmap.* crates/hpmmap/src/launch.rs
. "$(dirname "$0")/../guest/lib.sh"

all=$(pool_bytes total_bytes)
# share WAY MIB: says where so much that is shared comes from: "pools", "linux", "both", or the error.
share() {
	python3 - "$@" <<-'EOF2'
		import ctypes, ctypes.util, errno, mmap, os, sys
		way, size = sys.argv[1], int(sys.argv[2]) << 20
		libc = ctypes.CDLL(None, use_errno=True)
		libc.shmat.restype = ctypes.c_void_p
		libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
		def free():
		    return sum(int(open(f"/sys/kernel/hpmmap/nodes/{node}/free_bytes").read()) for node in os.listdir("/sys/kernel/hpmmap/nodes"))
		before = free()
		try:
		    if way == "mmap":
		        memory = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
		    elif way == "memfd":
		        fd = os.memfd_create("x")
		        os.ftruncate(fd, size)
		        memory = mmap.mmap(fd, size)
		    else:
		        segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
		        if segment < 0:
		            raise OSError(ctypes.get_errno(), "shmget")
		        at = libc.shmat(segment, None, 0)
		        libc.shmctl(segment, 0, None)
		        memory = (ctypes.c_char * size).from_address(at)
		except OSError as error:
		    print(errno.errorcode[error.errno])
		    sys.exit()
		taken = before - free()
		for at in range(0, size, 1 << 20):
		    assert memory[at : at + 8] == bytes(8)
		    memory[at : at + 8] = b"contents"
		if os.fork() == 0:
		    memory[0:5] = b"child"
		    os._exit(0)
		assert os.wait()[1] == 0 and memory[0:8] == b"childnts"
		print("pools" if taken >= size else "linux" if taken < size // 4 else "both")
	EOF2
}
# expect_share WHERE WAY MIB COMMAND...
expect_share() {
	local want=$1 way=$2 size=$3 got
	shift 3
	got=$(declare -f share >/tmp/share && echo 'share "$@"' >>/tmp/share && "$@" bash /tmp/share "$way" "$size") || fail "$* $way $size"
	[ "$got" = "$want" ] || fail "$* $way $size: $got, not $want"
}
for way in mmap memfd segment; do
	expect_share pools $way 32 hpmmap run --
	expect_share linux $way 32 hpmmap run --shared linux --
	expect_share linux $way 300 hpmmap run --
	case $way in
	memfd)
		# All but what the program itself has; and more than the pools could ever have.
		expect_share ENOSPC $way 254 hpmmap run --strict --
		expect_share linux $way 300 hpmmap run --strict --
		;;
	*) expect_share ENOMEM $way 300 hpmmap run --strict -- ;;
	esac
	expect_pool_free
	echo "$way: as asked for"
done
# It counts as falling back does.
hpmmap run --report /tmp/shared.json -- bash /tmp/share mmap 300
python3 -c '
import json
report = json.load(open("/tmp/shared.json"))
assert "300" in str(report) or any("fallback" in key for key in report), report' || fail "the report says nothing: $(cat /tmp/shared.json)"

# As a user with a limit.
hpmmap pool limit --user $USER_ID --size 48M
for way in memfd segment; do
	expect_share pools $way 16 as_member hpmmap run --
	expect_share linux $way 64 as_member hpmmap run --
done
# A memfd that is made when nothing is left is Linux's from the start, so that what is written to it finds memory;
# with --strict it stays one of the pools.
full='
import errno, os, sys
piece = bytes(1 << 20)
first = os.memfd_create("first")
second = os.dup(first)  # of two, so it does not become one of Linux
def fill():
    size = os.fstat(first).st_size
    while True:
        try:
            os.ftruncate(first, size + (2 << 20))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return
        size += 2 << 20
# What the interpreter gives back meanwhile is room again.
for _ in range(20):
    fill()
    late = os.memfd_create("late")
    kind = "pools" if os.fstat(late).st_blksize > 4096 else "linux"
    if kind == "linux":
        break
try:
    for _ in range(8):
        os.write(late, piece)
except OSError as error:
    kind += " " + errno.errorcode[error.errno]
print(kind, os.fstat(late).st_size >> 20)'
[ "$(as_member hpmmap run --report /tmp/shared-full.json -- python3 -c "$full")" = "linux 8" ] || fail "a late memfd: $(as_member hpmmap run -- python3 -c "$full")"
python3 -c '
import json
fallbacks = json.load(open("/tmp/shared-full.json"))["fallbacks"]
assert fallbacks["by_call"]["mmap"] and fallbacks["by_reason"]["limit"], fallbacks' || fail "the report does not count it"
got=$(as_member hpmmap run --strict -- python3 -c "$full")
[[ $got = "pools ENOSPC "* ]] || fail "with --strict a late memfd: $got"
hpmmap pool limit --user $USER_ID --size default

# A segment outlives its launch and stays charged to its user; a process that is not registered has it, too.
hpmmap run -- python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
segment = libc.shmget(0x5150, ctypes.c_size_t(32 << 20), 0o1600)
assert segment >= 0, ctypes.get_errno()
ctypes.memmove(libc.shmat(segment, None, 0) + (20 << 20), b"outlives", 8)'
none() { [ "$(contexts)" = 0 ]; }
within 10 none || fail "the job has not ended"
[ "$(pool_bytes free_bytes)" -le $((all - 32 * MIB)) ] || fail "the segment went with the job"
expect 1 rmmod hpmmap 2>/dev/null
python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
at = libc.shmat(libc.shmget(0x5150, 0, 0), None, 0)
assert ctypes.string_at(at + (20 << 20), 8) == b"outlives"'
ipcrm -M 0x5150
expect_pool_free

# PostgreSQL: four clients, by one kind of memory, in the longer runs by both.
if [ -d /usr/lib/postgresql ]; then
	types=(mmap)
	! longer || types+=(sysv)
	PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
	data=/tmp/shared-postgres
	install -d -o postgres -g hpmmap -m 770 $data
	as_postgres() { (cd $data && setpriv --reuid=postgres --regid=hpmmap --clear-groups "$@"); }
	as_postgres initdb -D $data/data -A trust -N >/dev/null
	hpmmap pool limit --default --size 100%
	for type in "${types[@]}"; do
		before=$(pool_bytes free_bytes)
		as_postgres hpmmap run -- postgres -D $data/data -k $data -c listen_addresses= -c shared_buffers=48MB -c fsync=off \
			-c shared_memory_type=$type >$data/log 2>&1 &
		server=$!
		within 60 as_postgres pg_isready -q -h $data || { cat $data/log; fail "PostgreSQL does not get ready with $type"; }
		[ $((before - $(pool_bytes free_bytes))) -ge $((48 * MIB)) ] || fail "$type: the buffers are not of the pools"
		as_postgres createdb -h $data bench
		as_postgres pgbench -q -i -s 1 -h $data bench >/dev/null 2>&1
		as_postgres pgbench -c 4 -t 20 -h $data bench >$data/bench 2>&1 || { cat $data/bench; fail "pgbench with $type"; }
		grep 'transactions actually processed: 80/80' $data/bench || fail "$type: $(cat $data/bench)"
		sum=$(as_postgres psql -h $data -At bench -c 'select count(*), (select sum(abalance) from pgbench_accounts) - (select sum(delta) from pgbench_history) from pgbench_history')
		[ "$sum" = '80|0' ] || fail "$type: the tables say $sum"
		as_postgres dropdb -h $data bench
		as_postgres pg_ctl -D $data/data -m fast stop >/dev/null
		wait $server || fail "PostgreSQL ends with an error: $(tail -n 3 $data/log)"
		expect_pool_free
	done
	hpmmap pool limit --default --size 50%
	rm -r $data
fi
