#!/bin/bash
# MPI between two virtual machines on pool memory, with a rank in each: messages, collectives and a heat equation over the
# machines' network give what two ranks of the host compute.
# machine: vm-devices
# pool: 1792M
# takes: 800
# timeout: 2400
# tier: all  an emulated machine in an emulated machine is slow
# paths: kernel/fs/ tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init tests/vm/programs/apps/mpi.c
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

command -v mpiexec.mpich >/dev/null || skip "there is no mpiexec.mpich"
inner_setup
DIR=/tmp/vm-ranks
program=$HPMMAP_ROOT/build/tests-vm/apps/mpi.mpich
inner_ram $DIR/ram
hpmmap pool limit --default --size 100% >/dev/null

mpiexec.mpich -n 2 "$program" >$DIR/host
cat $DIR/host

# Without KVM: of two kernels at once on the emulated SVM one gets an interrupt where it has them off, and panics or hangs,
# also with ordinary memory (QEMU 7.2 and 10.0).
INNER_MACHINE=("${INNER_MACHINE[@]/accel=kvm/accel=tcg}")
INNER_MACHINE=("${INNER_MACHINE[@]/#host/max}")
INNER_OUTER=yes
# start NAME OTHER NUMBER: a machine whose network card is connected to the other's.
start() {
	inner_start "$1" -m 768M -machine memory-backend=ram \
		-object memory-backend-file,id=ram,size=768M,mem-path=$DIR/ram,share=on,prealloc=on \
		-netdev dgram,id=net,local.type=unix,local.path=$DIR/"$1".net,remote.type=unix,remote.path=$DIR/"$2".net \
		-device virtio-net-pci,netdev=net,mac=52:54:00:00:00:0"$3",romfile=
}
for n in 1 2; do
	start n$n n$((3 - n)) $n
	inner_up n$n
	# What its kernel says of the emulated CPU, at its boot, is not looked at.
	inner n$n "dmesg -c >/dev/null
		hostname n$n
		printf '%s\n' '127.0.0.1 localhost' '10.0.0.1 n1' '10.0.0.2 n2' >/tmp/hosts
		mount -o bind /tmp/hosts /outer/etc/hosts
		mkdir -p /dev/shm
		ip link set lo up
		ip address add 10.0.0.$n/24 dev eth0
		ip link set eth0 up"
done
inner n1 'ping -c 2 -w 600 10.0.0.2' || fail "the machines do not reach each other"

# Hydra tells which proxies to start where, and the serial lines are the way to start them.
inner_bash n1 "UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 setsid bash -c \"
	mpiexec.mpich -launcher manual -hosts n1,n2 -n 2 $program
	echo ended \\\$?\" >out 2>&1 </dev/null &
	until grep LAUNCH_END out; do sleep 0.2; done; cat out" >$DIR/launch
for n in 2 1; do
	proxy=$(sed -n "s/^HYDRA_LAUNCH: \(.*--proxy-id $((n - 1))\) *$/\1/p" $DIR/launch | head -n 1)
	[ -n "$proxy" ] || fail "mpiexec says: $(cat $DIR/launch)"
	inner_bash n$n "setsid $proxy </dev/null >/dev/null 2>&1 &"
done
inner_bash n1 "until grep ^ended out >/dev/null; do sleep 1; done; cat out" >$DIR/inside
grep -x "ended 0" $DIR/inside || fail "$(cat $DIR/inside)"
grep -vE '^(HYDRA_LAUNCH|ended)' $DIR/inside | diff $DIR/host - || fail "results differ from the host's (<)"

for n in 1 2; do
	inner n$n "dmesg -r | grep '^<[0-4]>'; cat /proc/net/dev" >$DIR/dmesg || true
	cat $DIR/dmesg
	! grep -E "BUG|WARNING|Oops" $DIR/dmesg || fail "the machine's kernel log has reports"
	inner_off n$n
done
umount $DIR/ram
expect_pool_free
