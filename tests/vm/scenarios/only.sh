#!/bin/bash
# run --only: programs that match are registered; the others belong to the launch but use ordinary memory.
# pool: 256M
# tier: newest  names are matched in the same way on every kernel
# paths: kernel/task/ kernel/chardev.c tests/vm/programs/registered.c
. "$(dirname "$0")/../guest/lib.sh"

registered=$HPMMAP_ROOT/build/tests-vm/registered
dir=/run/only
rm -rf $dir
mkdir -p $dir/bin
mount -t tmpfs -o suid,mode=755 tmpfs $dir
mkdir $dir/bin
for name in app1 app2 helper; do
	cp "$registered" $dir/bin/$name
done
cat >$dir/bin/script.sh <<-'SCRIPT'
	#!/bin/sh
	n=0
	while read -r name value; do [ $name != id ] || n=$((n + 1)); done </proc/hpmmap
	echo $n
SCRIPT
chmod 755 $dir/bin/script.sh

# expect_only PATTERNS PROGRAMS: which of helper, app1 and app2 are registered.
expect_only() {
	local patterns=() want=$2 name got=
	for name in $1; do
		patterns+=(--only "$name")
	done
	for name in $(cd $dir/bin && set -f && hpmmap run "${patterns[@]}" -- bash -c \
		"for p in helper app1 app2; do echo \$p=\$($dir/bin/\$p); done; cd $dir; exec bin/app1"); do
		case $name in
		*=registered) got+="${name%=*} " ;;
		*=native) ;;
		*) got+="then:$name " ;;
		esac
	done
	[ "$got" = "$want " ] || fail "--only $1: $got instead of $want"
}

set -f
expect_only 'app*' 'app1 app2 then:registered'
expect_only 'app[2-9]' 'app2 then:native'
expect_only 'app1 helper' 'helper app1 then:registered'
expect_only 'app' 'then:native'
expect_only '*/bin/app1' 'app1 then:registered'
expect_only '*/only/app1' 'then:native'
expect_only '*' 'helper app1 app2 then:registered'
set +f

# A script by its own name, and by its interpreter's.
[ "$(hpmmap run --only 'script*' -- $dir/bin/script.sh)" = 1 ] || fail "a script is not registered by its name"
[ "$(hpmmap run --only sh -- bash -c "$dir/bin/script.sh; :")" = 1 ] || fail "a script is not registered by its interpreter"

# A program that matches leaves its memory when it becomes one that does not, and that has none.
free=$(hpmmap run --only 'python3*' -- python3 -c '
import os, sys
held = b"x" * (32 << 20)
os.execv("/bin/cat", ["cat", *sys.argv[1:]])' "$SYSFS/nodes/node0/free_bytes")
[ "$free" = "$(pool_bytes total_bytes)" ] || fail "who is left out finds $free bytes free"

# Set-user-ID still ends it, matching or not. Members count, with and without a context.
chmod 4755 $dir/bin/app2
[ "$(as_member hpmmap run --only 'app*' -- bash -c "$dir/bin/app2; $dir/bin/app1; :")" = "$(printf 'native\nregistered')" ] ||
	fail "a set-user-ID program and the next one"
umount $dir
hpmmap run --report /tmp/only.json --only 'python3*' -- bash -c 'python3 -c "held = b\"x\" * (32 << 20)"; /bin/true; :'
hpmmap run --report /tmp/none.json --verbose --only nothing -- bash -c '/bin/true; :' 2>/tmp/none.txt
python3 - <<'PYTHON'
import json

only = json.load(open("/tmp/only.json"))
executed = only["processes"]["executed"]
assert executed["registered"] == 1 and executed["left_out"] == 2 and only["processes"]["total"] == 3, only["processes"]
assert [one["name"] for one in only["programs"]] == ["python3"], only["programs"]
assert only["undisturbed"] is True and only["memory"]["peak_bytes"] >= 32 << 20, only["findings"]
none = json.load(open("/tmp/none.json"))
assert none["verdict"] == "unknown" and none["memory"]["peak_bytes"] == 0, none
PYTHON
grep 'the launch left all of them out' /tmp/none.txt >/dev/null || fail "$(cat /tmp/none.txt)"
expect 125 hpmmap run --only '' -- true
expect 125 hpmmap run --only "$(printf 'x%.0s' {1..256})" -- true
expect_pool_free
