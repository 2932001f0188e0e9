#!/bin/bash
# A report is right about its launch: verdict, peak, faults by program, and ordinary memory.
# pool: 256M
# tier: newest  report asks on every kernel whether counts are right
# paths: kernel/as/own/show.* kernel/as/own/stats.* kernel/mem/block/account.* kernel/as/map/pgmap.c crates/hpmmap-host/src/mapped.rs crates/hpmmap/src/report/
# paths: crates/hpmmap/src/verbs/run_report.rs
. "$(dirname "$0")/../guest/lib.sh"

counted=$HPMMAP_ROOT/build/tests-vm/counted
dir=/tmp/verdict
rm -rf $dir
mkdir $dir
chmod 1777 $dir

# report NAME [OPTION...] -- COMMAND...
report() {
	local name=$1
	shift
	hpmmap run --report "$dir/$name.json" "$@"
}

# Nobody has seen what a set-user-ID program met with.
mkdir -p /run/verdict
mount -t tmpfs -o suid,mode=755 tmpfs /run/verdict
cp /bin/true /run/verdict/setuid
chmod 4755 /run/verdict/setuid
as_member hpmmap run --report $dir/setuid.json --verbose -- /run/verdict/setuid 2>$dir/setuid.txt
as_member hpmmap run --report $dir/setuid_child.json -- python3 -c 'import os; os.spawnv(os.P_WAIT, "/run/verdict/setuid", ["setuid"])'
umount /run/verdict
grep 'verdict      not known: 1 program ran without HPMMAP: set-user-ID' $dir/setuid.txt >/dev/null ||
	fail "of a set-user-ID program: $(cat $dir/setuid.txt)"

# Neither the pools nor Linux have a terabyte.
report enomem -- python3 -c '
import mmap
try:
    mmap.mmap(-1, 1 << 44, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError:
    pass'
report gigabyte --page-size 1G -- true

# Two that hold much at different times, and four that share it.
report turns -- python3 -c '
import mmap, os
def hold(size):
    mmap.mmap(-1, size << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
here, there = os.pipe()
back, forth = os.pipe()
if not os.fork():
    os.read(here, 1)
    hold(100)
    os.write(forth, b"x")
    os._exit(0)
hold(100)
os.write(there, b"x")
os.read(back, 1)
os.wait()'
report shared -- python3 -c '
import mmap, os
held = mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
here, there = os.pipe()
for child in range(3):
    if not os.fork():
        os.read(here, 1)
        os._exit(0)
os.write(there, b"xxx")
for child in range(3):
    os.wait()'

# The faults of a shell, which forks, are its own.
report shell -- bash -c "$counted 4 2 & $counted 4 2; wait"
report forking -- "$counted" 4 4 3 2 >/dev/null
# What a thread touches while another one takes it away is no fault that the program suffers.
report racing -- "$HPMMAP_ROOT/build/tests-vm/racing" 400

# Memory of Linux is shown as long as it is there.
hpmmap run -- python3 -c '
import mmap, time
held = mmap.mmap(-1, 300 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for offset in range(0, 300 << 20, 4096):
    held[offset] = 1
open("/tmp/verdict/held", "w").close()
while True:
    time.sleep(0.2)
    try:
        open("/tmp/verdict/drop").close()
        break
    except OSError:
        pass
held.close()
open("/tmp/verdict/dropped", "w").close()
time.sleep(1000)' &
job=$!
within 60 test -e $dir/held || fail "nothing falls back"
hpmmap status | tee $dir/status.txt
hpmmap status --json >$dir/held.json
hpmmap status --prometheus --per-launch | grep -E '^hpmmap_job_(linux|few|mapped)_bytes' >$dir/held.prom
: >$dir/drop
within 60 test -e $dir/dropped || fail "it does not end"
hpmmap status --json >$dir/dropped.json
kill $job
wait $job || true
expect_pool_free

DIR=$dir python3 - <<'PYTHON'
import json, os

MIB = 1 << 20


def read(name):
    return json.load(open(f"{os.environ['DIR']}/{name}.json"))


def programs(report):
    return {one["name"]: one for one in report["programs"]}


setuid = read("setuid")
assert setuid["verdict"] == "unknown" and setuid["undisturbed"] is None and setuid["findings"] == [], setuid
assert setuid["processes"]["executed"]["secure"] == 1 and setuid["processes"]["executed"]["registered"] == 0, setuid
child = read("setuid_child")
assert child["verdict"] != "undisturbed" and child["undisturbed"] is not True and len(child["unknown"]) == 1, child

enomem = read("enomem")
assert enomem["verdict"] == "disturbed" and enomem["pools"]["failures"] == 1, enomem["findings"]
assert "1 call failed: neither the pools nor Linux had the memory" in enomem["findings"], enomem["findings"]
gigabyte = read("gigabyte")
assert gigabyte["verdict"] == "disturbed" and "--page-size 1G had no effect" in gigabyte["findings"][0], gigabyte["findings"]

for name in ("turns", "shared"):
    memory = read(name)["memory"]
    print(name, memory["peak_bytes"] >> 20, memory["peak_one_bytes"] >> 20)
    assert 100 * MIB <= memory["peak_one_bytes"] <= memory["peak_bytes"] <= 190 * MIB, (name, memory)
    assert memory["held_bytes"] == 0, (name, memory)

shell = read("shell")
assert programs(shell)["bash"]["helper"] and not programs(shell)["counted"]["helper"], shell["programs"]
assert programs(shell)["bash"]["forks"] == 2 and programs(shell)["bash"]["faults"] > 0, shell["programs"]
assert programs(shell)["counted"]["address_spaces"] == 2, shell["programs"]
mine = programs(shell)["counted"]
assert mine["faults"] == mine["faults_asked"] == shell["faults"]["pool_memory"]["application"], shell["programs"]
assert shell["undisturbed"] is True, shell["findings"]
forking = programs(read("forking"))["counted"]
assert forking["forks"] == 3 and forking["faults"] - forking["faults_asked"] >= forking["faults_fork"] >= 6, forking
forking = read("forking")
assert forking["undisturbed"] is True and "because of forks" in forking["notes"][0], (forking["findings"], forking["notes"])

racing = read("racing")
print("racing", racing["faults"]["pool_memory"]["by_reason"])
assert racing["undisturbed"] is True and racing["faults"]["pool_memory"]["by_reason"]["unmapped"] == 0, racing["findings"]

held, dropped = read("held"), read("dropped")
(context,), (job,) = held["contexts"], held["jobs"]
mapped = sum(context[f"mapped_{what}_bytes"] for what in ("2m", "4k", "linux"))
assert context["mapped_linux_bytes"] >= 50 * MIB and 300 * MIB <= mapped <= 330 * MIB, context
# What has the same name is the same.
assert job["linux_bytes"] == context["linux_bytes"] and job["few_bytes"] == context["few_bytes"], (job, context)
with open(f"{os.environ['DIR']}/held.prom") as file:
    series = {line.split()[0].split("{")[0] + line.split()[0].partition("page_size=")[2]: float(line.split()[-1]) for line in file}
for name, bytes in {
    "hpmmap_job_linux_bytes": context["linux_bytes"],
    "hpmmap_job_few_bytes": context["few_bytes"],
    'hpmmap_job_mapped_bytes"linux"}': context["mapped_linux_bytes"],
}.items():
    assert series[name] == bytes, (name, series)
dropped = dropped["contexts"][0]
assert dropped["linux_bytes"] == dropped["mapped_linux_bytes"] == 0, dropped
print("verdicts ok")
PYTHON
