#!/bin/bash
# The memory of a partition: nobody else can have it, its programs get no more, and each rank has its share.
# machine: partition
# pool: 512M
# takes: 40
# timeout: 240
# tier: newest  accounts are the same on every kernel
# paths: crates/hpmmap/src/verbs/partition.rs crates/hpmmap/src/partition/enter.rs
. "$(dirname "$0")/../guest/lib.sh"

hpmmap pool limit --help | grep -e '--min' >/dev/null || skip "this version promises no memory"
guest=$HPMMAP_ROOT/tests/vm/guest
export PYTHONDONTWRITEBYTECODE=1
python3 "$guest/host_state.py" /tmp/before

# has MB COMMAND...: whether a program that the command starts gets this much of the pools.
has() {
	local mb=$1
	shift
	"$@" python3 -c 'import mmap, sys; mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)' "$mb" 2>/dev/null
}
everywhere=(hpmmap run --strict --)
there=(hpmmap run --strict --partition memory --)
rank=(hpmmap run --strict --partition memory --per-core --)

hpmmap partition create memory --cpus 2-3 --memory 256M --node 0
hpmmap partition show memory --json | python3 -c '
import json, sys
shown = json.load(sys.stdin)
assert shown["memory_bytes"] == 256 << 20 and shown["node"] == 0 and shown["held_bytes"] == 0, shown'
python3 "$guest/host_state.py" /tmp/with
expect_error 1 'pool limit .* failed: ' hpmmap partition create more --cpus 1 --memory 384M
left=$(python3 "$guest/host_state.py" /tmp/after /tmp/with || true)
[ "$left" = $'record .host\nrecord memory' ] || fail "a partition without its memory leaves: $left"
has 200 "${everywhere[@]}" || fail "outside 200M of 512M cannot be had, with 256M promised"
has 300 "${everywhere[@]}" && fail "outside 300M of 512M can be had, with 256M promised"
has 200 "${there[@]}" || fail "in the partition 200M of 256M cannot be had"
has 300 "${there[@]}" && fail "in the partition 300M can be had, with 256M promised"
export OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
has 100 "${rank[@]}" || fail "a rank cannot have 100M of its 128M"
has 160 "${rank[@]}" && fail "a rank can have 160M of its 128M"
unset OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
# Ranks have no more together than the partition, and those that have ended keep nothing from a launch of another number.
of_two=(env OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2)
alone=(env OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1)
"${of_two[@]}" "${rank[@]}" sleep 1000 & other=$!
runs() { grep -q . /sys/fs/cgroup/hpmmap_memory/rank_1/cgroup.procs; }
within 20 runs || fail "the rank does not come"
expect_error 125 'rank 0 of 1 cannot have 256M of NUMA node 0' "${alone[@]}" "${rank[@]}" true
kill $other
wait $other || true
has 200 "${alone[@]}" "${rank[@]}" || fail "one rank alone cannot have 200M of 256M"
[ ! -e /sys/fs/cgroup/hpmmap_memory/rank_1 ] || fail "the cgroup of a rank that has ended is left"
[ "$(stat -c %a /run/hpmmap/partitions/.lock /run/hpmmap/partitions/.enter | xargs)" = '600 600' ] || fail "others can take the locks"
hpmmap partition delete memory

# Two that take at the same time, 2 MB by 2 MB, beside a program outside: each gets all that it was promised, and no more.
hpmmap partition create one --cpus 1 --memory 192M >/dev/null
hpmmap partition create two --cpus 2-3 --memory 256M >/dev/null
takes='
import mmap, os, sys, time
held, new = [], sys.argv[1] + ".new"
open(new, "w").close()
try:
    while True:
        held.append(mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
except (OSError, MemoryError):
    pass
os.rename(new, sys.argv[1])
time.sleep(1000)'
declare -A takers
for name in one two outside; do
	rm -f /tmp/took-$name
	[ $name = outside ] && into=() || into=(--partition "$name")
	hpmmap run --strict "${into[@]}" -- python3 -c "$takes" /tmp/took-$name 2>/dev/null &
	takers[$name]=$!
done
all_took() { [ -e /tmp/took-one ] && [ -e /tmp/took-two ] && [ -e /tmp/took-outside ]; }
within 60 all_took || fail "two partitions do not come to an end"
[ "$(pool_bytes free_bytes)" = 0 ] || fail "$(pool_bytes free_bytes) bytes are free"
hpmmap pool limit --list --json | python3 -c '
import json, sys
print(held := {one["name"]: (one["promised_bytes"] >> 20, one["held_bytes"] >> 20) for one in json.load(sys.stdin)["promises"]})
assert held == {"/hpmmap_one": (192, 192), "/hpmmap_two": (256, 256)}, held' || fail "a partition does not hold what it was promised"
kill "${takers[outside]}"
for name in one two; do hpmmap partition delete $name --kill; done
for name in one two outside; do wait "${takers[$name]}" || true; done
rm /tmp/took-*
hpmmap partition create more --cpus 1 --memory 384M >/dev/null
hpmmap partition delete more
python3 "$guest/host_state.py" /tmp/after /tmp/before || fail "not everything is as before"
expect_pool_free
