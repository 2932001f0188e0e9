# The first boot after the installation: pools and limits are as the files say, and stay so.

step 'what the boot has made'
[ "$(systemctl is-active hpmmap-pools)" = active ] || fail 'hpmmap-pools is not active'
[ "$(systemctl is-active hpmmap-limits)" = active ] || fail 'hpmmap-limits is not active'
pool_is 512 'after the boot'
journalctl --no-pager -b -o cat -u hpmmap-pools | grep 'node 0: the pool has 512M, 512M taken from Linux' || fail 'the journal does not say what was taken'
began() { systemctl show -p "$2" --value "$1"; }
[ "$(began hpmmap-pools ActiveEnterTimestampMonotonic)" -le "$(began multi-user.target ActiveEnterTimestampMonotonic)" ] ||
	fail 'the pools were not made before multi-user.target'
# There is no man(1) here.
complaints=$(systemd-analyze verify hpmmap-pools.service hpmmap-limits.service hpmmap-prometheus.timer 2>&1 | grep hpmmap | grep -v "Command 'man ")
[ -z "$complaints" ] || fail "systemd complains of the units: $complaints"
hpmmap pool limit --list
hpmmap status --json | grep -A2 '"name": "alice"' >/dev/null || fail 'status does not have the limit of alice'
hpmmap status --prometheus | grep '^hpmmap_limit_bytes{kind="user",name="alice"} 134217728$' || fail 'the metrics do not have the limit of alice'
for device in /dev/hpmmap /dev/xpmem; do
	[ "$(stat -c %G:%a $device)" = hpmmap:660 ] || fail "$device is $(stat -c %G:%a $device)"
done
hpmmap doctor || fail 'doctor finds something missing'

step 'a job'
as_alice hpmmap run --strict -- sleep 60 &
within 20 registered || fail 'the job of alice does not register'
as_alice hpmmap status

step 'the same again, while it runs'
before=$(hpmmap pool list --verbose | awk '{ print $1, $4 }')
systemctl reload hpmmap-pools || fail 'reload'
systemctl reload hpmmap-pools || fail 'reload again'
hpmmap pool set || fail 'pool set'
pool_is 512 'set three times'
[ "$(hpmmap pool list --verbose | awk '{ print $1, $4 }')" = "$before" ] || fail 'set again it has other blocks'
echo '0 256M' >/etc/hpmmap/pools
systemctl reload hpmmap-pools || fail 'reload for less'
pool_is 256 'less, while a job runs'
registered || fail 'the job is gone'
echo '0 0' >/etc/hpmmap/pools
said=$(hpmmap pool set 2>&1) && fail "what a job holds was given back: $said"
[[ $said == *'/etc/hpmmap/pools:1: '*'held by jobs'* ]] || fail "it said: $said"
registered || fail 'the job is gone'
pkill -u alice sleep
within 20 no_jobs || fail 'the job does not end'
printf '0 512M\n5 1G\n' >/etc/hpmmap/pools
said=$(hpmmap pool set 2>&1) && fail "there is no node 5: $said"
[[ $said == *'/etc/hpmmap/pools:2: there is no NUMA node 5'* ]] || fail "it said: $said"
pool_is 512 'one line wrong'

step 'the module is loaded again'
echo '0 512M' >/etc/hpmmap/pools
systemctl stop hpmmap-pools || fail 'the service does not stop'
pool_is 0 'stopped'
modprobe -r hpmmap || fail 'the module does not go'
modprobe hpmmap
has_limit() { hpmmap pool limit --list 2>/dev/null | grep -q 'alice .*128M'; }
within 30 has_limit || fail "the limits have not come back: $(hpmmap pool limit --list)"
systemctl start hpmmap-pools
pool_is 512 'started again'
has_limit || fail 'a limit is gone'

step 'less than was asked for keeps nobody from booting'
echo '0 64G' >/etc/hpmmap/pools
systemctl restart hpmmap-pools || fail 'the service failed: it can be neither reloaded nor stopped'
journalctl --no-pager -b -o cat -u hpmmap-pools | grep '/etc/hpmmap/pools:1: 64G is more than NUMA node 0 has' || fail 'the journal does not say why'
pool_is 0 'a line that is wrong'
echo '0 512M' >/etc/hpmmap/pools
systemctl reload hpmmap-pools || fail 'reload after a line that was wrong'
pool_is 512 'the line is right'
echo '0 3G' >/etc/hpmmap/pools
systemctl reload hpmmap-pools && fail '3G were had'
systemctl restart hpmmap-pools || fail 'the service failed: it can be neither reloaded nor stopped'
[ "$(systemctl is-active hpmmap-pools)" = active ] || fail 'hpmmap-pools is not active'
journalctl --no-pager -b -o cat -u hpmmap-pools | grep '/etc/hpmmap/pools:1: the pool has .* instead of 3G; Linux has .* and keeps 2G' || fail 'the journal does not say why'
[ "$(cat $POOL)" -gt $((512 * MIB)) ] || fail 'what was possible was not taken'
hpmmap doctor | grep 'of the 3G of /etc/hpmmap/pools:1' || fail 'doctor does not tell that it is less'
systemctl stop hpmmap-pools || fail 'the service does not stop'
pool_is 0 'stopped with less'
systemctl start hpmmap-pools || fail 'start'
echo '0 512M' >/etc/hpmmap/pools
systemctl reload hpmmap-pools || fail 'reload'
pool_is 512 'back to what is possible'

step 'reserved for the next boot'
# As grub-install leaves it.
mkdir -p /boot/grub
hpmmap pool reserve --size 512M || fail 'reserve'
cat /etc/default/grub.d/hpmmap.cfg
grep -o 'movablecore=[0-9]*M' /boot/grub/grub.cfg | sort -u | sed 's/^/NEXT-BOOT /'
[ -n "$(grep movablecore= /boot/grub/grub.cfg)" ] || fail 'GRUB does not know of it'
