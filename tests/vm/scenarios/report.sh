#!/bin/bash
# run --report counts exactly what a launch did, however it ended; --watch and --prometheus show it.
# takes: 35
# pool: 256M
# timeout: 240
# tier: newest  reports are the same on every kernel
# paths: kernel/as/own/show.* kernel/as/own/stats.* kernel/as/own/counters.* crates/hpmmap/src/report/ crates/hpmmap/src/prometheus/ crates/hpmmap/src/status.rs
# paths: tests/vm/programs/counted.c
. "$(dirname "$0")/../guest/lib.sh"

counted=$HPMMAP_ROOT/build/tests-vm/counted
dir=/tmp/report
rm -rf $dir
mkdir $dir

# report NAME [OPTION...] -- COMMAND...: run it, the report in $dir/NAME.json. Where the
# heap begins is the same in all: of a small one it decides between one block and two.
report() {
	local name=$1
	shift
	setarch --addr-no-randomize hpmmap run --report "$dir/$name.json" "$@"
}

# Exact counts: what the same program does without the calls is taken off.
report none -- "$counted" 0 2
report plain -- "$counted" 12 4
report maps --verbose -- "$counted" 12 4 0 0 3 5 2>$dir/maps.txt
cat $dir/maps.txt
report forks0 -- "$counted" 4 4 3 0 >$dir/forks0.failed
report forks2 -- "$counted" 4 4 3 2 >$dir/forks2.failed
report three0 -- sh -c "$counted 0 2; $counted 0 2 & $counted 0 2; wait"
report three -- sh -c "$counted 10 2; $counted 5 2 & $counted 7 2; wait"
# However it ends, the report is there and hpmmap ends as the program did.
expect 7 report status -- sh -c 'exit 7'
expect 137 report killed -- sh -c 'kill -9 $$'
expect 137 report all_killed -- setsid sh -c "$counted 2 4; sleep 1000 & sleep 1000 & kill -9 0"
expect 127 report nothing -- /nonexistent/program
[ ! -e $dir/nothing.json ] || fail "a report on a program that did not run"
expect 125 report nowhere/x -- true
# A job that has ended is not shown any more.
no_jobs() { [ "$(find "$SYSFS/jobs" -mindepth 1 | wc -l)" = 0 ]; }
within 10 no_jobs || fail "jobs are left: $(ls "$SYSFS/jobs")"

# A signal for hpmmap is one for the program, once.
rm -f $dir/got
hpmmap run --report $dir/term.json -- sh -c "trap 'echo got >>$dir/got; exit 3' TERM; : >$dir/ready; while :; do sleep 0.1; done" &
job=$!
within 30 test -e $dir/ready || fail "the program does not get ready"
kill $job
status=0
wait $job || status=$?
[ $status = 3 ] || fail "after SIGTERM the status is $status"
[ "$(cat $dir/got)" = got ] || fail "SIGTERM arrived more than once"

# More than there is: each mmap beyond it falls back, or is refused.
report fallback -- "$counted" 200 2 >$dir/fallback.failed
report strict --strict -- "$counted" 200 2 >$dir/strict.failed
hpmmap pool limit --user root --size 64M
report limited -- "$counted" 60 2 >$dir/limited.failed
hpmmap pool limit --user root --size none
expect_pool_free

DIR=$dir python3 - <<'PYTHON'
import json, os

MIB = 1 << 20
names = "none plain maps forks0 forks2 three0 three status killed all_killed term fallback strict limited"
reports = {name: json.load(open(f"{os.environ['DIR']}/{name}.json")) for name in names.split()}


def at(name, path):
    value = reports[name]
    for key in path.split("."):
        value = value[key]
    return value


def more(name, path, base="none"):
    return at(name, path) - at(base, path)


def printed(name):
    """How many mmaps failed, and where the first piece is."""
    return map(int, open(f"{os.environ['DIR']}/{name}.failed").read().split())


def failed(name):
    return next(printed(name))


def faults_in_piece(name):
    """By process, of faults in the first piece, which has 4 MB."""
    _, piece = printed(name)
    counts = {}
    for one in at(name, "faults.pool_memory.ranges"):
        if one["start"] < piece + 4 * MIB and one["end"] > piece:
            assert one["reason"] == "fork", one
            counts[one["pid"]] = counts.get(one["pid"], 0) + one["count"]
    return sorted(counts.values())


for name, report in reports.items():
    assert report["report"] == "hpmmap run" and report["schema"] == 2, name
    for call, times in report["latency"].items():
        assert times["calls"] == sum(bucket["calls"] for bucket in times["histogram"]), (name, call)
        if times["calls"]:
            assert 0 < times["p50_ns"] <= times["p99_ns"] <= times["worst_ns"], (name, call, times)
            assert times["mean_ns"] <= times["worst_ns"], (name, call, times)
    assert set(report["stalls"]) == {"calls", "zeroing", "reclaim", "pins"}, name
    faults = report["faults"]["pool_memory"]
    assert faults["total"] == faults["user"] + faults["kernel"] == sum(faults["by_reason"].values()), (name, faults)
    # The ranges are read a moment later: a process that is being killed may have taken one more.
    listed = faults["unlisted"] + sum(r["count"] for r in faults["ranges"])
    assert faults["total"] == listed or (name == "all_killed" and faults["total"] < listed), (name, faults)
    assert report["processes"]["left"] == 0 or name == "all_killed", (name, report["processes"])
    assert report["memory"]["held_bytes"] == 0 or name == "all_killed", (name, report["memory"])

