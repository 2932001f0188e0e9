#!/bin/bash
# Shell scripts with hundreds of children, and make with many small jobs; six times as
# many in the longer runs.
# machine: apps
# pool: 1G
# timeout: 600
# scales: yes
# tier: all  app_stress starts processes, too, and mpi and pipeline run shells
# paths: tests/vm/programs/apps/children.sh kernel/task/ kernel/as/life/share.* kernel/as/life/snapshot.* tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

times=$SCALE
! longer || times=$((6 * SCALE))
# About two children a round.
while read -r shell rounds; do
	same "$shell" "$shell" "$APPS/children.sh" "$rounds" /bin/true
	took true $((rounds * 2)) $((rounds / 2))
	cat "$WORK/$shell"
done <<LIST
bash $((60 * times))
dash $((90 * times))
LIST

jobs=$((25 * times))
{
	echo "all: \$(shell seq -f job%05.0f $jobs)"
	printf 'job%%:\n\t@echo $@ >$@\n'
	printf 'check: all\n\t@cat job* | sha256sum; ls | wc -l\n'
} >"$WORK/Makefile"
same make make --jobs=4 --file "$WORK/Makefile" check
took make 8
took sh 25 $jobs
cat "$WORK/make"
