#!/bin/bash
# The program image: too little memory for it, ordinary programs, uprobes.
# pool: 128M
# timeout: 240
# paths: kernel/task/image.* kernel/task/exec.* tests/vm/programs/registered.c
. "$(dirname "$0")/../guest/lib.sh"

programs=$HPMMAP_ROOT/build/tests

# 120 MB of bss do not fit: the program is Linux's, and complete.
hpmmap pool limit --user root --size 100M
for policy in '' --strict; do
	env HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_IMAGE=no HPMMAP_TEST_ONLY='[rmcpb]*' \
		hpmmap run --image $policy -- "$programs/image_static" >/tmp/out || { cat /tmp/out; fail "without memory ($policy)"; }
	[ "$(grep -c '       OK' /tmp/out)" -ge 5 ] || { cat /tmp/out; fail "the tests did not run"; }
	expect_pool_free
done
hpmmap pool limit --user root --size default
mine='
import os
for one in open("/proc/hpmmap").read().split("\nid "):
    values = dict(line.split() for line in one.splitlines()[1:])
    if int(values["pid"]) == os.getpid():
        print(values["image_bytes"], values["fallbacks"])'
read -r bytes fallbacks < <(hpmmap run --image --strict -- python3 -c "$mine")
[ "$bytes" -gt $MIB ] && [ "$fallbacks" = 0 ] || fail "python3: $bytes bytes of image, $fallbacks fallbacks"
read -r bytes fallbacks < <(hpmmap run -- python3 -c "$mine")
[ "$bytes" = 0 ] || fail "python3 without --image: $bytes bytes of image"
# The heap takes most of what this user may have.
hpmmap pool limit --user $USER_ID --size 4M
read -r bytes fallbacks < <(as_member hpmmap run --image -- python3 -c "$mine")
hpmmap pool limit --user $USER_ID --size default
[ "$bytes" = 0 ] && [ "$fallbacks" -gt 0 ] || fail "python3 with 4 MB: $bytes bytes of image, $fallbacks fallbacks"

# While it is read, from a server that does not answer, it can be killed.
[ "$("$HPMMAP_ROOT/build/tests-vm/away" hpmmap run --image --)" = ended ] || fail "a program whose server is away cannot be killed"
expect_pool_free

# What it says is what it says without.
work='for n in 1 2 3; do sort -r /usr/share/common-licenses/GPL-3 | sha256sum; done; perl -e "print 6 * 7"; ls /usr/bin | wc -l'
[ "$(hpmmap run --image -- bash -c "$work")" = "$(bash -c "$work")" ] || fail "another output with --image"

# A debugger sets breakpoints in text that is ours, from the start and later.
gdb_output=$(hpmmap run --image -- timeout 100 gdb -nx -batch -ex 'break main' -ex run -ex 'info inferiors' \
	-ex continue "$HPMMAP_ROOT/build/tests-vm/registered" 2>&1) || fail "gdb: $gdb_output"
grep -q 'Breakpoint 1, main' <<<"$gdb_output" || fail "no breakpoint: $gdb_output"
grep -qx registered <<<"$gdb_output" || fail "the program under gdb is not registered: $gdb_output"
grep -q 'exited normally' <<<"$gdb_output" || fail "the program did not go on: $gdb_output"

# A program with a uprobe in its text keeps Linux's text, and the probe works.
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
cp "$HPMMAP_ROOT/build/tests-vm/registered" /run/probed
offset=$(python3 - /run/probed <<'END'
import subprocess, sys
def lines(*command):
    return [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
address = next(int(l[0], 16) for l in lines("nm", sys.argv[1]) if l[2:] == ["main"])
for line in lines("readelf", "-lW", sys.argv[1]):
    if line[:1] == ["LOAD"]:
        offset, start, size = int(line[1], 16), int(line[2], 16), int(line[4], 16)
        if start <= address < start + size:
            print(hex(address - start + offset))
END
)
echo "p:image_main /run/probed:$offset" >/sys/kernel/tracing/uprobe_events
echo 1 >/sys/kernel/tracing/events/uprobes/image_main/enable
output=$(hpmmap run --image -- /run/probed) || fail "the program with a uprobe: status $?"
hits=$(awk '$2 == "image_main" { print $3 }' /sys/kernel/tracing/uprobe_profile)
echo 0 >/sys/kernel/tracing/events/uprobes/image_main/enable
echo >/sys/kernel/tracing/uprobe_events
rm /run/probed
[ "$output" = registered ] || fail "the program with a uprobe says $output"
[ "$hits" = 1 ] || fail "the uprobe was hit $hits times"
