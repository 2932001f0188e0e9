#!/bin/bash
# Beside neighbours that compile, fork and write, a CPU in an isolated partition is quiet: by the counts of
# hpmmap, which agree with /proc/interrupts and, where the kernel has that tracer, with rtla osnoise.
# machine: quiet
# pool: 512M
# timeout: 420
# takes: 150
# scales: yes
# tier: parallel  CPUs that take turns on one thread of the host interrupt each other
# paths: crates/hpmmap-bpf/ crates/hpmmap-host/src/noise/ crates/hpmmap-trace/src/noise.rs crates/hpmmap-bench/src/noise/ bench/noise/ tests/vm/guest/neighbours.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/neighbours.sh"

[ -e /sys/kernel/btf/vmlinux ] || skip "this kernel has no BTF, which BPF programs need"
seconds=$((10 * ${HPMMAP_TEST_SCALE:-1}))
dir=/tmp/noise
rm -rf $dir
mkdir -p $dir
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
full=$(cat /sys/devices/system/cpu/nohz_full)
echo "nohz_full: $full"

trap stop_neighbours EXIT

# bench NAME OPTION...: the loop without memory on the CPU 2, counted; the record in $dir/NAME.json.
bench() {
	local name=$1
	shift
	hpmmap bench noise --no-accesses --loop plain --method 4k --seconds "$seconds" "$@" --json >"$dir/$name.json"
	python3 - "$dir/$name.json" "$name" <<-'PYTHON'
		import json, sys
		record = json.load(open(sys.argv[1]))
		[one] = record["detours"]
		counts = one["counts"]
		for cpu, counted in zip(one["cpus"], counts["cpus"]):
		    assert cpu["cpu"] == counted["cpu"]
		    interrupts = sum(i["count"] for i in counted["interrupts"])
		    kinds = ", ".join(f"{i['name']} {i['count']}" for i in counted["interrupts"])
		    switches = counted["switches"]
		    names = ", ".join(f"{o['name']} {o['switches']}" for o in switches["others"])
		    print(f"{sys.argv[2]}: CPU {cpu['cpu']}: noise {cpu['detour_ns'] / cpu['elapsed_ns']:.4%}, "
		          f"{cpu['detours']} detours, longest {cpu['longest_ns'] / 1e3:.0f} us; in {counts['seconds']:.1f} s "
		          f"{interrupts} interrupts ({kinds}), {switches['to_others']} switches to others ({names}), "
		          f"ticks: {counted['tick_reasons']}")
		    for kind in counted["interrupts"]:
		        if kind["traced"] is not None:
		            off = abs(kind["traced"] - kind["count"])
		            assert off <= 10 + kind["count"] // 20, (cpu["cpu"], kind)
		assert counts["unknown"] == [], counts["unknown"]
		cost = counts["cost"]
		print(f"{sys.argv[2]}: {cost['runs']} runs of programs, {cost['seconds'] / counts['seconds'] / 4:.3%} of the CPUs")
	PYTHON
}

# judged NAME EXPRESSION: of the CPU 2 in a record, with interrupts a second and switches to others.
judged() {
	python3 - "$dir/$1.json" "$2" <<-'PYTHON'
		import json, sys
		counts = json.load(open(sys.argv[1]))["detours"][0]["counts"]
		[counted] = [one for one in counts["cpus"] if one["cpu"] == 2]
		interrupts = sum(i["count"] for i in counted["interrupts"]) / counts["seconds"]
		others = counted["switches"]["to_others"]
		sys.exit(not eval(sys.argv[2]))
	PYTHON
}

echo "== random accesses of four tasks, bound and unbound"
hpmmap bench noise --no-detours --tasks 4 --mode dependent --method 4k,hpmmap --size 64K,4M --accesses 262144 --rounds 3 --out $dir/accesses
python3 - $dir/accesses/noise.json <<'PYTHON'
import json, sys
record = json.load(open(sys.argv[1]))
found = {(one["method"], one["size_bytes"], one["tasks"]): one for one in record["accesses"]}
wanted = {(m, s, t) for m in ("4k", "hpmmap") for s in (64 << 10, 4 << 20) for t in ("bound", "unbound")}
assert set(found) == wanted and record["left_out"] == [], (set(found), record["left_out"])
assert all(0 < one["least"] <= one["median"] <= one["most"] for one in found.values()), found
PYTHON
expect_pool_free

start_neighbours
echo "== without a partition"
bench without --cpu 2 --count
judged without "interrupts > 10 and others > 10" || fail "beside neighbours the CPU is quiet without a partition"

stop_neighbours
hpmmap partition create quiet --cpus 2-3
start_neighbours
echo "== in a partition"
# Begin and end of the workers are in it, with what they leave to the kernel's workers.
bench within --partition quiet
# With PREEMPT_RT each timer is a switch to ktimers/2 and back.
others=10
[[ $(uname -v) != *PREEMPT_RT* ]] || others=40
judged within "interrupts <= 10 and others <= $others" || fail "the partition changes too little"

