#!/bin/bash
# Two and a half minutes of random ioctls.
# pool: 512M
# timeout: 300
. "$(dirname "$0")/../guest/lib.sh"

seed=$HPMMAP_SEED
fuzzers=$HPMMAP_ROOT/build/tests-fuzz
end=$((SECONDS + 150))
while [ $SECONDS -lt $end ]; do
	echo "seed $seed"
	"$fuzzers/ioctls" --seed "$seed" --ops 1500
	as_member "$fuzzers/ioctls" --seed "$seed" --ops 500
	seed=$((seed + 1))
done
