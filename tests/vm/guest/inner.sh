# shellcheck shell=bash
# Guests inside of the guest: QEMU with KVM, which the emulated CPU has as AMD's SVM. After lib.sh:
#
#	inner_setup [firmware]			once; skips where there is no KVM
#	inner_start NAME OPTION...		QEMU's options: at least -m and the memory
#	inner_up NAME				waits until its init runs
#	inner NAME SCRIPT			runs a script in it, busybox' sh; its output and its status
#	inner_bash NAME SCRIPT			the same by bash, with the guest's programs, in /tmp; needs INNER_OUTER=yes
#	inner_qmp NAME EXECUTE [ARGUMENTS]	prints what QEMU returns, as JSON; fails if that is an error
#	inner_off NAME				powers it off, and waits for the end of QEMU
#	inner_kill NAME				SIGKILL
#	inner_ram DIR [OPTION]			mounts pool memory there for their RAM, by pages of 2 MB
#	inner_leave				kills all QEMUs and unmounts their RAM: inner_ram makes it the trap of EXIT
#
# They boot a kernel, on machine "vm" only. After "inner_setup firmware" they have the firmware of programs/apps/firmware.S, on
# any machine: it writes to all memory, tells the console what it read, and waits.
#
# In $INNER/NAME: console, log (QEMU's output), pid, events. With INNER_OUTER=yes the machine has the guest's files
# at /outer, read-only, but for /tmp, which is its own. It cannot migrate then.

INNER=/tmp/inner
# The kernel in it. Linux 7.3 does not boot on KVM of the emulated CPU: there, INNER_KVER names an older one, of which
# inner_image.sh has been run on the machine.
INNER_KVER=${INNER_KVER:-$HPMMAP_KVER}
INNER_IMAGE=$HPMMAP_ROOT/build/inner/$INNER_KVER
INNER_QEMU=${INNER_QEMU:-qemu-system-x86_64}
# What runs QEMU, such as (hpmmap run --partition P --).
INNER_UNDER=()
INNER_MOUNTS=()
# shellcheck disable=SC2054 # commas within options
INNER_MACHINE=(-machine q35,accel=kvm,smbus=off,sata=off,i8042=off -cpu host -nodefaults -no-user-config -display none -no-reboot)
# Of its kernel. To compare the TSC with other clocks takes long there.
INNER_APPEND="console=ttyS0 quiet swiotlb=noforce panic=-1 nokaslr mitigations=off nowatchdog no_timer_check tsc=reliable cryptomgr.notests random.trust_cpu=on"
# By the clock of machine "vm", which leaps ahead while it waits for the host.
INNER_SECONDS=${INNER_SECONDS:-3600}

inner_setup() {
	modprobe -q kvm_amd || skip "this kernel has no kvm_amd"
	[ -e /dev/kvm ] || skip "there is no /dev/kvm"
	command -v "$INNER_QEMU" >/dev/null || skip "there is no $INNER_QEMU"
	mkdir -p $INNER
	if [ "${1-}" = firmware ]; then
		INNER_BOOT=(-bios "$HPMMAP_ROOT/build/tests-vm/apps/firmware.bin")
		return
	fi
	INNER_BOOT=(-kernel "$INNER/vmlinux" -initrd "$INNER/initrd")
	local image=$HPMMAP_ROOT/tests/vm/guest/inner_image.sh
	[ "$INNER_IMAGE/initrd" -nt "$image" ] && [ "$INNER_IMAGE/initrd" -nt "${image%_image.sh}_init" ] ||
		bash "$image" "$INNER_KVER" "$INNER_IMAGE"
	# QEMU reads it faster from here.
	cp "$INNER_IMAGE/vmlinux" "$INNER_IMAGE/initrd" $INNER
}

inner_start() {
	local dir=$INNER/$1 name=$1 outer=()
	shift
	# shellcheck disable=SC2054 # commas within options
	[ "${INNER_OUTER:-no}" = no ] || outer=(
		-fsdev local,id=outer,path=/,security_model=none,readonly=on,multidevs=remap
		-device virtio-9p-pci,fsdev=outer,mount_tag=outer)
	[ "${INNER_BOOT[0]}" != -kernel ] || set -- -append "$INNER_APPEND" "$@"
	rm -rf "$dir"
	mkdir -p "$dir"
	mkfifo "$dir"/{run,qmp}.{in,out}
	# They stay open, so that what is sent before QEMU has opened them is not lost.
	exec {INNER_HELD}<>"$dir/run.in" {INNER_HELD}<>"$dir/qmp.in"
	: >"$dir/events"
	"${INNER_UNDER[@]}" "$INNER_QEMU" -name "$name" "${INNER_MACHINE[@]}" -pidfile "$dir/pid" \
		-serial "file:$dir/console" -serial "pipe:$dir/run" -qmp "pipe:$dir/qmp" \
		"${INNER_BOOT[@]}" "${outer[@]}" "$@" </dev/null >"$dir/log" 2>&1 &
}

