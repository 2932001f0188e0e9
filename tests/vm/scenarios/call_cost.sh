#!/bin/bash
# The cost of mmap, munmap and brk for a process that is not registered, in instructions:
# the same before the first registration and after the last, a little more in between.
# machine: icount
# pool: 128M
# timeout: 300
# tier: newest  the hooks are set and removed in the same way on every kernel
# paths: kernel/call/ kernel/as/map/range.* tests/vm/programs/call_cost.c tests/vm/programs/counted.c
. "$(dirname "$0")/../guest/lib.sh"

! is_debug_kernel || skip "instructions of a debug kernel tell nothing"

# The same addresses each time; the least of some processes, since the state of
# the kernel's caches adds a few instructions now and then.
cost() {
	for _ in 1 2 3 4 5; do
		setarch --addr-no-randomize "$HPMMAP_ROOT/build/tests-vm/call_cost"
	done | awk '{ for (i = 1; i <= NF; i++) if (!least[i] || $i < least[i]) least[i] = $i }
		END { print least[1], least[2], least[3] }'
}

[ "$(cat "$SYSFS/hooks_active")" = 0 ] || fail "hooks are active while nobody is registered"
# Once unmeasured: everything the measurement needs is loaded then.
cost >/dev/null
read -r mmap_before munmap_before brk_before <<<"$(cost)"

hpmmap run -- sleep 1000 &
job=$!
within 30 is_registered $job || fail "the job does not register"
[ "$(cat "$SYSFS/hooks_active")" = 1 ] || fail "hooks are not active while somebody is registered"
read -r mmap_during munmap_during brk_during <<<"$(cost)"
kill $job
wait $job || true
expect_pool_free
# The list of the kernel itself tells when the last trace is gone.
unhooked() { [ "$(cat "$SYSFS/hooks_active")" = 0 ] && ! grep _sys_ /sys/kernel/tracing/enabled_functions; }
within 20 unhooked || { cat /sys/kernel/tracing/enabled_functions; fail "functions stay hooked"; }
read -r mmap_after munmap_after brk_after <<<"$(cost)"

printf '%-8s %10s %10s %10s %8s\n' call before during after extra
for call in mmap munmap brk; do
	before=${call}_before during=${call}_during after=${call}_after
	printf '%-8s %10d %10d %10d %+8d\n' $call ${!before} ${!during} ${!after} $((${!during} - ${!before}))
done
for call in mmap munmap brk; do
	before=${call}_before during=${call}_during after=${call}_after
	# Less than half of what one hook costs is the kernel's own variation.
	difference=$((${!after} - ${!before}))
	[ ${difference#-} -lt 40 ] || fail "$call costs ${!after} instructions after the last registration, ${!before} before the first"
	[ $((${!during} - ${!before})) -gt 0 ] || fail "$call costs nothing more while somebody is registered: was it measured?"
	[ $((${!during} - ${!before})) -lt 200 ] || fail "$call costs $((${!during} - ${!before})) instructions more while somebody is registered"
done
