#!/bin/bash
# system(), popen() and shell pipelines work in a job.
# pool: 512M
# tier: newest  inherit asks on every kernel what children get
# paths: kernel/task/
. "$(dirname "$0")/../guest/lib.sh"

sum=$(hpmmap run -- sh -c 'seq 20000 | sort -rn | awk "{ s += \$1 } END { print s }"')
[ "$sum" = 200010000 ] || fail "the pipeline prints '$sum'"

hpmmap run --strict -- perl -e '
	my $big = "x" x (32 << 20);
	system("exit 3;") >> 8 == 3 or die "system: $? $!";
	my $out = `echo hello | tr a-z A-Z`;
	$out eq "HELLO\n" or die "popen: $out";
	for (1 .. 10) { my $pid = fork; if (!$pid) { exit(length($big) == 32 << 20 ? 0 : 1) } waitpid($pid, 0); $? == 0 or die "fork: $?" }
	substr($big, 12345, 1) eq "x" or die "content";
'

hpmmap run -- python3 -c '
import subprocess
from concurrent.futures import ThreadPoolExecutor

def one(n):
    return int(subprocess.run(["sh", "-c", f"echo {n} | cat"], capture_output=True, check=True).stdout)

with ThreadPoolExecutor(4) as pool:
    assert list(pool.map(one, range(20))) == list(range(20))
'
