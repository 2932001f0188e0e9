#!/bin/bash
# hpmmap run passes on exit status and signals.
# pool: 128M
# paths: kernel/task/ crates/hpmmap/src/launch.rs
. "$(dirname "$0")/../guest/lib.sh"

for status in 0 1 42 255; do
	expect $status hpmmap run -- sh -c "exit $status"
done
for signal in TERM SEGV KILL ABRT; do
	expect $((128 + $(kill -l $signal))) hpmmap run -- sh -c "kill -$signal \$\$"
done
expect 127 hpmmap run -- /nonexistent
expect 127 hpmmap run -- nonexistent-program
expect 126 hpmmap run -- /etc/passwd
expect 125 hpmmap run
expect 125 hpmmap run --page-size 3M -- true
expect_error 125 'node 9|--node' hpmmap run --node 9 -- true

# The process number is the program's own, so signals reach it.
rm -f /tmp/trapped
hpmmap run -- bash -c 'trap "exit 7" USR1; : >/tmp/trapped; while :; do sleep 0.1; done' &
job=$!
within 10 is_registered $job || fail "the job does not register"
within 30 test -e /tmp/trapped || fail "the job sets no trap"
kill -USR1 $job
expect 7 wait $job

# Arguments, environment, working directory and input go through.
cd /usr
[ "$(echo input | WORD=hello hpmmap run -- sh -c 'cat; echo "$WORD $1 $(pwd)"' sh 'a  b')" = "$(printf 'input\nhello a  b /usr')" ] ||
	fail "something is lost on the way"