# inner_lives NAME: its QEMU, what starts that, or what it became with -daemonize.
inner_lives() {
	pgrep -f -- "-pidfile $INNER/$1/pid " >/dev/null
}

# inner_lost NAME WHAT: fails, with what there is to see.
inner_lost() {
	{
		inner_lives "$1" && echo "its QEMU lives" || echo "its QEMU has ended"
		tail -n 20 "$INNER/$1/console" "$INNER/$1/log"
	} >&2
	fail "inner guest $1: $2"
}

# inner_line NAME FILE SECONDS: a line into $REPLY.
inner_line() {
	local tries=$3 line=
	until IFS= read -r -t 1 REPLY <>"$INNER/$1/$2"; do
		line+=$REPLY
		[ $((tries -= 1)) -gt 0 ] || inner_lost "$1" "no answer in $3 seconds"
		inner_lives "$1" || inner_lost "$1" "no answer"
	done
	REPLY=$line${REPLY%$'\r'}
}

inner_up() {
	until inner_line "$1" run.out "$INNER_SECONDS" && [ "$REPLY" = INNER-UP ]; do :; done
}

inner() {
	local token=INNER-$RANDOM$RANDOM
	echo "$token $(base64 -w 0 <<<"$2")" 1<>"$INNER/$1/run.in"
	# An empty line before the token is its own: the output may end without one.
	while inner_line "$1" run.out "$INNER_SECONDS"; do
		[ "${REPLY% *}" != $token ] || return "${REPLY#* }"
		[ -z "$REPLY" ] || echo "$REPLY"
	done
}

inner_bash() {
	inner "$1" "cat >/tmp/inner.bash <<'INNER-BASH'
$2
INNER-BASH
		chroot /outer /usr/bin/env HOME=/tmp LANG=C.UTF-8 PATH=$PATH bash -ec 'cd /tmp; . ./inner.bash'"
}

inner_ram() {
	mkdir -p "$1"
	mount -t hpmmap -o "pagesize=2M${2:+,$2}" none "$1"
	INNER_MOUNTS+=("$1")
	trap inner_leave EXIT
}

inner_leave() {
	pkill -9 -P $$ || true
	umount -l "${INNER_MOUNTS[@]}" 2>/dev/null || true
}

inner_qmp() {
	local dir=$INNER/$1 id=q$RANDOM
	if [ ! -e "$dir/greeted" ]; then
		: >"$dir/greeted"
		# What is written to a pipe that nobody has open is lost.
		until inner_line "$1" qmp.out "$INNER_SECONDS" && [[ $REPLY == *'"QMP"'* ]]; do :; done
		inner_qmp "$1" qmp_capabilities >/dev/null
	fi
	echo "{\"execute\": \"$2\", \"arguments\": {${3-}}, \"id\": \"$id\"}" 1<>"$dir/qmp.in"
	while inner_line "$1" qmp.out "$INNER_SECONDS"; do
		case $REPLY in
		*"\"id\": \"$id\""*)
			echo "$REPLY"
			[[ $REPLY != *'"error": '* ]]
			return
			;;
		*) echo "$REPLY" >>"$dir/events" ;;
		esac
	done
}

inner_gone() {
	! inner_lives "$1"
}

inner_off() {
	echo "INNER-OFF $(base64 -w 0 <<<'poweroff -f')" 1<>"$INNER/$1/run.in"
	within "$INNER_SECONDS" inner_gone "$1" || inner_lost "$1" "it does not power off"
}

# What becomes a daemon may be another process by now.
inner_killed() {
	pkill -9 -f -- "-pidfile $INNER/$1/pid " || true
	inner_gone "$1"
}

inner_kill() {
	within 60 inner_killed "$1" || inner_lost "$1" "its QEMU does not end"
}
