# Figures for Prometheus from Debian's node_exporter, with the module and without; the limits of the
# services.
# files: hold.c

# SERIES: its value in the scrape, as a whole number; empty if it is missing.
scrape() { curl -sf http://localhost:9100/metrics >/tmp/scrape; }
value() {
	scrape && awk -v series="$1" '{ end = match($0, / [^ ]*$/) } substr($0, 1, end - 1) == series { printf "%.0f\n", substr($0, end + 1) }' /tmp/scrape
}
says() { [ "$(value "$1")" = "$2" ]; }
says_none() { scrape && ! grep "$1" /tmp/scrape >/dev/null; }
told() { # SERIES VALUE: so it is, before long
	within 60 says "$1" "$2" && return
	journalctl --no-pager -b -u hpmmap-prometheus | tail -n 5
	fail "$1 is '$(value "$1")' instead of $2: $(grep -E 'hpmmap|textfile' /tmp/scrape | head -n 40)"
}

step 'node_exporter as Debian configures it, and the timer'
systemctl enable --now prometheus-node-exporter hpmmap-prometheus.timer || fail 'they do not start'
within 60 scrape || fail 'node_exporter does not answer'
told hpmmap_up 1
told node_textfile_scrape_error 0
told 'hpmmap_pool_size_bytes{node="0"}' $((512 * MIB))
told 'hpmmap_pool_free_bytes{node="0"}' $((512 * MIB))
told 'hpmmap_limit_bytes{kind="user",name="alice"}' $((128 * MIB))
told hpmmap_jobs 0

# What the series of a process are named by: the first service, scope or user of its cgroup.
hold_cgroup() {
	awk -F / '/^0::/ {
		for (i = 2; i <= NF; i++) {
			path = path "/" $i
			if ($i ~ /^user-.*[.]slice$|[.](scope|service)$/)
				break
		}
		print path
	}' "/proc/$(pgrep -u alice -x hold)/cgroup"
}

step 'a job'
gcc -O2 -o /usr/local/bin/hold /srv/hold.c || fail 'hold does not compile'
as_alice hpmmap run --strict -- hold 100 1000 >/tmp/held &
within 60 grep -qx held /tmp/held || fail 'the job does not start'
told hpmmap_jobs 1
series="batch_job=\"\",cgroup=\"$(hold_cgroup)\",user=\"alice\""
held=$((512 * MIB - $(cat ${POOL%total_bytes}free_bytes)))
[ $held -ge $((100 * MIB)) ] || fail "the job holds $held bytes"
told 'hpmmap_pool_free_bytes{node="0"}' $((512 * MIB - held))
told "hpmmap_launches_held_bytes{$series}" $held
told 'hpmmap_limit_held_bytes{kind="user",name="alice"}' $held
told "hpmmap_launches_processes{$series}" 1
told "hpmmap_launches_refusals{$series}" 0
told node_textfile_scrape_error 0
asked=$(grep -o '"expr": .*' /usr/share/hpmmap/grafana.json | grep -Eo 'hpmmap_[a-z_]+' | sort -u)
[ "$(echo "$asked" | wc -l)" -gt 10 ] || fail "the dashboard asks for $asked"
for name in $asked; do
	grep "^${name}[{ ]" /tmp/scrape >/dev/null || fail "the dashboard asks for $name, which is not in the scrape"
done
echo "$(echo "$asked" | wc -l) names of the dashboard's, $(grep -c ^hpmmap_ /tmp/scrape) series"
grep ^hpmmap_ /tmp/scrape
written() { value "node_textfile_mtime_seconds{file=\"/var/lib/prometheus/node-exporter/hpmmap.prom\"}"; }
before=$(written)
later() { [ "$(written)" -ge $((before + 25)) ]; }
within 60 later || fail "the file was written at $before, and then at $(written): $(systemctl list-timers --no-pager)"
pkill -u alice -x hold
told hpmmap_jobs 0
says_none hpmmap_launches || fail "of the job that has ended there is still: $(grep hpmmap_launches /tmp/scrape)"

step 'without the module'
systemctl stop hpmmap-pools && modprobe -r hpmmap || fail 'the module does not go'
told hpmmap_up 0
[ "$(grep -c ^hpmmap_ /tmp/scrape)" = 1 ] || fail "there are other figures: $(grep ^hpmmap_ /tmp/scrape)"
told node_textfile_scrape_error 0
[ "$(systemctl is-failed hpmmap-prometheus.service)" != failed ] || fail 'the service fails'
systemctl start hpmmap-pools || fail 'the pools do not come back'
told hpmmap_up 1
told 'hpmmap_pool_size_bytes{node="0"}' $((512 * MIB))

step 'what the services may do'
for unit in pools limits prometheus; do
	echo "hpmmap-$unit: $(systemd-analyze security --no-pager "hpmmap-$unit.service" | tail -n 1)"
	systemd-analyze security --no-pager --threshold=20 "hpmmap-$unit.service" >/tmp/said ||
		fail "hpmmap-$unit: $(grep -v '✓' /tmp/said)"
done

step 'words that shells complete'
for file in bash-completion/completions/hpmmap fish/vendor_completions.d/hpmmap.fish zsh/vendor-completions/_hpmmap; do
	grep doctor "/usr/share/$file" >/dev/null || fail "$file"
done
bash -c '. /usr/share/bash-completion/completions/hpmmap; complete -p hpmmap' || fail 'bash does not take the completions'

echo 'NEXT-BOOT module.sig_enforce=1'
