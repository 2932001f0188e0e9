#!/bin/bash
# PostgreSQL, in an empty directory, as an ordinary user:
#
#   postgres.sh make DATA                              a cluster without databases of its own
#   postgres.sh run DATA MAIN-MEMORY DYNAMIC SCALE     a copy of it: clients that change tables, parallel queries
#
# The last two are values of shared_memory_type and dynamic_shared_memory_type.
set -euo pipefail

PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
# Not the user's.
export PGHOST=$PWD PGUSER=postgres PGDATABASE=bench HOME=$PWD

make_cluster() {
	initdb -D "$1" -U postgres -A trust --no-sync --locale=C --encoding=UTF8 --wal-segsize=1 >log
	echo made
}

run_cluster() {
	local server
	cp -a "$1" data
	postgres -D data -k "$PWD" -c listen_addresses= -c shared_buffers=16MB -c huge_pages=off -c fsync=off -c autovacuum=off \
		-c "shared_memory_type=$2" -c "dynamic_shared_memory_type=$3" -c max_wal_size=32MB >log 2>&1 &
	server=$!
	until pg_isready -q; do
		kill -0 $server || { cat log; exit 1; }
		sleep 0.2
	done
	createdb bench
	pgbench -q -i -s "$4" 2>/dev/null >init
	pgbench -n -c 4 -t $((40 * $4)) --random-seed=20 >bench 2>&1 || { cat bench; exit 1; }
	psql -X -q -A -t -v ON_ERROR_STOP=1 -f "${BASH_SOURCE[0]%.sh}.sql"
	pg_ctl -D data -m fast stop >stop
	wait $server
}

case $1 in
make) make_cluster "$2" ;;
run) run_cluster "${@:2}" ;;
esac
