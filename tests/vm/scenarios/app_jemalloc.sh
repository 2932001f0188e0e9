#!/bin/bash
# jemalloc with HPMMAP's extent hooks: traces of malloc and free find the same contents
# as natively; the hooks keep their contract on memory that was used before.
# takes: 75
# machine: apps
# pool: 1G
# timeout: 300
# tier: newest  the calls it makes, the test programs and the conformance cases cover on every kernel
# paths: lib/ kernel/as/own/reuse.* bench/traces.c tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

traces=$HPMMAP_ROOT/build/bench/traces
run_once traces.native "$traces" --check
REGISTERED=(hpmmap run --strict --malloc jemalloc --)
same_as traces.native traces "${REGISTERED[@]}" "$traces" --check
took traces 200
cat "$WORK/traces"

# Alone it leaves jemalloc as it is.
preload=$HPMMAP_ROOT/build/lib/libhpmmap_jemalloc.so:libjemalloc.so.2
run_once hooks.native env LD_PRELOAD="$preload" "$HPMMAP_ROOT/build/unit/test_jemalloc" inactive
few=few rounds=1000 children=6
! longer || { few= rounds=3000 children=15; }
run_once hooks "${REGISTERED[@]}" "$HPMMAP_ROOT/build/unit/test_jemalloc" $few
grep -F '[       OK ] all_arenas_are_hooked' "$WORK/hooks"
# With an unlimited stack mappings may lie below the break.
run_once layout bash -c 'ulimit -s unlimited; exec "$@"' bash \
	"${REGISTERED[@]}" "$HPMMAP_ROOT/build/unit/test_jemalloc" layout
grep -F '[       OK ] what_is_free_is_given_back' "$WORK/layout"

# Real programs, threads and children.
same_as_with_malloc() {
	run_once "$1.native" "${@:2}"
	same_as "$1.native" "$1" "${REGISTERED[@]}" "${@:2}"
}
same_as_with_malloc python python3 -c '
import hashlib, random, sys, threading
def work(seed, out):
    rng = random.Random(seed)
    blocks = {}
    for i in range(int(sys.argv[1])):
        blocks[rng.randrange(60)] = bytearray(rng.randbytes(8)) * rng.randrange(1, 1 << rng.randrange(1, 18))
    out[seed] = hashlib.sha256(b"".join(bytes(blocks[k]) for k in sorted(blocks))).hexdigest()
out = {}
threads = [threading.Thread(target=work, args=(seed, out)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for seed in sorted(out): print(seed, out[seed])
' $rounds
took python3 20
same_as_with_malloc shell sh -c 'i=0; while [ $i -lt $1 ]; do seq $i 400 | sort -rn | md5sum; i=$((i + 1)); done' sh $children
took sort $children $children
