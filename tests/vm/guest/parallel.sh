# shellcheck shell=bash disable=SC2034 # the scenarios use what is set here
# Shared by the scenarios of the parallel guests: each runs for two and a half
# minutes, HPMMAP_TEST_SCALE times as long, with a seed that it prints.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# An ordinary user may have all of the pools: what happens when they are used up matters.
hpmmap pool limit --default --size 100% >/dev/null

seed=${HPMMAP_SEED:-1}
DEADLINE=$((SECONDS + 150 * ${HPMMAP_TEST_SCALE:-1}))

is_over() {
	[ $SECONDS -ge $DEADLINE ]
}
