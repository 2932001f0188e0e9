#!/bin/bash
# QEMU with its RAM in the pools, killed in any phase of its life, as a daemon or not; beside others who take all that is
# free, and a pool that is removed. A machine that does not fit, in the pools or the mount, ends at its start; none ever
# gets SIGBUS; each block comes back. Its firmware writes to all of its memory. HPMMAP_TEST_SCALE=5: 50 rounds.
# machine: partition
# pool: 512M
# timeout: 400
# takes: 80
# scales: yes
# tier: all  shared_qemu asks the same of one that is not killed
# paths: kernel/fs/ tests/vm/guest/inner.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup firmware
DIR=/tmp/vm-kills
OTHERS=/tmp/vm-others
inner_ram $DIR size=256M
mkdir -p $OTHERS
mount -t hpmmap none $OTHERS
INNER_MOUNTS+=("$OTHERS")

# vm MB OPTION...: its file has no name.
vm() {
	local size=$1M
	shift
	inner_start k -smp 2 -m "$size" -machine memory-backend=ram \
		-object "memory-backend-file,id=ram,mem-path=$DIR,size=$size,share=on" "$@"
	qemu=$!
}
filled() {
	grep -q 'wrong' $INNER/k/console
}
started() {
	[ -s $INNER/k/pid ]
}
# others MB: somebody else has this much.
others() {
	truncate -s "$1M" $OTHERS/file
}
refused() {
	local status=0
	wait $qemu || status=$?
	cat $INNER/k/log
	[ $status = 1 ] && grep -q 'unable to map backing store for guest RAM: Cannot allocate memory' $INNER/k/log ||
		fail "$1: QEMU ends with status $status"
}
killed() {
	inner_lives k || fail "QEMU has ended: $(cat $INNER/k/log $INNER/k/console)"
	inner_kill k
}

for ((round = 0; round < 10 * ${HPMMAP_TEST_SCALE:-1}; round++)); do
	daemon=()
	[ $((RANDOM % 2)) = 0 ] || daemon=(-daemonize)
	case $((round % 5)) in
	0 | 1)
		what="at any moment"
		vm 192 "${daemon[@]}"
		sleep $((RANDOM % 5)).$((RANDOM % 10))
		killed
		;;
	2)
		what="others take all that is free"
		vm 192 "${daemon[@]}"
		within 60 started || inner_lost k "it does not start"
		others 320
		[ "$(pool_bytes free_bytes)" = 0 ] || fail "$(pool_bytes free_bytes) bytes are free"
		within 120 filled || inner_lost k "its firmware does not end"
		grep -q ', wrong 00000000' $INNER/k/console || fail "its memory is not what it wrote: $(cat $INNER/k/console)"
		killed
		;;
	3)
		what="no room"
		others 384
		vm 192
		refused "pools that are full"
		others 0
		vm 288
		refused "a mount with too little"
		;;
	4)
		what="the pool is removed"
		vm 192 "${daemon[@]}"
		within 60 started || inner_lost k "it does not start"
		hpmmap pool remove --all >/tmp/removed 2>&1 || true
		[ "$(pool_bytes total_bytes)" -ge $((192 * MIB)) ] || fail "memory of the machine was taken: $(cat /tmp/removed)"
		killed
		;;
	esac
	rm -f $OTHERS/file
	within 10 pool_is_free || fail "$what: $(pool_bytes free_bytes) of $(pool_bytes total_bytes) bytes are free"
	echo "round $round, $what ${daemon[*]}: all $(($(pool_bytes total_bytes) / MIB)) MB are back"
	set_pool 512M
done
umount $DIR $OTHERS
rmdir $DIR $OTHERS
