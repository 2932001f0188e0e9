# A balloon by 'virsh setmem' in a domain whose RAM is pool memory, with free page reporting: what is taken of the pools
# before, while it is full, and after it. The guest is the node's own kernel; without -icount that does nothing but serve
# its timer.
# suites: bookworm
# cpus: 1
# icount: yes
# timeout: 1800
# files: init.c

IMAGES=/var/lib/libvirt/images
# By the clock of the node, which leaps ahead while it waits for its host.
LONG=600
taken() { hpmmap pool list --json | python3 -c 'import json, sys
print(sum(node["total_bytes"] - node["free_bytes"] for node in json.load(sys.stdin)["nodes"]) >> 20)'; }
takes_less() { [ "$(taken)" -le "$1" ]; }
# What the driver in the guest says, in KB: actual, the RAM without the balloon; unused, what its kernel has free.
driver() { virsh dommemstat guest | sed -n "s/^$1 //p"; }
driver_has() { [ "$(driver "$1")" = "$2" ]; }
driver_has_more() { [ "$(driver "$1")" -gt "$2" ] 2>/dev/null; }
driver_has_less() { [ "$(driver "$1")" -lt "$2" ] 2>/dev/null; }
tell() { echo "$1: $(taken) MB taken; $(virsh dommemstat guest | grep -e actual -e unused | tr '\n' ' ')"; }

step 'a kernel and its drivers'
python3 - "/boot/vmlinuz-$(uname -r)" $IMAGES/vmlinux <<'END' || fail 'the kernel is not unpacked'
import lzma, sys
with open(sys.argv[1], "rb") as file:
    packed = file.read()
kernel = lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\0"):])
assert kernel.startswith(b"\x7fELF")
with open(sys.argv[2], "wb") as file:
    file.write(kernel)
END
mkdir -p /tmp/tree/dev
mknod /tmp/tree/dev/console c 5 1
gcc -static -Os -o /tmp/tree/init /srv/init.c || fail 'init.c does not build'
number=0
while read -r file; do
	cp "$file" /tmp/tree/$((number++))
done < <(modprobe --show-depends --all virtio_pci virtio_balloon | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++')
(cd /tmp/tree && find . | cpio -o -H newc --quiet) >$IMAGES/initrd

step 'a domain'
modprobe kvm_amd || fail 'no KVM'
mkdir -p /dev/hpmmap-vm && mount -t hpmmap -o pagesize=2M hpmmap /dev/hpmmap-vm || fail 'no mount'
echo 'hugetlbfs_mount = "/dev/hpmmap-vm"' >>/etc/libvirt/qemu.conf
systemctl start libvirtd.service || fail 'libvirtd does not start'
hpmmap pool limit --user libvirt-qemu --size none || fail 'no limit'
hpmmap vm xml --memory 256M >/tmp/guest.xml || fail 'there is no domain'
options='console=ttyS0 quiet swiotlb=noforce panic=-1 nokaslr mitigations=off nowatchdog no_timer_check tsc=reliable cryptomgr.notests random.trust_cpu=on'
cat >/tmp/edit <<-END
	s|^ *<type arch=.*|&<kernel>$IMAGES/vmlinux</kernel><initrd>$IMAGES/initrd</initrd><cmdline>$options</cmdline>|
	s|^ *<devices>|&<serial type='file'><source path='$IMAGES/guest.log'/></serial>|
	s|<memballoon model='virtio'>|<memballoon model='virtio' freePageReporting='on'><stats period='5'/>|
END
virsh define /tmp/guest.xml && EDITOR='sed -i -f /tmp/edit' virsh edit guest || fail 'libvirt does not take the domain'
virsh start guest || fail "it does not start: $(tail -n 5 /var/log/libvirt/qemu/guest.log)"
[ "$(taken)" = 256 ] || fail "$(taken) MB are taken at its start"
within $LONG driver_has_more unused 0 || fail "its driver says nothing: $(cat $IMAGES/guest.log)"
within $LONG takes_less 150 || fail "free page reporting gives nothing back: $(taken) MB are taken"
reported=$(taken) unused=$(driver unused)
tell 'the guest is up'

step 'a balloon of 64 MB'
virsh setmem guest 192M --live || fail 'virsh setmem'
within $LONG driver_has actual $((192 << 10)) || fail "the balloon is not full: $(virsh dommemstat guest)"
within $LONG driver_has_less unused $((unused - (60 << 10))) || fail "the guest has as much as before: $(virsh dommemstat guest)"
tell 'full'
# A full balloon keeps its pages; it takes no more than them.
takes_less $((reported + 80)) || fail "the balloon takes more than its pages: $(taken) MB"

step 'an empty balloon'
virsh setmem guest 256M --live || fail 'virsh setmem'
within $LONG driver_has actual $((256 << 10)) || fail "the balloon is not empty: $(virsh dommemstat guest)"
within $LONG driver_has_more unused $((unused - (4 << 10))) || fail "the guest has less than before: $(virsh dommemstat guest)"
within $LONG takes_less $((reported + 16)) || fail "what the balloon had does not come back: $(taken) MB"
tell 'empty'

step 'the end'
virsh destroy guest && virsh undefine guest || fail 'it is not destroyed'
within $LONG pool_is_free || fail "$(taken) MB are still taken"
umount /dev/hpmmap-vm || fail 'the mount is in use'
