# shellcheck shell=bash
# Shared by the scripts of this directory: source it, do not run it.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# The kernel series every change is tested on, oldest first, with the Debian
# package that always depends on the newest image of that series.
SERIES=("6.1 linux-image-amd64" "6.12 linux-image-6.12-amd64")

# Whether programs that only the longer runs use are wanted: make check has none of them,
# unless it runs what belongs to a change, of whatever tier.
longer() {
	[ "${HPMMAP_TIER:-check}" != check ] || [ -n "${HPMMAP_CHANGED:-}" ]
}

# True if Debian's package name is installed.
installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installed kernel versions of the series $1 that can be booted and built
# against, newest first. Not the flavours, which the tests do not take for the series.
kernels_installed() {
	local dir
	for dir in /lib/modules/"$1".*/build; do
		dir=${dir%/build}
		dir=${dir##*/}
		case $dir in
		*-rt-* | *-cloud-*) continue ;;
		esac
		if [ -e "/lib/modules/$dir/build/Makefile" ] && [ -r "/boot/vmlinuz-$dir" ]; then
			echo "$dir"
		fi
	done | sort -rV
}
