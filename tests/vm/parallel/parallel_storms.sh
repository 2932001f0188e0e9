#!/bin/bash
# Launches of four users start and are killed at random, while pools and hooks come and go,
# and other processes read all files about them.
# machine: parallel
# pool: 256M
# timeout: 360
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

# The fuzzers lock as much as they like.
ulimit -l unlimited

fuzzers=$HPMMAP_ROOT/build/tests-fuzz
dir=/tmp/storms
rm -rf $dir
install -d -m 1777 $dir
options=('' --image '--placement first-touch' '--page-size 1G' '--placement interleave' --strict '--strict --image' '')
work='for n in 1 2 3; do (exec /bin/true) & perl -e "\$x = q(x) x 4000000; fork; fork" & done; wait'

# start USER NUMBER: one job, which may be killed at any moment. One that was let
# live and could fall back to ordinary memory must find no error.
start() {
	local option=${options[$((RANDOM % ${#options[@]}))]} status=0 pid command
	case $((RANDOM % 4)) in
	0) command=("$fuzzers/space" --scarce --seed "$2" --ops $((20 + RANDOM % 60)) --threads $((1 + RANDOM % 3))) ;;
	1) command=("$fuzzers/stale" --scarce --seed "$2" --ops 300) ;;
	2) command=(sh -c "$work") ;;
	3) command=("$HPMMAP_ROOT/build/tests-vm/registered") ;;
	esac
	# shellcheck disable=SC2086 # several words
	MEMBER_ID=$1 as_member setsid hpmmap run $option -- "${command[@]}" >"$dir/out.$1" 2>&1 </dev/null &
	pid=$!
	if [ $((RANDOM % 2)) = 0 ]; then
		sleep 0.$((RANDOM % 10))
		kill -KILL -- -$pid 2>/dev/null || kill -KILL $pid 2>/dev/null || true
		wait $pid 2>/dev/null || true
		pkill -KILL -u "$1" || true
		return 0
	fi
	wait $pid 2>/dev/null || status=$?
	echo "$option ${command[*]}" >>"$dir/done.$1"
	case "$status$option" in
	0* | 125* | *--strict*) ;;
	*)
		tail -n 20 "$dir/out.$1"
		echo "status $status: hpmmap run $option -- ${command[*]}" >>$dir/failed
		;;
	esac
}

# A user's jobs, one after another; none while there is the file "pause".
user() {
	local number=$seed
	RANDOM=$((seed + $1))
	until is_over; do
		if [ -e $dir/pause ]; then
			touch "$dir/paused.$1"
			sleep 0.2
			continue
		fi
		rm -f "$dir/paused.$1"
		start "$1" $((number += 1))
	done
}

pools() {
	RANDOM=$((seed + 1))
	until is_over; do
		hpmmap pool add --node 0 --size $((128 * (1 + RANDOM % 4)))M --leave 256M || true
		sleep 0.$((RANDOM % 10))
		hpmmap pool remove --node 0 --size $((128 * (1 + RANDOM % 2)))M || true
		[ $((RANDOM % 4)) != 0 ] || hpmmap pool remove --all || true
	done
}

read_all() {
	until is_over; do
		find $SYSFS -type f -exec cat {} + || true
		hpmmap status || true
		hpmmap status --prometheus || true
		hpmmap pool list --verbose || true
	done
}

echo "seed $seed"
started=()
for id in 3001 3002 3003 3004; do
	user $id &
	started+=($!)
done
pools >$dir/pools 2>&1 &
started+=($!)
read_all >/dev/null 2>&1 &
started+=($!)

# Now and then no process is registered for so long that the hooks are removed.
no_hooks() { [ "$(cat $SYSFS/hooks_active)" = 0 ]; }
out=0
until is_over; do
	sleep 12
	touch $dir/pause
	if within 60 no_hooks; then out=$((out + 1)); fi
	rm -f $dir/pause
done
for pid in "${started[@]}"; do
	wait "$pid" || true
done
[ ! -e $dir/failed ] || { cat $dir/failed; fail "$(wc -l <$dir/failed) jobs found something wrong"; }
[ -s $dir/done.3001 ] || fail "no job has come to its end"
[ $out -gt 0 ] || fail "the hooks have never been removed"
expect_pool_free
hpmmap pool remove --all || true
[ "$(pool_bytes total_bytes)" = 0 ] || fail "the pools cannot be removed"
echo "$(cat $dir/done.* | wc -l) jobs came to their end; the hooks were removed $out times"
