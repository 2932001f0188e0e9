#!/bin/bash
# Four ranks of a partition on two NUMA nodes (--per-core): each page that a rank has of the pools is of its share, next to
# its CPU. A rank that takes more gets ENOMEM or ordinary memory, and the others keep theirs.
# machine: ranks
# pool: 0
# takes: 120
# timeout: 400
# tier: newest  partition shows what differs by kernel
# paths: crates/hpmmap/src/verbs/partition.rs crates/hpmmap/src/partition/enter.rs kernel/mem/block/promise.*
. "$(dirname "$0")/../guest/lib.sh"

for node in 0 1; do
	hpmmap pool add --node $node --size 256M --leave 256M >/dev/null || fail "no pool on NUMA node $node"
done
hpmmap pool limit --default --size none >/dev/null
declare -A ranks
rank() { # NUMBER RUN-OPTION... : it is done when the file is there
	local number=$1
	shift
	rm -f /tmp/rank$number.*
	OMPI_COMM_WORLD_LOCAL_RANK=$number OMPI_COMM_WORLD_LOCAL_SIZE=4 hpmmap run "$@" --partition ranks --per-core -- \
		"$HPMMAP_ROOT/build/tests-vm/rank" /tmp/rank$number &
	ranks[$number]=$!
}
has_told() { local number; for number in "$@"; do [ -e /tmp/rank$number.told ] || return 1; done; }
is_whole() { [ "$(cat /tmp/rank$1.whole 2>/dev/null)" = whole ]; }
ends() {
	local number
	for number in "$@"; do
		touch /tmp/rank$number.again /tmp/rank$number.end
		wait "${ranks[$number]}" || fail "rank $number fails"
	done
}

# CPUs 1 and 2 are of NUMA node 0, 3 and 4 of 1.
hpmmap partition create ranks --cpus 1-4 --memory 384M >/dev/null
for number in 0 1 2 3; do rank $number --strict; done
# All the time somebody outside takes what there is.
hpmmap run -- python3 -c '
import mmap, time
held = []
while True:
    try:
        held.append(mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except OSError:
        pass
    time.sleep(0.05)
    if len(held) > 100:
        held.clear()' & outside=$!
within 120 has_told 0 1 2 3 || fail "the ranks do not come to an end"
hpmmap pool limit --list
hpmmap pool list --verbose --json >/tmp/blocks
hpmmap pool limit --list --json >/tmp/promises
python3 - <<'END' || fail 'memory of ranks'
import json
MB = 1 << 20
nodes = {one["start"] // (128 * MB): one["node"] for one in json.load(open("/tmp/blocks"))["blocks"]}
seen = {}
for rank in range(4):
    lines = [line.split() for line in open(f"/tmp/rank{rank}.told")]
    runs = [(int(line[1]), int(line[2])) for line in lines if line[0] == "run"]
    assert all(length == 2 * MB and start % length == 0 for start, length in runs), runs
    mapped = {int(line[1]) for line in lines if line[0] == "block"}
    own = {block for block in mapped if block // 64 in nodes}
    assert {start // (2 * MB) for start, _ in runs} <= own, f"rank {rank}: runs that no entry points to"
    where = {nodes[block // 64] for block in own}
    assert where == {rank // 2}, f"rank {rank} has blocks of NUMA nodes {where}"
    assert len(own) <= 48, f"rank {rank} has {len(own)} blocks, more than the 48 of its share"
    for block in own:
        assert seen.setdefault(block, rank) == rank, f"block {block:#x} is of ranks {seen[block]} and {rank}"
    print(f"rank {rank}: {len(runs)} runs, {len(own)} blocks in its page tables, all of NUMA node {rank // 2}")
held = {(one["name"], one["node"]): (one["promised_bytes"] >> 20, one["held_bytes"] >> 20)
        for one in json.load(open("/tmp/promises"))["promises"] if one["kind"] == "cgroup"}
for rank in range(4):
    assert held[f"/hpmmap_ranks/rank_{rank}", rank // 2] == (96, 96), held
END

# One more of rank 0 is refused as before; the contents of all are theirs, and a block that a rank gives back is its own.
for number in 0 1 2 3; do touch /tmp/rank$number.again; done
for number in 0 1 2 3; do within 60 is_whole $number || fail "rank $number: $(cat /tmp/rank$number.whole)"; done
ends 0 1 2 3

# Without --strict the rest is ordinary memory, and the others have their share still.
for number in 1 2 3; do rank $number --strict; done
within 120 has_told 1 2 3 || fail "the ranks do not come to an end"
OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=4 hpmmap run --report /tmp/report.json --partition ranks --per-core -- \
	python3 -c 'import mmap; held = mmap.mmap(-1, 200 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); held.write(bytes(200 << 20))'
python3 - <<'END' || fail 'the report of a rank that takes more'
import json
peak = json.load(open("/tmp/report.json"))["memory"]["peak_bytes"]
assert peak == 96 << 20, peak
END
for number in 1 2 3; do touch /tmp/rank$number.again; done
for number in 1 2 3; do within 60 is_whole $number || fail "rank $number: $(cat /tmp/rank$number.whole)"; done
ends 1 2 3
hpmmap partition delete ranks

# Without memory of its own the ranks have what the NUMA nodes have left: nothing, where others hold it.
kill $outside
wait $outside || true
hpmmap partition create ranks --cpus 1-4 >/dev/null
"${TAKE_ALL[@]}" /tmp/all & outside=$!
within 60 test -e /tmp/all || fail 'the pools are not used up'
export OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4
expect_error 125 'used up|no memory for the launch' hpmmap run --strict --partition ranks --per-core -- true
hpmmap run --partition ranks --per-core -- python3 -c 'import mmap; mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).write(b"x" * (32 << 20))' || fail 'no ordinary memory'
unset OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
kill $outside
wait $outside || true
hpmmap partition delete ranks --kill
hpmmap pool limit --default --size 50% >/dev/null
within 10 pool_is_free || fail 'memory is left'
