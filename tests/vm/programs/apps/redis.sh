#!/bin/bash
# A redis server whose child saves a snapshot while the data change: redis.sh KEYS, in an empty directory.
# Prints hashes of all data: before, after the changes, and of the snapshot. A program of Debian's
# redis-tools is the server under another name.
set -euo pipefail

keys=$1

start() {
	(exec -a redis-server /usr/bin/redis-check-rdb --port 0 --unixsocket "$PWD/socket" --save "" --appendonly no \
		--dir "$PWD" --enable-debug-command yes) >>log &
	SERVER=$!
	until redis-cli -s socket ping 2>/dev/null | grep PONG >/dev/null; do
		kill -0 $SERVER
		sleep 0.1
	done
}
stop() {
	redis-cli -s socket shutdown nosave
	wait $SERVER
}
digest() {
	redis-cli -s socket debug digest
}

start
redis-cli -s socket debug populate "$keys" key 100
seq -f "rpush list:%g $(seq -s ' ' 100)" 1 50 | redis-cli -s socket --pipe | tail -n 1
before=$(digest)
echo "before $before"
redis-cli -s socket bgsave
seq -f 'set key:%g changed' 1 7 "$keys" | redis-cli -s socket --pipe | tail -n 1
while redis-cli -s socket info persistence | grep rdb_bgsave_in_progress:1 >/dev/null; do sleep 0.1; done
redis-cli -s socket info persistence | grep -o 'rdb_last_bgsave_status:ok'
echo "after $(digest)"
stop
start
[ "$(digest)" = "$before" ] || { echo "what was saved is $(digest)"; exit 1; }
echo "saved $before"
stop
