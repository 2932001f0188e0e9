# shellcheck shell=bash disable=SC2154 # fail and APPS are of apps.sh, which is sourced before
# Records the mapped shared pool memory of processes while a command runs.

# watch_start [internal]: of all mounted file systems of the pools; internal: of what registered
# processes share without a name, too. /tmp/watch-seen is there when something was seen.
watch_start() {
	rm -f /tmp/watch-end /tmp/watch-seen
	# A memfd, whose file system is there as long as it is, tells the number of that.
	local of=()
	[ "${1:-}" != internal ] || of=(hpmmap run --)
	"${of[@]}" python3 "$APPS/watch_maps.py" "$@" </dev/null >/tmp/watch 2>/tmp/watch-error &
	WATCH=$!
}

# watch_read: ends it; sets mapped and small: KB that were mapped, and of whole slots those by pages of 4 KB.
watch_read() {
	touch /tmp/watch-end
	wait $WATCH || { cat /tmp/watch-error; fail "the watcher failed"; }
	read -r mapped small </tmp/watch
	echo "mapped at most $((mapped >> 10)) MB, of whole slots $small KB by pages of 4 KB"
}

# watch_end MIB: at least so much of it was mapped, whole slots by 2 MB entries only.
watch_end() {
	local mapped small
	watch_read
	[ "$mapped" -ge $(($1 << 10)) ] || fail "of files of the pools at most $mapped KB were mapped, expected were $1 MB"
	[ "$small" = 0 ] || fail "$small KB of whole slots were mapped by pages of 4 KB"
}
