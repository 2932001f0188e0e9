#!/bin/bash
# Children and the programs that they execute are registered; with --no-inherit those programs are not.
# pool: 256M
# paths: kernel/task/ tests/vm/programs/registered.c
. "$(dirname "$0")/../guest/lib.sh"

registered=$HPMMAP_ROOT/build/tests-vm/registered

# A shell with work to do after it stays the parent of what it starts.
tree="$registered; sh -c '$registered; :'; $registered | cat; :"

[ "$(hpmmap run -- $registered)" = registered ] || fail "the job itself is not registered"
got=$(hpmmap run -- bash -c "$tree" | sort | uniq -c | xargs)
[ "$got" = '3 registered' ] || fail "of three children: $got"
got=$(hpmmap run --no-inherit -- bash -c "$tree" | sort | uniq -c | xargs)
[ "$got" = '3 native' ] || fail "of three children with --no-inherit: $got"

# The job's own exec keeps it, with --no-inherit too.
got=$(hpmmap run --no-inherit -- bash -c "exec $registered")
[ "$got" = registered ] || fail "after its own exec the job is $got"

# All are of one job.
hpmmap run -- bash -c 'sleep 1000 & sleep 1000 & wait' &
job=$!
three() { [ "$(contexts)" = 3 ]; }
within 10 three || fail "there are $(contexts) contexts, not 3"
[ "$(contexts job | sort -u | wc -l)" = 1 ] || fail "the contexts are of several jobs"
pkill -TERM -P $job
wait $job || true

# Who was not started by hpmmap is not registered.
[ "$($registered)" = native ] || fail "an ordinary process is registered"
