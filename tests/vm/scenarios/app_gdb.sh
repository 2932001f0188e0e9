#!/bin/bash
# gdb and its program: breakpoints, backtrace, watchpoints, memory read and written, a call
# into the program, a thread, a child; also with gdb outside of the launch.
# takes: 25
# machine: apps
# pool: 1G
# timeout: 240
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/debuggee.c tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

cat >"$WORK/script" <<'GDB'
set pagination off
set confirm off
set width 0
break check
run
backtrace
print *list
print *list->next->next
x/s large + 0x7fffe0
up 2
print depth
print local[0]@8
frame 0
set variable list->value = 1000
set variable large[0x7fffe0] = 'T'
print changed = 42
delete
print check(list->next)
rwatch -location list->next->next->value
continue
delete
finish
watch -location large[0x400000]
continue
print large[0x400000]@3
delete
continue
print $_exitcode
GDB
# What gdb notices of threads and children when, and addresses.
filter() {
	sed -E '/^\[(New Thread|Switching to|Thread .* exited|Detaching)/d; s/0x[0-9a-f]+/ADDRESS/g; s/process [0-9]+/process N/'
}
same gdb gdb -nx -batch -x "$WORK/script" "$BUILT/debuggee"
took gdb 16
took debuggee 16
cat "$WORK/gdb"
# It worked at all.
for line in 'sum 1066' "large 'The end of it', changed 42" "thread 't'" 'child 42' \
	'\$[0-9]+ = 66' '\$[0-9]+ = 42' '#5 +ADDRESS in main .*'; do
	grep -qxE "$line" "$WORK/gdb" || fail "gdb did not get as far as '$line'"
done

# Only the program is in a job.
sed 's/^run$/set exec-wrapper hpmmap run --strict --\nrun/' \
	"$WORK/script" >"$WORK/script.outside"
same_as gdb.native gdb-outside gdb -nx -batch -x "$WORK/script.outside" "$BUILT/debuggee"
took debuggee 16
! grep -w gdb "$WORK/taken" || fail "gdb itself was registered"
