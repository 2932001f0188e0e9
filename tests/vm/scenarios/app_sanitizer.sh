#!/bin/bash
# GCC's sanitizers, which reserve terabytes at addresses of their own: correct programs
# give the same results, and for wrong ones they report the same.
# takes: 25
# machine: apps
# pool: 1G
# timeout: 300
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/sanitized.c kernel/as/change/commit.* tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

filter() {
	sed -E 's/==[0-9]+==/==N==/; s/pid=[0-9]+/pid=N/; s/tid=[0-9]+/tid=N/; s/0x[0-9a-f]+/ADDRESS/g'
}
cat >"$WORK/all" <<'ALL'
for what; do
	echo "== $what"
	"${what%:*}" "${what#*:}" 2>&1
	echo "== status $?"
done
ALL
asan=$BUILT/sanitized.address
tsan=$BUILT/sanitized.thread
same asan sh "$WORK/all" "$asan":{work,overflow,freed,leak}
took sanitized.addre 100 4
cat "$WORK/asan"
for line in '== status 0' '.*ERROR: AddressSanitizer: heap-buffer-overflow .*' \
	'.*ERROR: AddressSanitizer: heap-use-after-free .*' \
	'SUMMARY: AddressSanitizer: 5242880 byte.* leaked in 1 allocation.*'; do
	grep -qxE "$line" "$WORK/asan" || fail "no line '$line'"
done
same tsan sh "$WORK/all" "$tsan":{work,race}
took sanitized.threa 100 2
cat "$WORK/tsan"
for line in '== status 0' 'WARNING: ThreadSanitizer: data race .*' 'raced 2'; do
	grep -qxE "$line" "$WORK/tsan" || fail "no line '$line'"
done
