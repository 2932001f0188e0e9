#!/bin/bash
# inner_image.sh KVER DIR: what a guest inside of a guest boots from: DIR/vmlinux and DIR/initrd, with busybox,
# virtio's drivers and inner_init. The kernel is unpacked: an inner guest would take longer for that.
# Runs on the host and in a guest.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
kver=$1 out=$2
root=$here/../../../build/kernels/$kver
[ -d "$root" ] || root=
# What they need comes first.
drivers=(virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci
	virtio_balloon virtio_mem failover net_failover virtio_net hwpoison-inject netfs fscache 9pnet 9pnet_virtio 9p)

mkdir -p "$(dirname "$out")"
new=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$new"' EXIT

# The packed kernel begins somewhere in the file, with the magic of how it is packed.
unpack() {
	local at
	for at in $(LC_ALL=C grep -abo -P "$1" "$root/boot/vmlinuz-$kver" | cut -d: -f1); do
		tail -c +$((at + 1)) "$root/boot/vmlinuz-$kver" | "${@:2}" >"$new/vmlinux" 2>/dev/null || true
		[ "$(head -c 4 "$new/vmlinux" | tail -c 3)" != ELF ] || return 0
	done
	return 1
}
unpack '\xfd7zXZ\x00' xz -dcq || unpack '\x28\xb5\x2f\xfd' zstd -dcq ||
	unpack '\x1f\x8b\x08' gzip -dcq || { echo "$0: $root/boot/vmlinuz-$kver is packed in an unknown way" >&2; exit 1; }
strip "$new/vmlinux"

tree=$new/tree
mkdir -p "$tree"/{bin,dev,proc,sys,tmp,mnt,modules,outer}
cp "$(command -v busybox)" "$tree/bin/busybox"
busybox --list | grep -vx busybox | while read -r name; do ln -sf busybox "$tree/bin/$name"; done
install -m 755 "$here/inner_init" "$tree/init"
# One search for all: in a guest each takes ten seconds.
files=$(find "$root/lib/modules/$kver/kernel" -name '*.ko*')
for driver in "${drivers[@]}"; do
	# Kernels have some of them built in.
	{ grep "/$driver\.ko" <<<"$files" || true; } | while read -r file; do
		case $file in
		*.xz) xz -dc "$file" ;;
		*) cat "$file" ;;
		esac >"$tree/modules/$driver.ko"
		echo "$driver" >>"$tree/modules/order"
	done
done
(cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$new/initrd"
rm -rf "$tree" "$out"
mv "$new" "$out"
chmod 755 "$out"
