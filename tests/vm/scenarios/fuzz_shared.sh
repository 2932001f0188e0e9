#!/bin/bash
# Random calls of several processes on the same files behave as the model, with room for all data and, registered,
# with less. Longer runs use other seeds, and tmpfs.
# takes: 40
# pool: 512M
# timeout: 300
# paths: kernel/fs/ kernel/mem/pool/pinned.* kernel/as/map/file.* kernel/as/map/pgmap.* tests/fuzz/common.h tests/fuzz/shared.c
. "$(dirname "$0")/../guest/lib.sh"

DIR=/tmp/fuzz-shared
mkdir -p $DIR
trap 'umount -l $DIR 2>/dev/null || true' EXIT
# Behind it a signal for each page beyond the end of a file.
sysctl -q debug.exception-trace=0

# fuzz TYPE MOUNT-OPTIONS COMMAND...
fuzz() {
	local type=$1 options=$2
	shift 2
	mount -t "$type" -o "$options" none $DIR
	"$@" $DIR || fail "$type $options: $*"
	umount $DIR || fail "$type $options: something still has it"
}
shared=$HPMMAP_ROOT/build/tests-fuzz/shared
ops=200
seeds=(1)
! longer || { ops=1000; seeds=(1 2 3 "$HPMMAP_SEED"); }
for seed in "${seeds[@]}"; do
	! longer || fuzz tmpfs size=64M "$shared" --seed "$seed" --ops $((ops / 2))
	# Touchers hold on to what is being given up.
	fuzz hpmmap size=64M "$shared" --seed "$seed" --ops $ops --touchers 2
	fuzz hpmmap size=16M,noholes hpmmap run -- "$shared" --seed $((seed + 100)) --ops $ops --room $((16 * MIB)) --touchers 1
	expect_pool_free
done
sysctl -q debug.exception-trace=1
