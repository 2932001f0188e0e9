# A virtual machine as a batch job of Slurm: its RAM counts for the job's grant, one that needs more than the grant does
# not start, and all of it comes back after scancel and kill -9. Its firmware counts aloud.
# suites: bookworm
# files: count.S

slurm_fails_loudly
LOG=/tmp/vm.log
free_is() { [ $(($(cat ${POOL%total_bytes}free_bytes) / MIB)) = "$1" ]; }
counts() { [ -s $LOG ]; }
# vm MIB: as a job of alice's that is granted 256 MB.
vm() {
	as alice srun --gres=hpmmap:256M qemu-system-x86_64 -machine q35,accel=kvm,memory-backend=ram -cpu host -nodefaults -display none \
		-m "$1M" -object "memory-backend-file,id=ram,size=$1M,mem-path=/mnt/hp,share=on,prealloc=on" \
		-bios /tmp/count.bin -serial file:$LOG
}
held() { hpmmap pool limit --list | grep -E '/job_[0-9]+ +256M +256M +192M$'; }
# start: $job runs with 192 MB.
start() {
	rm -f $LOG
	vm 192 >/tmp/job &
	job=$!
	within 240 held || fail "the job does not hold 192 of 256 MB: $(hpmmap pool limit --list; cat /tmp/job)"
	within 600 counts || fail "the guest of the job does not count: $(cat /tmp/job)"
	free_is $((512 - 192)) || fail "the pool: $(hpmmap pool list)"
}

step 'a node'
gcc -m32 -nostdlib -static -Wl,-Ttext=0,--oformat=binary,--build-id=none -o /tmp/count.bin /srv/count.S ||
	fail 'count.S does not build'
chmod 644 /tmp/count.bin
modprobe kvm_amd || fail 'no KVM'
mkdir -p /mnt/hp && mount -t hpmmap -o pagesize=2M none /mnt/hp || fail 'no mount'
adduser --quiet alice kvm || fail 'alice may not use KVM'
hpmmap pool limit --user alice --size none
within 240 idle || fail "the node is not idle: $(sinfo -N)"

step 'RAM of the grant, and scancel'
start
as alice scancel --user alice
# QEMU ends well.
wait $job
grep CANCELLED /tmp/job || fail "the job is not cancelled: $(cat /tmp/job)"
nothing_left

step 'more than the grant'
said=$(vm 320) && fail 'a guest of 320 MB starts in a job of 256 MB'
echo "$said"
[ "$(grep -c 'unable to map backing store for guest RAM: Cannot allocate memory' <<<"$said")" = 1 ] || fail 'QEMU says something else'
nothing_left

step 'kill -9'
start
pkill -KILL -u alice -f '^[^ ]*qemu-system-x86_64' || fail 'there is no QEMU'
wait $job && fail 'QEMU was not killed'
nothing_left
umount /mnt/hp || fail 'the mount is in use'
