# libvirt as Debian packages it, with pool memory for its huge pages: a domain is defined, started, migrated to the
# other host while it runs, and destroyed; one that does not fit does not start, and all memory comes back.
# suites: bookworm
# nodes: 2
# files: count.S

POOL_MIB=768
CONF=/etc/libvirt/qemu.conf
LOG=/var/lib/libvirt/images/vm1.log
# What the domain has said on this node.
said() { on "$1" "tail -n ${2:-1} $LOG 2>/dev/null | tr -d '\r'"; }
free() { on "$1" 'hpmmap pool list --json' | python3 -c 'import json, sys
print(sum(node["free_bytes"] for node in json.load(sys.stdin)["nodes"]) >> 20)'; }
free_is() { [ "$(free "$1")" = "$2" ]; }
counts() { [ -n "$(said "$1")" ]; }

step 'hosts'
# A guest that needs nothing else: a firmware that counts aloud.
gcc -m32 -nostdlib -static -Wl,-Ttext=0,--oformat=binary,--build-id=none -o /tmp/count.bin /srv/count.S ||
	fail 'count.S does not build'
firmware=$(gzip <"/tmp/count.bin" | base64 -w 0)
host() {
	modprobe kvm_amd || fail 'no KVM'
	hpmmap pool set --size ${POOL_MIB}M || fail "no pool"
	mkdir -p /mnt/hp && mount -t hpmmap -o pagesize=2M none /mnt/hp || fail 'no mount'
	echo 'hugetlbfs_mount = "/mnt/hp"' >>$CONF
	# A migration's destination makes no profile for a file that is there before it.
	echo 'security_driver = "none"' >>$CONF
	echo 'auth_tcp = "none"' >>/etc/libvirt/libvirtd.conf
	base64 -d <<<"$firmware" | gunzip >/var/lib/libvirt/images/count.bin
	systemctl stop libvirtd.service 'libvirtd*.socket'
	systemctl start libvirtd-tcp.socket libvirtd.service || fail 'libvirtd does not start'
}
everywhere "CONF=$CONF POOL_MIB=$POOL_MIB firmware='$firmware'; host" || fail 'no hosts'

step 'a domain'
# domain NAME MIB
domain() {
	cat <<-XML
	<domain type='kvm'>
	  <name>$1</name>
	  <memory unit='MiB'>$2</memory>
	  <memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages><access mode='shared'/></memoryBacking>
	  <vcpu>1</vcpu>
	  <os><type arch='x86_64' machine='q35'>hvm</type><loader readonly='yes' type='rom'>/var/lib/libvirt/images/count.bin</loader></os>
	  <features><acpi/></features>
	  <devices>
	    <serial type='file'><source path='/var/lib/libvirt/images/$1.log' append='on'/></serial>
	  </devices>
	</domain>
	XML
}
domain vm1 256 >/tmp/vm1.xml
domain large 1024 >/tmp/large.xml
virsh define /tmp/vm1.xml && virsh define /tmp/large.xml || fail 'libvirt does not take the domains'
virsh start vm1 || fail "vm1 does not start: $(tail -n 5 /var/log/libvirt/qemu/vm1.log)"
free_is n1 $((POOL_MIB - 256)) || fail "the pool of n1 has $(free n1) MB free"
within 600 counts n1 || fail "the guest does not count: $(tail -n 3 /var/log/libvirt/qemu/vm1.log; ps -o time,args -C qemu-system-x86 | cut -c1-60)"
pid=$(cat /run/libvirt/qemu/vm1.pid)
mapped=$(awk '/^[0-9a-f]+-/ { ours = /\/mnt\/hp\// } ours && /^FilePmdMapped:/ { n += $2 } END { print n / 1024 }' /proc/"$pid"/smaps)
[ "$mapped" = 256 ] || fail "$mapped MB are mapped by entries of 2 MB"
echo "256 MB by entries of 2 MB; the guest counts: $(said n1)"

step 'one that does not fit'
said=$(virsh start large 2>&1) && fail 'a domain of 1 GB starts'
[[ $said == *'unable to map backing store for guest RAM: Cannot allocate memory'* ]] || fail "libvirt says: $said"
free_is n1 $((POOL_MIB - 256)) || fail "the pool of n1 has $(free n1) MB free"

step 'migration'
timeout 900 virsh migrate vm1 qemu+tcp://n2/system tcp:n2 --live || fail "the migration: $(on n2 'tail -n 5 /var/log/libvirt/qemu/vm1.log')"
last=$(said n1)
virsh -c qemu+tcp://n2/system domstate vm1 | grep -qx running || fail 'vm1 does not run on n2'
within 30 free_is n1 $POOL_MIB || fail "the pool of n1 has $(free n1) MB free"
free_is n2 $((POOL_MIB - 256)) || fail "the pool of n2 has $(free n2) MB free"
goes_on() { [ "$(said n2)" -gt $((last + 1)) ] 2>/dev/null; }
within 300 goes_on || fail "on n1 it came to $last, on n2 to '$(said n2)'"
first=$(on n2 "head -n 1 $LOG" | tr -d '\r')
[ "${first:-0}" -gt $((last - 2)) ] || fail "on n1 it came to $last, and n2 began with $first"
echo "on n1 it came to $last; on n2 it goes on: $(said n2)"

step 'the end'
virsh -c qemu+tcp://n2/system destroy vm1 || fail 'it is not destroyed'
within 30 free_is n2 $POOL_MIB || fail "the pool of n2 has $(free n2) MB free"
virsh undefine vm1 && virsh undefine large || fail 'undefine'
everywhere 'umount /mnt/hp && hpmmap pool set --size 512M' || fail 'the pools stay'
