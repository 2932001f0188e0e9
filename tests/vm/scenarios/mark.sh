#!/bin/bash
# Marked programs register themselves if their user may; otherwise they run as without the mark.
# takes: 25
# pool: 512M
# timeout: 300
# tier: newest  what the kernel does when a program is executed, image and inherit ask on every kernel
# paths: kernel/task/mark.* kernel/task/image.* crates/hpmmap/src/mark/ tests/vm/programs/registered.c
. "$(dirname "$0")/../guest/lib.sh"

programs=$HPMMAP_ROOT/build/tests
mkdir -p /run/mark
mount -t tmpfs -o suid,mode=755 tmpfs /run/mark
cd /run/mark
cp "$HPMMAP_ROOT/build/tests-vm/registered" plain
cp plain marked
hpmmap mark marked >/dev/null
[ "$(hpmmap mark --show marked)" = 'marked: marked (page size 2M, image)' ] || fail "$(hpmmap mark --show marked)"
says() { # WANT COMMAND...
	local want=$1 got
	shift
	got=$("$@" | xargs)
	[ "$got" = "$want" ] || fail "'$got' instead of '$want': $*"
}

# Users who may open the device.
says registered ./marked
says native ./plain
says registered as_member ./marked
says native as_user ./marked
says native as_user unshare --user --map-root-user ./marked
chmod 000 /dev/hpmmap
says native as_member ./marked
chmod 660 /dev/hpmmap
# A device of the user's own making does not count.
says native as_user unshare --user --map-root-user --mount bash -c 'mount -t tmpfs tmpfs /dev && touch /dev/hpmmap && ./marked'

# As under hpmmap run: what it executes and its children, if not told otherwise.
says 'registered registered' ./marked ./plain
says 'native registered registered' ./plain ./marked ./plain
cp marked left_out
hpmmap mark --no-inherit left_out >/dev/null
says 'registered registered' ./left_out ./plain
cp "$(command -v bash)" shell
hpmmap mark --no-inherit shell >/dev/null
says 'native registered' ./shell -c './plain; ./marked; :'
# In a job: the job's options. A program left out of one registers on its own.
says 'registered registered' hpmmap run -- ./marked ./plain
says 'native registered' hpmmap run --no-inherit -- bash -c './plain; ./marked; :'

# A set-user-ID copy of a marked program.
cp marked setuid
chmod 4755 setuid
says native as_member ./setuid
says 'registered native' as_member ./marked ./setuid

# Who may mark, and what.
mkdir --mode 1777 shared
cp plain shared/app
cp plain shared/mine
chown $USER_ID:$USER_ID shared/mine plain
chmod 755 shared/mine
expect_error 1 'shared/app: belongs to root: only they or root can' as_user hpmmap mark shared/app
expect_error 1 'plain: cannot make a file in /run/mark: Permission denied' as_user hpmmap mark plain
as_user hpmmap mark shared/mine
[ "$(stat -c '%u:%g %a' shared/mine)" = "$USER_ID:$USER_ID 755" ] || fail "owner or mode is lost: $(stat shared/mine)"
expect_error 1 'setuid: is set-user-ID' hpmmap mark --strict setuid
expect_error 1 'libc.so.6: is a shared library' hpmmap mark --show /lib/x86_64-linux-gnu/libc.so.6
[ -z "$(find . -name '.hpmmap*')" ] || fail "temporary files are left"

# Options arrive.
cp "$(command -v sleep)" sleeper
hpmmap mark --strict --page-size 1G --no-image sleeper >/dev/null
./sleeper 60 &
job=$!
within 10 is_registered $job || fail "the marked program does not register"
[ "$(context_of $job strict)" = 1 ] || fail "not strict"
[ "$(context_of $job page_size)" = $((1 << 30)) ] || fail "page size $(context_of $job page_size)"
[ "$(context_of $job image_bytes)" = 0 ] || fail "an image without the option"
expect 1 rmmod hpmmap
kill -KILL $job
wait $job || true
expect_pool_free
hpmmap mark sleeper >/dev/null
./sleeper 60 &
job=$!
within 10 is_registered $job || fail "the marked program does not register"
[ "$(context_of $job image_bytes)" -gt 4096 ] && [ "$(context_of $job strict)" = 0 ] || fail "the new mark does not count"
kill -KILL $job
wait $job || true
expect_pool_free

# dd has a buffer of 16 MB; the reader of the pipe lets it wait.
cp "$(command -v dd)" copier
hpmmap mark --placement first-touch copier >/dev/null
expect_error 2 'first-touch places 2M at a time' hpmmap mark --placement first-touch --page-size 1G copier
mkfifo pipe
tail -f /dev/null <pipe &
reader=$!
./copier if=/dev/zero of=pipe bs=16M count=1 status=none &
job=$!
touched() { [ "$(cat "$SYSFS"/jobs/*/stat 2>/dev/null | awk '$1 == "faults_first_touch" { print $2 }')" -ge 7 ]; }
within 10 touched || fail "not placed at the first touch: $(cat "$SYSFS"/jobs/*/stat)"
kill -KILL $job $reader
wait $job $reader || true
expect_pool_free
# In two ways at once: no tool of ours writes that.
cp marked both
printf '\x14\x00' | dd of=both bs=1 seek=48 conv=notrunc status=none
says native ./both
expect_error 1 'options that exclude each other' hpmmap mark --show both
hpmmap unmark both >/dev/null
cmp plain both || fail "unmark does not restore a mark that contradicts itself"

# All of a program with threads, libraries and children, without a launcher, and in a job without --image.
mkdir lib
cp "$programs/lib/image_lib.so" lib
for name in image_pie image_static_pie_2m; do
	cp "$programs/$name" .
	hpmmap mark "$name" >/dev/null
	for launcher in '' 'hpmmap run --'; do
		env HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_IMAGE=yes $launcher ./$name >out || { cat out; fail "$launcher $name"; }
		grep -qx "HPMMAP-TEST-PASS $name" out || { cat out; fail "$launcher $name"; }
	done
done

# Killed and failed on the way.
rounds=6
! longer || rounds=20
for round in $(seq $rounds); do
	./marked >/dev/null &
	job=$!
	sleep "0.0$((RANDOM % 10))"
	kill -KILL $job 2>/dev/null || true
	wait $job 2>/dev/null || true
done
head -c 200 marked >broken
chmod 755 broken
for round in $(seq $rounds); do
	expect 126 bash -c './broken; exit $?' 2>/dev/null
done
expect_pool_free

# A mark of a later version, and tools that rewrite the file.
cp marked newer
printf '\x08\x02' | dd of=newer bs=1 seek=48 conv=notrunc status=none
says native ./newer
strip -o stripped marked
[ "$(hpmmap mark --show stripped)" = 'stripped: marked (page size 2M, image)' ] || fail "strip took the mark away"
says registered ./stripped
ldd ./marked >/dev/null || fail "ldd does not know a marked program"
# It is ld.so that is executed here.
says native /lib64/ld-linux-x86-64.so.2 ./marked

# The file comes back as it was.
hpmmap unmark marked stripped >/dev/null
cmp plain marked || fail "unmark does not restore the file"
says native ./marked

# Without pools and without the module it runs as ever.
hpmmap mark marked >/dev/null
set_pool 0
says native ./marked
cp "$(type -P echo)" echo
hpmmap mark echo >/dev/null
unload_module
[ "$(./echo as ever)" = 'as ever' ] || fail "a marked program does not run without the module"
load_module
set_pool 512M
says registered ./marked
cd /
umount /run/mark
