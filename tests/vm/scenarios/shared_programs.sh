#!/bin/bash
# Programs with their shared memory in files of hpmmapfs: Open MPI's and MPICH's segments, Python's shared
# memory, segment files like those of DPDK and QEMU. The same results, and no pages of 4 KB.
# pool: 1G
# timeout: 400
# takes: 90
# machine: apps
# tier: all  sem_shared and sem_shared_maps ask the same of programs of our own
# paths: kernel/fs/ tests/vm/programs/apps/shared.py tests/vm/programs/apps/mpi.c tests/vm/guest/apps.sh tests/vm/guest/watch.sh
. "$(dirname "$0")/../guest/apps.sh"
. "$(dirname "$0")/../guest/watch.sh"

DIR=/tmp/shared-programs
mkdir -p $DIR
mount -t hpmmap -o size=512M,mode=1777 none $DIR
leave() {
	umount -l $DIR 2>/dev/null || true
	umount -l /dev/shm 2>/dev/null || true
	trace_end
}
trap leave EXIT

# What the watcher says of a file of 6 MB, which has no name any more: of Linux's nothing, whatever the directory
# is called; of one of the pools that there are pages of 4 KB, where a process wants no others.
watched() {
	local mapped small holder
	rm -f /tmp/mapped
	python3 -c '
import ctypes, mmap, os, sys, time
if sys.argv[2] == "small":
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
with open(sys.argv[1], "w+b") as file:
    os.ftruncate(file.fileno(), 6 << 20)
    held = mmap.mmap(file.fileno(), 6 << 20)
    held[:] = bytes(6 << 20)
os.unlink(sys.argv[1])
open("/tmp/mapped", "w").close()
time.sleep(1000)' "$1" "$2" &
	holder=$!
	within 30 test -e /tmp/mapped || fail "$1 is not mapped"
	watch_start
	watch_read
	kill $holder
	wait $holder || true
	[ "$mapped $small" = "$3" ] || fail "of $1, $2: the watcher says $mapped $small, expected was $3"
}
watched /dev/shm/watched large "0 0"
watched $DIR/watched large "6144 0"
watched $DIR/watched small "6144 6144"

# Python: POSIX shared memory is files in /dev/shm.
mkdir -p /tmp/segments
run_once python.native python3 "$APPS/shared.py" "$SCALE" /tmp/segments
mount -t hpmmap -o size=256M,mode=1777 none /dev/shm
watch_start
same_as python.native python python3 "$APPS/shared.py" "$SCALE" $DIR
watch_end 4
same_as python.native python-job "${REGISTERED[@]}" python3 "$APPS/shared.py" "$SCALE" $DIR
umount /dev/shm
cat "$WORK/python"

# MPI: the segments of both libraries.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 TMPDIR=/tmp
run_once mpi.native mpirun.openmpi -n 4 "$BUILT/mpi.openmpi" "$SCALE"
watch_start
OMPI_MCA_orte_tmpdir_base=$DIR OMPI_MCA_btl_vader_backing_directory=$DIR \
	same_as mpi.native openmpi "${REGISTERED[@]}" mpirun.openmpi -n 4 "$BUILT/mpi.openmpi" "$SCALE"
watch_end 4
took mpi.openmpi 60 4
# MPICH has its own in /dev/shm.
mount -t hpmmap -o size=512M,mode=1777 none /dev/shm
watch_start
same_as mpi.native mpich "${REGISTERED[@]}" mpirun.mpich -n 4 "$BUILT/mpi.mpich" "$SCALE"
watch_end 4
took mpi.mpich 60 4
umount /dev/shm
rm -rf "${DIR:?}"/*

# SQLite: a database that grows, its log, and the index of that, which is mapped.
if [ -x /usr/bin/sqlite3 ]; then
	cat >"$WORK/tables" <<-'TABLES'
		set -e
		cd "$3"
		sqlite3 -batch table.db ".param set :scale $2" ".read $1"
		sha256sum table.db
		sqlite3 -batch table.db .dump | sha256sum
	TABLES
	mkdir /tmp/segments/tables $DIR/tables
	run_once sqlite.native sh "$WORK/tables" "$APPS/tables.sql" "$SCALE" /tmp/segments/tables
	same_as sqlite.native sqlite "${REGISTERED[@]}" sh "$WORK/tables" "$APPS/tables.sql" "$SCALE" $DIR/tables
	rm -r $DIR/tables
fi
rm -r /tmp/segments

umount $DIR
rmdir $DIR
expect_pool_free
