#!/bin/bash
# hpmmap trace without BPF: every page fault is counted, and nothing stays in tracefs.
# pool: 512M
# paths: kernel/trace.* crates/hpmmap-trace/ tests/vm/guest/trace.sh tests/vm/guest/check_trace.py tests/vm/programs/faults.c
. "$(dirname "$0")/../guest/trace.sh"

no_probes() { ! grep -q hpmmap_trace /sys/kernel/tracing/kprobe_events; }

echo "== known numbers"
hpmmap trace record --method tracefs -o known -- "$faults" small zero thp hugetlb shared private fork populate kernel threads >known.out
check known known.out counted
no_probes || fail "probes are left"

echo "== killed"
kill_recorder --method tracefs
hpmmap trace record --method tracefs -q -o again -- true
no_probes || fail "what a killed recorder left is not removed"
[ -z "$(ls /sys/kernel/tracing/instances)" ] || fail "an instance is left"

echo "== without BTF, or the right to load BPF programs, it is used by itself"
setpriv --bounding-set=-bpf,-perfmon,-sys_admin hpmmap trace record -o automatic -- "$faults" small >automatic.out 2>automatic.err
cat automatic.err
grep -q 'recording with tracefs, which knows less' automatic.err || fail "nothing is said of tracefs"
check automatic automatic.out counted
no_probes || fail "probes are left"
