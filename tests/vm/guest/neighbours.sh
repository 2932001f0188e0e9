# shellcheck shell=bash
# Processes that compile, fork, write to a disk and compute, on every CPU that no partition has. After lib.sh:
# start_neighbours, stop_neighbours.

NEIGHBOURS=/tmp/neighbours
neighbours=()
start_neighbours() {
	mkdir -p $NEIGHBOURS "$HPMMAP_ROOT/build/vm"
	echo 'int f(int x) { return x * x + 1; }' >$NEIGHBOURS/n.c
	setsid bash -c "while :; do gcc -O2 -c -o $NEIGHBOURS/n.o $NEIGHBOURS/n.c; done" &
	neighbours+=($!)
	setsid bash -c 'while :; do (:); done' &
	neighbours+=($!)
	setsid bash -c "while :; do dd if=/dev/zero of=$HPMMAP_ROOT/build/vm/noise-flood bs=64K count=16 conv=fsync status=none; done" &
	neighbours+=($!)
	# With two that compute they are more than the CPUs.
	for _ in 1 2; do
		setsid bash -c 'while :; do :; done' &
		neighbours+=($!)
	done
}
stop_neighbours() {
	local pid
	for pid in "${neighbours[@]}"; do
		kill -9 -- -"$pid" 2>/dev/null || continue
		wait "$pid" 2>/dev/null || true
	done
	neighbours=()
	rm -f "$HPMMAP_ROOT/build/vm/noise-flood"
}