# 12 mappings of 4 MB, one that grows from 2 to 8 MB, and 10 MB of heap.
assert more("maps", "latency.mmap.calls") == 13
assert more("maps", "latency.mremap.calls") == 3
assert more("maps", "latency.brk.calls") == 5
assert more("maps", "memory.peak_bytes") == (48 + 8 + 10) * MIB, at("maps", "memory")
assert more("maps", "memory.placed_bytes") == (48 + 8 + 10) * MIB, at("maps", "memory")
entries = "2m" if os.path.exists("/sys/kernel/mm/transparent_hugepage") else "4k"
assert more("plain", f"memory.entries.{entries}_bytes") == 48 * MIB, at("plain", "memory")
# What mremap moves is mapped again.
assert more("maps", f"memory.entries.{entries}_bytes") >= (48 + 8 + 10) * MIB, at("maps", "memory")
assert at("maps", "memory.remote_share") == 0 and [p["node"] for p in at("maps", "memory.placed")] == [0]
assert at("maps", "undisturbed") and at("maps", "findings") == []
assert at("maps", "faults.pool_memory.total") == 0 and at("maps", "faults.all_memory.minor") > 0
assert at("maps", "fallbacks.calls") == 0 and at("maps", "pools.refusals") == 0
processes = dict(at("maps", "processes"))
executed = {"registered": 1, "left_out": 0, "secure": 0, "bits_32": 0, "failed": 0}
assert processes.pop("executed") == executed and processes == {"total": 1, "address_spaces": 1, "left": 0}
assert at("maps", "exit") == {"status": 0}
lowest = at("maps", "pools.lowest_free_bytes")
assert lowest == 256 * MIB - at("maps", "memory.peak_bytes"), lowest

# Three children that each copy pages of two more blocks. Of the stack, too, by whichever writes first.
assert faults_in_piece("forks0") == [] and faults_in_piece("forks2") == [2, 2, 2]
assert at("forks2", "faults.pool_memory.by_reason.fork") == at("forks2", "faults.pool_memory.total")
assert 6 * 4096 <= at("forks2", "fork_copied_bytes") <= at("forks2", "faults.pool_memory.total") * 2 * MIB
assert at("forks2", "processes.total") == 4 and at("forks2", "processes.address_spaces") == 4
assert at("forks2", "undisturbed") and any("because of forks" in note for note in at("forks2", "notes"))

# All processes together.
assert more("three", "latency.mmap.calls", "three0") == 22
# The first writer copies some pages of the shell's stack and heap, which takes no block.
placed = {name: at(name, "memory.placed_bytes") for name in ("three", "three0")}
copied = {name: at(name, "fork_copied_bytes") for name in ("three", "three0")}
assert placed["three"] - placed["three0"] == 44 * MIB, (placed, copied)
assert max(copied.values()) < 2 * MIB, copied
assert at("three", "processes.total") == at("three0", "processes.total") >= 4
assert at("three", "memory.peak_one_bytes") < at("three", "memory.peak_bytes") < 256 * MIB

assert at("status", "exit") == {"status": 7}
assert at("killed", "exit") == {"signal": 9} and at("killed", "processes.total") == 1
assert at("all_killed", "exit") == {"signal": 9}
assert at("all_killed", "processes.total") == 4 and at("all_killed", "memory.placed_bytes") >= 8 * MIB
assert at("term", "exit") == {"status": 3}

# Every mmap has a block or falls back.
base = at("none", "memory.placed_bytes")
blocks = (at("fallback", "memory.placed_bytes") - base) // (2 * MIB)
assert failed("fallback") == 0 and at("fallback", "fallbacks.calls") == 200 - blocks, (blocks, at("fallback", "fallbacks"))
assert at("fallback", "fallbacks.by_call.mmap") == at("fallback", "fallbacks.by_reason.exhausted") == 200 - blocks
assert at("fallback", "fallbacks.bytes") == (200 - blocks) * 2 * MIB
assert at("fallback", "pools.lowest_free_bytes") == 0 and not at("fallback", "undisturbed")

blocks = (at("strict", "memory.placed_bytes") - base) // (2 * MIB)
assert at("strict", "pools.refusals") == failed("strict") == 200 - blocks > 0
assert at("strict", "fallbacks.calls") == 0 and at("strict", "job.strict") is True

