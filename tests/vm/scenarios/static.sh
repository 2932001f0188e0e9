#!/bin/bash
# What hpmmap run --static says and does where there is no memory for a region; marks; counters.
# pool: 512M
# timeout: 120
# takes: 15
# paths: kernel/call/step/extent.* kernel/task/ kernel/chardev.c crates/hpmmap/src/verbs/run.rs crates/hpmmap/src/verbs/run_memory.rs crates/hpmmap/src/mark/
. "$(dirname "$0")/../guest/lib.sh"

# stat_of NAME COMMAND...: a value of a launch while the command runs.
stat_of() {
	local name=$1 job value
	shift
	"$@" &
	job=$!
	within 30 is_registered $job || fail "not registered: $*"
	value=$(awk -v name="$name" '$1 == name { print $2 }' "$SYSFS/jobs/$(context_of $job job)/stat")
	kill $job
	wait $job || true
	echo "$value"
}

[ "$(stat_of static_bytes hpmmap run --static 255M -- sleep 1000)" = $((256 * MIB)) ] || fail "the region is not 256 MB"
used=$(stat_of static_used_bytes hpmmap run --static 256M -- sleep 1000)
[ "$used" -gt 4096 ] && [ "$used" -lt $((16 * MIB)) ] || fail "sleep uses $used bytes of its region"
[ "$(stat_of static_bytes hpmmap run -- sleep 1000)" = 0 ] || fail "there is a region that was not asked for"
expect_pool_free

# What it gives up is told if it is asked for.
hpmmap run --verbose --static 64M -- true 2>/tmp/said
grep -q 'gives up: SIGSEGV after munmap' /tmp/said || fail "run --verbose does not tell what is given up"

# Without memory for it.
expect_error 125 '^hpmmap: --static 1G: .* are free in the pools now' hpmmap run --strict --static 1G -- true
hpmmap run --static 1G -- true 2>/tmp/said
grep -q 'programs run without a region' /tmp/said || fail "it is not told that there is no region"
(
	ulimit -v 131072
	expect_error 125 'RLIMIT_AS allows \(128M\)' hpmmap run --static 256M -- true
)
# A program that a strict job executes later.
expect 137 hpmmap run --strict --static 300M -- sh -c '/bin/true; exit $?'
expect_error 125 'leave out --placement first-touch' hpmmap run --static 64M --placement first-touch -- true
expect_error 125 'between 1 and 64T' hpmmap run --static 0 -- true
expect_pool_free

# A mark has it, too.
cp /bin/sleep /tmp/marked
expect_error 1 'a power of two, such as 64M or 128M' hpmmap mark --static 100M /tmp/marked
hpmmap mark --static 64M /tmp/marked >/dev/null
hpmmap mark --show /tmp/marked | grep 'static 64M' >/dev/null || fail "the mark does not show it"
[ "$(stat_of static_bytes /tmp/marked 1000)" = $((64 * MIB)) ] || fail "a marked program has no region"
expect_pool_free
