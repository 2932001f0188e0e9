#!/bin/bash
# A child that has become another user has shared a block with its parent. A 32-bit call that has no
# hook maps the block again after munmap: the child never sees what the parent writes from then on.
# machine: unhooked
# pool: 256M
# timeout: 60
# takes: 10
# scales: yes
# paths: kernel/as/ kernel/call/ tests/guest/call32.h tests/vm/programs/leak.h tests/vm/programs/leak_child.c
. "$(dirname "$0")/../guest/lib.sh"

# The way in: 32-bit calls have no hook.
echo Y >/sys/module/hpmmap/parameters/skip_ia32

hpmmap run -- "$HPMMAP_ROOT/build/tests-vm/leak_child" $((8 * ${HPMMAP_TEST_SCALE:-1})) ||
	fail "the child has seen or changed its parent's memory"
expect_pool_free
