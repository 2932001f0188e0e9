#!/bin/bash
# Shell scripts with thousands of children, and make with thousands of small jobs.
# machine: apps
# pool: 1G
# timeout: 600
# scales: yes
. "$(dirname "$0")/../guest/apps.sh"

# About two children a round.
while read -r shell rounds; do
	same "$shell" "$shell" "$APPS/children.sh" "$rounds" /bin/true
	took true 1000 $((rounds / 2))
	cat "$WORK/$shell"
done <<LIST
bash $((400 * SCALE))
dash $((600 * SCALE))
LIST

jobs=$((150 * SCALE))
{
	echo "all: \$(shell seq -f job%05.0f $jobs)"
	printf 'job%%:\n\t@echo $@ >$@\n'
	printf 'check: all\n\t@cat job* | sha256sum; ls | wc -l\n'
} >"$WORK/Makefile"
same make make --jobs=4 --file "$WORK/Makefile" check
took make 8
took sh 100 $jobs
cat "$WORK/make"
