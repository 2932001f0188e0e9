#!/bin/bash
# Two and a half minutes of trinity's calls of its VM group, from launches of an
# ordinary user.
# pool: 512M
# timeout: 400
. "$(dirname "$0")/../guest/lib.sh"

seed=$HPMMAP_SEED
work=/tmp/trinity
mkdir -p $work
chown $USER_ID $work
cd $work
# What counts is the kernel. It may well kill itself by a call it makes; then
# the next seed goes on. That the time is up is no failure.
end=$((SECONDS + 150))
while [ $SECONDS -lt $end ]; do
	echo "seed $seed"
	status=0
	as_member timeout --signal INT --kill-after 30 $((end - SECONDS)) hpmmap run -- \
		trinity -q -C 4 -a 64 -g vm -s "$seed" -l off >log 2>&1 </dev/null || status=$?
	case $status in
	0 | 124 | 130 | 137 | 139) ;;
	*)
		tail -n 20 log
		fail "trinity ended with status $status"
		;;
	esac
	pkill -KILL -u $USER_ID || true
	grep -qa 'Added .* filenames' log || { tail -n 20 log; fail "trinity did not start"; }
	seed=$((seed + 1))
done
expect_pool_free
