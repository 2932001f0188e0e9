# A kernel that refuses modules without a known key, as with Secure Boot; then the packages are removed.
# after: monitoring

step 'the module is kept out, and the boot goes on'
[ ! -e /sys/kernel/hpmmap ] || fail 'the module is loaded'
said=$(modprobe hpmmap 2>&1) && fail 'modprobe loads it'
echo "$said"
[ "$(systemctl is-active multi-user.target)" = active ] || fail 'multi-user.target is not active'
journalctl --no-pager -b -o cat -u hpmmap-pools | grep 'the module is not loaded' || fail 'the journal does not say why there are no pools'
said=$(hpmmap doctor) && fail 'doctor finds nothing'
echo "$said"
found=$(echo "$said" | grep -A 2 signatures)
[[ $found == *'modules must be signed: signatures are enforced'*mok.pub* ]] || fail 'doctor does not say that the module has to be signed'
said=$(as_alice hpmmap run true 2>&1) && fail 'hpmmap run'
[[ $(echo "$said" | wc -l) = 1 && $said == *'the module is not loaded'* ]] || fail "it said: $said"

step 'nobody tells figures of what has gone'
metrics() { curl -sf http://localhost:9100/metrics | grep '^hpmmap_'; }
down() { [ "$(metrics)" = 'hpmmap_up 0' ]; }
within 60 down || fail "the scrape has: $(metrics)"
# As hpmmap cdi leaves it.
mkdir /etc/cdi && echo '{}' >/etc/cdi/hpmmap.json
purge
[ ! -e /etc/cdi ] || fail '/etc/cdi is left'
curl -sf http://localhost:9100/metrics >/dev/null || fail 'node_exporter does not answer'
metrics && fail 'the scrape still has something'
# One that another unit of these nodes names is known, though it is not there.
systemctl list-units --all --plain --no-legend --no-pager 'hpmmap*' | grep hpmmap | grep -v 'not-found *inactive' && fail 'units are left'
true
