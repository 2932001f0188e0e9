# shellcheck shell=bash
# Packages of Debian's archive that are not installed on this machine: source it after
# common.sh. It sets APT_DIR, which the sourcing script has named, apart from the
# machine's own package lists; those are neither used nor changed.

MIRROR=http://deb.debian.org
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# apt get|cache ...; what is installed plays no part unless APT_STATUS says where it stands.
apt() {
	local tool=$1
	shift
	"apt-$tool" -o Dir::Etc::sourcelist="$APT_DIR/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State="$APT_DIR" -o Dir::State::status="${APT_STATUS:-/dev/null}" -o Dir::Cache="$APT_DIR/cache" \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Languages=none \
		-o APT::Sandbox::User=root "$@"
}

# fetch_lists "ARCHIVE SUITE"...: of packages, of sources with APT_TYPE=deb-src; refreshed at most once a day; true if they were.
fetch_lists() {
	[ -z "$(find "$APT_DIR/fresh" -mtime -1 2>/dev/null)" ] || return 1
	mkdir -p "$APT_DIR/lists/partial" "$APT_DIR/cache/archives/partial"
	local suite
	for suite in "$@"; do
		echo "${APT_TYPE:-deb} [signed-by=$KEYRING] $MIRROR/${suite% *} ${suite#* } main"
	done >"$APT_DIR/sources.list"
	apt get -q update >"$APT_DIR/log" 2>&1 || die "Debian's package lists cannot be fetched; see $APT_DIR/log"
	touch "$APT_DIR/fresh"
}
