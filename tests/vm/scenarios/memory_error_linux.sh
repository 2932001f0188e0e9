#!/bin/bash
# A memory error in a page of Linux that stands for a few: another one takes its place, and nothing
# waits for the reference that Linux may keep: not the context, nor with it the module.
# After memory_error, which counts what is bad: Linux does not take this back.
# pool: 1G
# paths: kernel/as/failure.* kernel/mem/block.* kernel/mem/pinned.* tests/vm/programs/memory_error.c
. "$(dirname "$0")/../guest/lib.sh"

DIR=$(mktemp -d)
for how in '' 'hpmmap run --'; do
	read -ra words <<<"$how"
	"${words[@]}" "$HPMMAP_ROOT/build/tests-vm/memory_error" linux "$DIR/log" || fail "$how: see above"
done
[ "$(wc -l <"$DIR/log")" = 4 ] || fail "no errors: $(cat "$DIR/log")"
expect_pool_free
rm -r "$DIR"