assert at("limited", "fallbacks.by_reason.limit") == at("limited", "fallbacks.calls") > 0
assert at("limited", "memory.peak_bytes") <= 64 * MIB and failed("limited") == 0
print("counts ok")
PYTHON
grep -q '^  verdict      undisturbed$' $dir/maps.txt || fail "the text has no verdict"

# The metrics are what a strict parser takes, and those of a job that runs.
hpmmap run -- sh -c "$counted 4 4; exec sleep 1000" &
job=$!
calls() { grep -q 'hpmmap_job_call_seconds_count{.*call="mmap"} [1-9]' <(hpmmap status --prometheus --per-launch); }
within 30 calls || fail "no calls of the job in the metrics"
hpmmap status --prometheus --per-launch --output $dir/hpmmap.prom
"$HPMMAP_ROOT/build/venv/bin/python" - $dir/hpmmap.prom <<'PYTHON'
import sys

from prometheus_client.parser import text_string_to_metric_families

families = {family.name: family for family in text_string_to_metric_families(open(sys.argv[1]).read())}
assert all(name.startswith("hpmmap_") for name in families), families
assert all(family.documentation for family in families.values()), families


def one(family, **labels):
    """The value of the only sample with these labels."""
    (sample,) = [s for s in families[family].samples if labels.items() <= s.labels.items()]
    return sample.value


assert one("hpmmap_pool_size_bytes", node="0") == 256 << 20
assert one("hpmmap_job_fallbacks", call="mmap") == 0
assert one("hpmmap_job_processes", user="root") == 1
assert one("hpmmap_launches", user="root") == 1
assert one("hpmmap_launches_held_bytes", user="root") == one("hpmmap_job_held_bytes", user="root")
assert families["hpmmap_job_faults"].type == "counter"
calls = families["hpmmap_job_call_seconds"]
assert calls.type == "histogram"
buckets = [s for s in calls.samples if s.name.endswith("_bucket") and s.labels["call"] == "mmap"]
counts = [sample.value for sample in buckets]
assert counts == sorted(counts) and counts[-1] >= 4 and buckets[-1].labels["le"] == "+Inf", counts
bounds = [float(sample.labels["le"]) for sample in buckets]
assert bounds == sorted(set(bounds)), bounds
assert bounds[0] == 1e-6 and bounds[-2] == 0.5 and len(bounds) == 19, bounds
# Prometheus has labels of its own.
assert not {"job", "instance"} & {label for family in families.values() for s in family.samples for label in s.labels}
print("metrics ok")
PYTHON
kill $job
wait $job || true

# On a terminal: a job comes and goes, a change of size is drawn, keys end it, all is as before.
python3 - <<'PYTHON'
import fcntl, os, pty, re, select, signal, struct, subprocess, termios, time


class Terminal:
    """hpmmap status --watch on a terminal of its own."""

    def __init__(self, seconds, environment=()):
        self.master, self.slave = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.slave)
        self.output = self.all = ""
        self.process = subprocess.Popen(
            ["hpmmap", "status", "--watch", seconds],
            stdin=self.slave,
            stdout=self.slave,
            env={**os.environ, "TERM": "xterm", **dict(environment)},
        )

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern, seconds=60):
        """Until new output has it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if re.search(pattern, self.output):
                self.output = ""
                return
            if select.select([self.master], [], [], 0.2)[0]:
                new = os.read(self.master, 65536).decode()
                self.output += new
                self.all += new
        raise AssertionError(f"no {pattern!r} in {self.output!r}")

    def ends(self, key):
        os.write(self.master, key)
        self.wait_for(r"\x1b\[\?25h.*\x1b\[\?1049l")
        assert self.process.wait(20) == 0, self.process.returncode
        assert termios.tcgetattr(self.slave) == self.before


terminal = Terminal("0.3")
terminal.wait_for(r"\x1b\[\?1049h")
terminal.wait_for(r"No jobs\.")
job = subprocess.Popen(["hpmmap", "run", "--", "sleep", "60"])
terminal.wait_for(r"FALLBACKS(?s:.*) root +sleep ")
job.kill()
job.wait()
terminal.wait_for(r"No jobs\.")
terminal.ends(b"q")
assert "\x1b[38;5;" in terminal.all

# So long an interval that only the change of size can have drawn it.
terminal = Terminal("3600", {"NO_COLOR": "1"}.items())
terminal.wait_for(r"No jobs\.")
terminal.resize(10, 40)
terminal.process.send_signal(signal.SIGWINCH)
terminal.wait_for(r"No jobs\.")
terminal.ends(b"\x03")
assert "\x1b[38" not in terminal.all
terminal = Terminal("3600")
terminal.wait_for(r"No jobs\.")
terminal.process.send_signal(signal.SIGTERM)
terminal.ends(b"")
print("terminal ok")
PYTHON
# Not on a terminal it repeats the plain report.
timeout 30 hpmmap status --watch 0.2 | head -n 12 >$dir/plain.txt || true
[ "$(grep -c '^NODE' $dir/plain.txt)" -ge 2 ] || fail "the plain report is not repeated"
expect_pool_free
