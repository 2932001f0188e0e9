#!/bin/bash
# Two and a half minutes of trinity's calls of its VM group, from a job of an
# ordinary user.
# pool: 512M
# timeout: 400
. "$(dirname "$0")/../guest/lib.sh"

seed=$HPMMAP_SEED
echo "seed $seed"
work=/tmp/trinity
mkdir -p $work
chown $USER_ID $work
cd $work
# A time that is up is no failure; neither is that it kills itself by a call.
status=0
as_member timeout --signal INT --kill-after 30 150 hpmmap run -- \
	trinity -q -C 4 -a 64 -g vm -s "$seed" -l off >log 2>&1 </dev/null || status=$?
case $status in
0 | 124 | 130 | 137) ;;
*)
	tail -n 20 log
	fail "trinity ended with status $status"
	;;
esac
pkill -KILL -u $USER_ID || true
grep -a 'syscalls' log | tail -n 1
expect_pool_free
