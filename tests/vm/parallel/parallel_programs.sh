#!/bin/bash
# The test programs with threads and children, repeatedly, with neighbours beside them.
# machine: parallel
# pool: 2G
# timeout: 400
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

programs=$HPMMAP_ROOT/build/tests

# pass PROGRAM [OPTION...]: of hpmmap run.
pass() {
	local program=$1 policy=fallback status=0
	local -a first_touch=()
	shift
	[[ " $* " != *' --strict '* ]] || policy=strict
	[[ " $* " != *' first-touch '* ]] || first_touch=(HPMMAP_TEST_FIRST_TOUCH=1)
	env "${first_touch[@]}" HPMMAP_TEST_AT_ONCE=1 HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_POLICY=$policy HPMMAP_TEST_IMAGE=no \
		hpmmap run "$@" -- "$programs/$program" >"/tmp/$program.out" 2>&1 || status=$?
	[ $status = 0 ] && grep -qx "HPMMAP-TEST-PASS $program" "/tmp/$program.out" ||
		{ cat "/tmp/$program.out"; fail "$program $*: status $status"; }
}

rounds=0
until is_over; do
	while read -r program options; do
		! is_over || break
		# shellcheck disable=SC2086 # several words
		pass "$program" $options
	done <<-'LIST'
		sem_threads
		sem_fork
		sem_threads --placement first-touch
		sem_fork --page-size 1G
		sem_reuse --strict
		sem_mremap
		sem_madvise_brk
		sem_locked
	LIST
	rounds=$((rounds + 1))
done
echo "$rounds rounds"
