#!/bin/bash
# A user unmaps a block while the end of a child maps it again, in a mapping made by an unhooked 32-bit
# call. The user never sees the block again once another user has it.
# machine: unhooked
# pool: 128M
# timeout: 100
# takes: 45
# scales: yes
# paths: kernel/as/ kernel/call/ kernel/mem/ tests/guest/call32.h tests/vm/programs/leak.h tests/vm/programs/leak_unmap.c
. "$(dirname "$0")/../guest/lib.sh"

# The way in: 32-bit calls have no hook.
echo Y >/sys/module/hpmmap/parameters/skip_ia32

program=$HPMMAP_ROOT/build/tests-vm/leak_unmap board=/tmp/leak_unmap
hpmmap pool limit --default --size 100% >/dev/null
rm -f $board
truncate -s 4096 $board
chmod 666 $board
MEMBER_ID=2002 as_member hpmmap run --strict -- "$program" victim $board &
victim=$!
status=0
as_member hpmmap run -- "$program" attack $board $((30 * ${HPMMAP_TEST_SCALE:-1})) || status=$?
wait $victim || fail "another user has changed memory of the victim"
[ $status = 0 ] || fail "a user has seen memory of another, or the attacker has failed: status $status"
expect_pool_free
