#!/bin/bash
# valgrind runs a job's program and reports the same.
# takes: 35
# machine: apps
# pool: 1G
# timeout: 300
# tier: all  app_sanitizer reserves as much at addresses of its own, and reports on the same
# paths: tests/vm/programs/apps/debuggee.c tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

filter() {
	sed -E 's/==[0-9]+==/==N==/; s/0x[0-9A-F]+/ADDRESS/g'
}
same valgrind valgrind --leak-check=no "$BUILT/debuggee"
took memcheck-amd64- 100
cat "$WORK/valgrind"
grep -qF 'ERROR SUMMARY: 0 errors' "$WORK/valgrind" || fail "valgrind did not get to its summary"
