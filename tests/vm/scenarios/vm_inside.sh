#!/bin/bash
# Programs in a virtual machine on pool memory compute what they compute on the host, with memory of the host and with
# pool memory of the machine: HPMMAP in a guest on HPMMAP, by entries of 2 MB in both dimensions.
# machine: vm-devices
# pool: 1536M
# takes: 400
# timeout: 1200
# tier: all  an emulated machine in an emulated machine is slow
# paths: kernel/fs/ tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init tests/vm/programs/inside.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

for program in hpcc lmp; do
	command -v $program >/dev/null || skip "there is no $program"
done
inner_setup
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
DIR=/tmp/vm-inside
KVM=/sys/kernel/debug/kvm
work=("$HPMMAP_ROOT/tests/vm/programs/inside.sh" "$HPMMAP_ROOT/build/bench/apps/minicg")
mkdir -p $DIR/work
inner_ram $DIR/ram
hpmmap pool limit --default --size 100% >/dev/null

(cd $DIR/work && bash "${work[@]}") >$DIR/host
cat $DIR/host

# More than half of its RAM is movable, so that its pools can take that.
INNER_OUTER=yes
INNER_APPEND+=" movablecore=768M oops=panic"
inner_start m -m 1280M -machine memory-backend=ram \
	-object memory-backend-file,id=ram,size=1280M,mem-path=$DIR/ram,share=on,prealloc=on
inner_up m
# What its kernel says of the emulated CPU, at its boot, is not looked at.
inner m 'dmesg -c >/dev/null; ip link set lo up; mkdir -p /dev/shm'
# same NAME COMMAND: the programs, run by it, print what they print on the host.
same() {
	inner_bash m "mkdir /tmp/$1; cd /tmp/$1; $2 bash ${work[*]}" | tee "$DIR/$1" >/dev/null
	diff $DIR/host "$DIR/$1" || fail "$1: results differ from the host's (<)"
}
same inside ""

inner_bash m "insmod $HPMMAP_MODULE; hpmmap pool add --node 0 --size 512M --up-to --leave 256M; hpmmap pool list"
same pools "hpmmap run --strict --"

# A program that has 128 MB and waits: blocks of the machine's pools, and nested entries of 2 MB for all but the holes
# of a PC's first megabytes.
inner_bash m "mkfifo /tmp/fifo; exec 3<>/tmp/fifo; hpmmap run --strict -- dd if=/dev/zero of=/tmp/fifo bs=128M count=1 2>/dev/null &
dd of=/dev/null bs=1 count=1 status=none <&3; hpmmap status --json 2>/dev/null; kill %1; wait %1 || true" >$DIR/status
python3 - $DIR/status <<'PYTHON'
import json
import sys

(dd,) = (one for one in json.load(open(sys.argv[1]))["contexts"] if one["command"] == "dd")
print("mapped by 2 MB and 4 KB:", dd["mapped_2m_bytes"], dd["mapped_4k_bytes"])
assert dd["mapped_2m_bytes"] >= 128 << 20 and dd["mapped_linux_bytes"] == 0, dd
PYTHON
echo "nested entries: $(cat $KVM/pages_2m) of 2 MB, $(cat $KVM/pages_4k) of 4 KB"
[ "$(cat $KVM/pages_4k)" -lt 1024 ] || fail "nested entries of 4 KB"
inner_bash m "hpmmap pool remove --all; for i in {1..20}; do rmmod hpmmap && break; sleep 1; done; ! grep hpmmap /proc/modules
dmesg --level emerg,alert,crit,err,warn" >$DIR/dmesg
cat $DIR/dmesg
! grep -E "BUG|WARNING|Oops" $DIR/dmesg || fail "the machine's kernel log has reports"
inner_off m
umount $DIR/ram
expect_pool_free
