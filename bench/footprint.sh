#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest: what programs hold of a pool, beside the anonymous memory, and the shared
# memory without a name, that they have natively. README.md describes it.
set -euo pipefail

ROOT=$HPMMAP_ROOT
APPS=$ROOT/build/bench/apps
TESTS=$ROOT/build/tests-vm
DIR=$(mktemp -d /tmp/footprint.XXXXXX)
CGROUP=/sys/fs/cgroup/footprint
# The rows to make, by the first word of their names; all if there is none.
only=$*
chmod 755 "$DIR"

hpmmap pool add --node 0 --size 1G --leave 256M >/dev/null
[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $CGROUP

# natively COMMAND...: "MEMORY OF-IT-SHARED PROCESSES THREADS", in bytes, the most there were at one moment.
natively() {
	(
		echo $BASHPID >$CGROUP/cgroup.procs
		exec "$@"
	) </dev/null >"$DIR/native.out" 2>&1 &
	python3 - $CGROUP <<-'EOF'
		import os, sys, time
		cgroup = sys.argv[1]
		with open("/proc/mounts") as mounts:
		    tmpfs = [where for _, where, kind, *_ in map(str.split, mounts) if kind in ("tmpfs", "devtmpfs")]
		def files():
		    "What lies in files of tmpfs, one mount of each."
		    of_each = {os.stat(where).st_dev: os.statvfs(where) for where in tmpfs}
		    return sum((s.f_blocks - s.f_bfree) * s.f_bsize for s in of_each.values())
		def shmem():
		    "Anonymous memory, and each page of the shared one once, that in files of tmpfs with it."
		    with open(f"{cgroup}/memory.stat") as stat:
		        values = dict(map(str.split, stat))
		    return int(values["anon"]), int(values["shmem"])
		base = files()
		most = [0, 0, 1, 1]
		while True:
		    before = files()
		    anon, shared = shmem()
		    # One that is removed meanwhile was there.
		    shared = max(shared - max(before, files()) + base, 0)
		    counts = [len(open(f"{cgroup}/cgroup.{what}").read().split()) for what in ("procs", "threads")]
		    # One that ends before it is looked at was there, too.
		    most = [max(a, b) for a, b in zip(most, (anon + shared, shared, *counts))]
		    if not counts[0]:
		        break
		    time.sleep(0.01)
		print(*most)
	EOF
	wait $! || { cat "$DIR/native.out"; exit 1; }
}

# row NAME COMMAND...
row() {
	local name=$1 native
	shift
	[[ -z $only || " $only " == *" ${name%%[ ,]*} "* ]] || return 0
	if ! command -v "$1" >/dev/null; then
		echo "$name: $1 is not installed"
		return
	fi
	mkdir -p "$DIR/work"
	cd "$DIR/work"
	native=$(natively "$@")
	hpmmap run --report "$DIR/report.json" -- "$@" </dev/null >"$DIR/pool.out" 2>&1 || { cat "$DIR/pool.out"; exit 1; }
	cd /
	rm -rf "$DIR/work"
	python3 - "$name" $native "$DIR/report.json" <<-'EOF'
		import json, sys
		name, (native, shared, procs, threads) = sys.argv[1], map(int, sys.argv[2:6])
		report = json.load(open(sys.argv[6]))
		peak = report["memory"]["peak_bytes"] / 2**20
		allowed = 1.5 * native / 2**20 + 4 * procs + 2.2 * (threads - procs)
		faults = report["faults"]["pool_memory"]["total"]
		print(f"{name:28} {native / 2**20:8.1f} {shared / 2**20:8.1f} {procs:4} {threads:4} {peak:8.0f} {allowed:8.0f} {faults:8}")
	EOF
}

cat >"$DIR/redis" <<'EOF'
redis-server --port 0 --unixsocket "$PWD/socket" --save "" --dir "$PWD" --enable-debug-command yes >log &
until redis-cli -s socket ping 2>/dev/null | grep -q PONG; do sleep 0.1; done
redis-cli -s socket debug populate 100000 key 100
redis-cli -s socket bgsave
seq -f 'set key:%g changed' 1 97 100000 | redis-cli -s socket --pipe
while redis-cli -s socket info persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.1; done
redis-cli -s socket shutdown nosave
wait
EOF
cat >"$DIR/postgres" <<'EOF'
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
initdb -D data -A trust >log
postgres -D data -k "$PWD" -c listen_addresses= -c shared_buffers=16MB 2>>log &
until pg_isready -q -h "$PWD"; do sleep 0.2; done
createdb -h "$PWD" bench
pgbench -q -i -s 2 -h "$PWD" bench
pgbench -c 4 -t 200 -h "$PWD" bench
pg_ctl -D data stop
wait
EOF
cat >"$DIR/as_postgres" <<EOF
chgrp hpmmap . && chmod 770 . && exec setpriv --reuid=postgres --regid=hpmmap --clear-groups bash $DIR/postgres
EOF

printf '%-28s %8s %8s %4s %4s %8s %8s %8s\n' program native shared proc thr pool allowed faults
row true /bin/true
row 'sleep in a shell' bash -c 'sleep 1; sleep 1; true'
row '64 idle threads' bash -c "$TESTS/small 64 & sleep 2; kill \$!; wait \$! || true"
row 'Java, G1' "$(echo /usr/lib/jvm/java-17-openjdk-*/bin/java)" -XX:+UseG1GC -Xms64m -Xmx192m -Xshare:auto -cp "$TESTS/apps" App 1
row Go "$TESTS/apps/go" 1
row Node node --expose-gc "$ROOT/tests/vm/programs/apps/app.js" 1
[ ! -x /usr/bin/redis-server ] || row 'redis, BGSAVE' bash "$DIR/redis"
[ ! -d /usr/lib/postgresql ] || row 'PostgreSQL, pgbench' bash "$DIR/as_postgres"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 TMPDIR=/tmp
row 'molecular dynamics, 2 ranks' mpirun.openmpi -n 2 "$APPS/minimd" --size 6 --iterations 21
row 'finite elements, 1 rank' mpirun.openmpi -n 1 "$APPS/minife" --size 8 --iterations 140
row 'conjugate gradients, 1 rank' mpirun.openmpi -n 1 "$APPS/minicg" --size 16 --iterations 70
hpmmap pool remove --all >/dev/null
