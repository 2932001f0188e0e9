# The second boot, with reserved memory: all of the pool lies in it. Then the packages are removed.
# after: first

step 'the pool is of reserved memory'
pool_is 512 'after the boot'
hpmmap pool list --verbose
hpmmap pool list --verbose | awk '$1 ~ /^memory[0-9]/ && $NF != "yes" { exit 1 }' || fail 'a block is not of reserved memory'
hpmmap doctor | grep 'booted with movablecore=' || fail 'doctor does not see what was reserved'
hpmmap pool reserve --remove || fail 'reserve --remove'
grep movablecore= /boot/grub/grub.cfg && fail 'GRUB still knows of it'
hpmmap pool reserve --size 512M || fail 'reserve again'

export DEBIAN_FRONTEND=noninteractive
as_alice hpmmap run -- sleep 600 &
within 20 registered || fail 'the job of alice does not register'

step 'upgraded while a job runs'
before=$(hpmmap pool list --verbose | awk '{ print $1, $4 }')
dpkg -i /var/tmp/debs/hpmmap_*.deb >/tmp/said 2>&1 || fail "dpkg: $(cat /tmp/said)"
registered || fail 'the job is gone'
[ "$(hpmmap pool list --verbose | awk '{ print $1, $4 }')" = "$before" ] || fail 'the pool has other blocks'
[ "$(systemctl is-active hpmmap-pools)" = active ] || fail 'the service is not active'
# A newer module, as far as modinfo can tell.
module=$(modinfo -n hpmmap)
cp "$module" /tmp
plain=/tmp/hpmmap.ko
case $module in *.xz) unxz -k "/tmp/${module##*/}" ;; *.zst) unzstd -q "/tmp/${module##*/}" ;; esac
hpmmap status | grep 'is installed' && fail 'status says that another module waits'
sed -E 's/srcversion=..../srcversion=FFFF/; s/version=0\.1\.0/version=0.1.9/' $plain >/tmp/newer.ko
case $module in *.xz) xz --check=crc32 </tmp/newer.ko >"$module" ;; *.zst) zstd -q </tmp/newer.ko >"$module" ;; *) cp /tmp/newer.ko "$module" ;; esac
hpmmap status | grep 'of the module is loaded, 0.1.9 is installed' || fail "status does not say that another module waits: $(modinfo hpmmap | head -n 4)"
hpmmap doctor | grep '0.1.9 is installed' || fail 'doctor does not say that another module waits'
mv "/tmp/${module##*/}" "$module"
rm -f $plain /tmp/newer.ko

step 'removed while a job runs'
said=$(apt-get -q -y remove hpmmap 2>&1) || fail "remove: $said"
[[ $said == *'jobs hold memory of the pools'* ]] || fail "it said: $said"
registered || fail 'the job is gone'
[ "$(cat $POOL)" -gt 0 ] || fail 'the pool of a running job is gone'
pkill -u alice sleep
within 20 no_jobs || fail 'the job does not end'

step 'installed again, and removed'
apt-get -q -y --no-install-recommends install /var/tmp/debs/hpmmap_*.deb >/tmp/said 2>&1 || fail "install: $(cat /tmp/said)"
within 60 systemctl -q is-active hpmmap-pools || fail 'the service was not started'
pool_is 512 'installed again'
purge
