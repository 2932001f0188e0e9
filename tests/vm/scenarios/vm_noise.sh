#!/bin/bash
# Noise inside a virtual machine, by instructions: hpmmap bench noise in a kernel on KVM, alone and beside a program of
# the host on the same CPU, and on the host itself. The loop loses to the neighbour what the host takes for it, and alone
# what the ticks of the two kernels cost. parallel_vm_noise has a partition, for which the host needs more CPUs.
# machine: vm
# pool: 512M
# timeout: 600
# takes: 130
# tier: all  an emulated machine in an emulated machine is slow
# paths: bench/noise/ crates/hpmmap-bench/src/noise/ tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

INNER_OUTER=yes
inner_setup
DIR=/tmp/vm-noise
inner_ram $DIR/ram
bench=(hpmmap bench noise --icount --no-accesses --loop plain --method 4k --seconds 1 --json)
"${bench[@]}" >$DIR/host
inner_start m -name guest,debug-threads=on -m 256M -machine memory-backend=ram \
	-object memory-backend-file,id=ram,size=256M,mem-path=$DIR/ram,share=on,prealloc=on
inner_up m
inside() {
	inner_bash m "${bench[*]} 2>said || { cat said; exit 1; }" >"$DIR/$1" ||
		fail "$1: $(cat "$DIR/$1")"
}
inside alone
yes >/dev/null &
busy=$!
inside beside
kill $busy
wait $busy || true
python3 - $DIR/{host,alone,beside} <<'PYTHON'
import json
import sys

noise = []
for path in sys.argv[1:]:
    [one] = json.load(open(path))["detours"]
    [cpu] = one["cpus"]
    noise.append(cpu["detour_ns"] / cpu["elapsed_ns"])
    print(f"{path}: {noise[-1]:.4%} in {cpu['detours']} detours, longest {cpu['longest_ns']}, "
          f"{cpu['rounds']} rounds in {cpu['elapsed_ns']} instructions")
host, alone, beside = noise
# Alone the loop loses little; beside a program that has the same CPU half.
assert 0 < host < 0.01 and host < alone < 0.1 and 0.3 < beside < 0.7
PYTHON
inner_off m
umount $DIR/ram
expect_pool_free
