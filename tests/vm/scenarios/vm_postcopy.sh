#!/bin/bash
# Post-copy of a machine whose RAM is a file of the pools: UFFDIO_REGISTER refuses it, which QEMU finds out only at the switch.
# The destination ends, the source cannot go on, and all memory comes back with it. An ordinary migration still works.
# machine: partition
# pool: 512M
# timeout: 240
# takes: 40
# tier: all  sem_uffd asks what userfaultfd says of such a file
# paths: kernel/fs/ tests/vm/guest/inner.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup firmware
DIR=/tmp/vm-postcopy
SOCKET=/tmp/vm-postcopy.sock
inner_ram $DIR
# vm NAME OPTION...
vm() {
	local name=$1
	shift
	inner_start "$name" -m 128M -machine memory-backend=ram \
		-object memory-backend-file,id=ram,size=128M,mem-path=$DIR,share=on "$@"
}
# status NAME: of the migration.
status() {
	inner_qmp "$1" query-migrate | grep -oE '"status": "[a-z-]+"' | head -n 1 | cut -d'"' -f4
}
status_is() {
	[ "$(status "$1")" = "$2" ]
}
postcopy='"capabilities": [{"capability": "postcopy-ram", "state": true}]'

vm source
within 120 grep -q wrong $INNER/source/console || inner_lost source "its firmware does not end"
vm destination -incoming unix:$SOCKET
within 60 test -S $SOCKET || inner_lost destination "it does not listen"
for name in destination source; do
	# What QEMU asks its host for is there.
	inner_qmp $name migrate-set-capabilities "$postcopy" || fail "QEMU knows that there is no post-copy"
done
inner_qmp source migrate-set-parameters '"max-bandwidth": 1000000' >/dev/null
inner_qmp source migrate "\"uri\": \"unix:$SOCKET\"" >/dev/null
within 60 status_is source active || fail "the migration is $(status source)"
inner_qmp source migrate-start-postcopy >/dev/null
within 60 inner_gone destination || fail "the destination goes on"
cat $INNER/destination/log
grep -q 'ram_block_enable_notify userfault register: Invalid argument' $INNER/destination/log || fail "it ends for another reason"
within 60 status_is source postcopy-paused || fail "the migration is $(status source)"
! inner_qmp source cont || fail "the source goes on: say so in guests.md"
inner_kill source
expect_pool_free
rm -f $SOCKET

vm source
within 120 grep -q wrong $INNER/source/console || inner_lost source "its firmware does not end"
vm destination -incoming unix:$SOCKET
within 60 test -S $SOCKET || inner_lost destination "it does not listen"
inner_qmp source migrate "\"uri\": \"unix:$SOCKET\"" >/dev/null
within 120 status_is source completed || fail "the migration is $(status source)"
inner_kill source
inner_kill destination
umount $DIR
expect_pool_free
