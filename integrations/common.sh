# shellcheck shell=bash
# Source this in the builds of this directory. It fetches source packages of Debian and builds
# libxpmem.

. "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
. "$ROOT/scripts/archive.sh"

APT_DIR=$BUILD/apt-sources
APT_TYPE=deb-src
MULTIARCH=/usr/lib/x86_64-linux-gnu
LIBXPMEM=$BUILD/lib/libxpmem.so.0

# source_version PACKAGE: the version of the source package of an installed package.
source_version() {
	installed "$1" || die "$1 is not installed: scripts/setup programs"
	dpkg-query -W -f '${source:Version}' "$1"
}

# fetch_source PACKAGE VERSION FOLDER TARGET: extracts a folder of the source package, if TARGET does not exist.
fetch_source() {
	local package=$1 version=$2 folder=$3 target=$4 work
	[ ! -e "$target" ] || return 0
	work=$target.new
	fetch_lists "debian bookworm" "debian-security bookworm-security" || true
	echo "fetching the source of $package $version" >&2
	rm -rf "$work" && mkdir -p "$work"
	(cd "$work" && apt get -q source --download-only "$package=$version" >"$APT_DIR/log" 2>&1) ||
		die "the source of $package cannot be fetched; see $APT_DIR/log"
	dpkg-source -x "$work"/*.dsc "$work/tree" >"$APT_DIR/log" 2>&1 ||
		die "the source of $package cannot be unpacked; see $APT_DIR/log"
	mv "$work/tree/$folder" "$target"
	rm -rf "$work"
}

build_libxpmem() {
	make --no-print-directory --silent -C "$ROOT/lib" OUT="$BUILD/lib"
}

# says OUT: prints the file of variables OUT/environment.
says() {
	echo "$1/environment has what puts it in:"
	cat "$1/environment"
}
