#!/bin/bash
# Servers: PostgreSQL with its shared memory in the pools, by each way it can get some, and redis with a
# snapshot saved by a child. The same results, and no pages of 4 KB in whole blocks of shared memory.
# pool: 1G
# timeout: 600
# takes: 150
# machine: apps
# tier: all  starting the servers takes long; sem_shared_job and sem_copies ask the same of programs of our own
# paths: kernel/fs/ kernel/call/shared.c tests/vm/programs/apps/postgres.* tests/vm/programs/apps/redis.sh tests/vm/guest/apps.sh tests/vm/guest/watch.sh
. "$(dirname "$0")/../guest/apps.sh"
. "$(dirname "$0")/../guest/watch.sh"

DATA=/tmp/shared-servers
leave() {
	umount -l /dev/shm 2>/dev/null || true
	rm -rf $DATA
	trace_end
}
trap leave EXIT

redis() {
	[ -x /usr/bin/redis-check-rdb ] || fail "redis-tools is not installed: scripts/setup programs"
	same redis bash "$APPS/redis.sh" $((20000 * SCALE))
	cat "$WORK/redis"
	took redis-check-rdb 16 3
}

# It runs as its own user, who may use the pools.
postgres() {
	AS=(setpriv --reuid=postgres --regid=hpmmap --clear-groups)
	install -d -o postgres -g hpmmap $DATA
	run_once initdb "${AS[@]}" bash "$APPS/postgres.sh" make $DATA/data
	run_once postgres.native "${AS[@]}" bash "$APPS/postgres.sh" run $DATA/data mmap posix "$SCALE"
	cat "$WORK/postgres.native"

	# Its buffers are MAP_SHARED|MAP_ANONYMOUS, what parallel queries share is files in /dev/shm.
	mount -t hpmmap -o size=256M,mode=1777 none /dev/shm
	watch_start internal
	same_as postgres.native postgres-mmap "${AS[@]}" "${REGISTERED[@]}" bash "$APPS/postgres.sh" run $DATA/data mmap posix "$SCALE"
	watch_end 20
	umount /dev/shm
	took postgres 32 8

	# Segments of System V, both of them.
	watch_start internal
	same_as postgres.native postgres-sysv "${AS[@]}" "${REGISTERED[@]}" bash "$APPS/postgres.sh" run $DATA/data sysv sysv "$SCALE"
	watch_end 20
	took postgres 32 8
}

redis
expect_pool_free
if compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
	postgres
	expect_pool_free
else
	echo "PostgreSQL is not installed, and left out"
fi
