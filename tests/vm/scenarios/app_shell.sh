#!/bin/bash
# Shell scripts with hundreds of children, and make with many small jobs; four times as
# many in the tier all.
# machine: apps
# pool: 1G
# timeout: 600
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/children.sh kernel/task/ kernel/as/share.* kernel/as/snapshot.* tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

times=$SCALE
[ "${HPMMAP_TIER:-}" != all ] || times=$((4 * SCALE))
# About two children a round.
while read -r shell rounds; do
	same "$shell" "$shell" "$APPS/children.sh" "$rounds" /bin/true
	took true 250 $((rounds / 2))
	cat "$WORK/$shell"
done <<LIST
bash $((100 * times))
dash $((150 * times))
LIST

jobs=$((40 * times))
{
	echo "all: \$(shell seq -f job%05.0f $jobs)"
	printf 'job%%:\n\t@echo $@ >$@\n'
	printf 'check: all\n\t@cat job* | sha256sum; ls | wc -l\n'
} >"$WORK/Makefile"
same make make --jobs=4 --file "$WORK/Makefile" check
took make 8
took sh 25 $jobs
cat "$WORK/make"