echo "== in the middle of a job"
hpmmap run --partition quiet -- taskset -c 2 python3 -c 'while True: pass' &
spinner=$!
sleep 3
hpmmap trace noise --cpu 2 --output $dir/middle.json -- sleep "$seconds"
kill -9 $spinner
wait $spinner || true
# On 6.1 workers of the kernel stay, with PREEMPT_RT threads for timers and interrupts.
if [ "$full" = 2-3 ] && [ -d /sys/kernel/debug/sched/fair_server ] && [[ $(uname -v) != *PREEMPT_RT* ]]; then
	python3 - $dir/middle.json <<-'PYTHON'
		import json, sys
		counts = json.load(open(sys.argv[1]))
		[counted] = counts["cpus"]
		interrupts = sum(i["count"] for i in counted["interrupts"]) / counts["seconds"]
		assert interrupts <= 2 and counted["switches"]["to_others"] == 0, counted
		assert counts["unknown"] == [], counts["unknown"]
	PYTHON
fi

echo "== the report says so"
spin="import time
end = time.monotonic() + $seconds
while time.monotonic() < end: pass"
hpmmap run --partition quiet --noise --report $dir/report.json --verbose -- taskset -c 2 python3 -c "$spin"
python3 - $dir/report.json <<'PYTHON'
import json, sys
noise = json.load(open(sys.argv[1]))["noise"]
print({name: noise[name] for name in ("verdict", "quiet", "findings", "unknown", "seconds", "cost")})
assert noise["verdict"] in ("quiet", "noisy") and noise["quiet"] == (noise["verdict"] == "quiet"), noise
assert sum(one["switches"]["job_seconds"] for one in noise["cpus"]) > 0.8 * noise["seconds"] - 2, noise
PYTHON
# Without the right to count it is never called quiet.
mkdir --mode 1777 $dir/user
as_member hpmmap run --noise --report $dir/user/report.json -- sleep 1
python3 - $dir/user/report.json <<'PYTHON'
import json, sys
noise = json.load(open(sys.argv[1]))["noise"]
assert noise["verdict"] == "unknown" and noise["quiet"] is None, noise
assert "no permission" in noise["unknown"][0], noise["unknown"]
PYTHON

if grep -qw osnoise $TRACING/available_tracers 2>/dev/null && command -v rtla >/dev/null; then
	echo "== rtla osnoise"
	# To start and to stop either of them interrupts every CPU, and takes rtla half a minute beside neighbours: so
	# the seconds that are compared lie in the middle of both.
	python3 - "$seconds" <<-'PYTHON'
		import json, os, subprocess, sys, threading, time
		seconds = int(sys.argv[1])
		os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
		judge = subprocess.Popen(
		    ["taskset", "-c", "0", "stdbuf", "-oL", "rtla", "osnoise", "top", "-c", "2", "-p", "200000", "-r", "200000", "-d", "300s"],
		    stdout=subprocess.PIPE, text=True, bufsize=1)
		# What it prints about once a second: CPU, number and microseconds of the periods that have ended, noise,
		# available, longest of a period, longest, then what it has counted in these periods.
		printed, lines = [], []
		def listen():
		    for line in judge.stdout:
		        lines.append(line)
		        words = line.replace("|", " ").split()
		        if words[:1] == ["2"]:
		            hardware, _nmi, irq, _softirq, thread = map(int, words[-5:])
		            printed.append((time.monotonic(), int(words[2]) / 1e6, irq, thread, hardware))
		threading.Thread(target=listen, daemon=True).start()
		def more(lines_of_it):
		    wanted, deadline = len(printed) + lines_of_it, time.monotonic() + 120
		    while len(printed) < wanted:
		        assert judge.poll() is None and time.monotonic() < deadline, ("rtla osnoise prints no counts", lines)
		        time.sleep(0.05)
		more(3)
		ours = subprocess.Popen(
		    ["hpmmap", "trace", "noise", "--beside", "--cpu", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
		assert ours.stdout.readline().split(), "hpmmap counts nothing"
		more(3)
		print(file=ours.stdin, flush=True)
		ours.stdout.readline()
		begin = time.monotonic()
		time.sleep(seconds)
		end = time.monotonic()
		[counted] = json.loads(ours.communicate()[0])["cpus"]
		more(3)
		judge.terminate()
		judge.wait()
		# The periods follow each other: the line that came soonest tells when the first one began.
		start = min(when - periods for when, periods, *_counts in printed)
		# Of the periods that had ended then: what ours does at its end is in none.
		def at(when):
		    return [one for one in printed if start + one[1] <= when][-1]
		first, last = at(begin), at(end)
		irq, thread, hardware = (after - before for before, after in zip(first[2:], last[2:]))
		kinds = {one["name"]: one["traced"] for one in counted["interrupts"]}
		mine = sum(count or 0 for count in kinds.values())
		names = {one["name"]: one["switches"] for one in counted["switches"]["others"]}
		threads = sum(count for name, count in names.items() if not name.startswith("osnoise"))
		print(f"osnoise: {irq} interrupts, {thread} threads, {hardware} of the host, in {last[1] - first[1]:.1f} s; "
		      f"ours in {end - begin:.1f} s: {mine} {kinds}, {threads} {names}")
		assert abs(mine - irq) <= 10 + irq // 10, (mine, irq)
		assert abs(threads - thread) <= 10 + thread // 10, (threads, thread)
	PYTHON
else
	echo "no osnoise tracer (Debian's -rt- kernels have it) or no rtla: there is no judge"
fi
stop_neighbours
trap - EXIT
within 20 hpmmap partition delete quiet || fail "the partition is still in use"
expect_pool_free
