#!/bin/bash
# Hosts n1, n2 ... within a guest, for MPI libraries: each has a name and a network of its own, and what they
# send goes over TCP. The kernel, its module and the processes are one.
#
# Sourced, it gives hosts_make and hosts_remove. As a program: hosts.sh openmpi|mpich HOSTS OPTIONS OF MPIRUN..., on n1; HOSTS
# as n1:2,n2:2.

# hosts_make NUMBER
hosts_make() {
	local n host
	for n in $(seq 1 "$1"); do
		host=n$n
		ip netns add $host
		touch /run/uts-$host
		unshare --uts=/run/uts-$host hostname $host
		grep -q " $host\$" /etc/hosts || echo "10.7.0.$n $host" >>/etc/hosts
	done
	ip -n n1 link add bridge type bridge
	ip -n n1 link set bridge up
	ip -n n1 address add 10.7.0.1/24 dev bridge
	for n in $(seq 2 "$1"); do
		ip -n n1 link add to$n type veth peer name eth0 netns n$n
		ip -n n1 link set to$n master bridge up
		ip -n n$n address add 10.7.0.$n/24 dev eth0
		ip -n n$n link set eth0 up
	done
	for n in $(seq 1 "$1"); do
		ip -n n$n link set lo up
	done
	cat >/run/on-host <<-'END'
		#!/bin/sh
		# As ssh: [-x] HOST COMMAND...
		[ "$1" != -x ] || shift
		host=$1
		shift
		exec nsenter --net=/run/netns/$host --uts=/run/uts-$host sh -c "$*"
	END
	chmod 755 /run/on-host
}

hosts_remove() {
	local host
	for host in $(ip netns list | awk '{ print $1 }'); do
		umount "/run/uts-$host"
		rm "/run/uts-$host"
		ip netns delete "$host"
	done
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	mpi=$1 hosts=$2
	shift 2
	case $mpi in
	openmpi) set -- --host "$hosts" --mca plm_rsh_agent /run/on-host --mca btl self,vader,tcp --mca pml ob1 "$@" ;;
	mpich) set -- -hosts "$hosts" -launcher ssh -launcher-exec /run/on-host "$@" ;;
	esac
	exec nsenter --net=/run/netns/n1 --uts=/run/uts-n1 "mpirun.$mpi" "$@"
fi
