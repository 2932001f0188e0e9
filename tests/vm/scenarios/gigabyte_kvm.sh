#!/bin/bash
# A virtual machine whose memory one entry of 1 GB maps, by KVM in the guest: splits and joins leave its translations
# as they are, and what is discarded or unmapped goes from them. The same of a program that is not registered, whose
# memory is a file of a mount with pagesize=1G.
# machine: gigabytes
# pool: 3584M
# timeout: 240
# takes: 90
# tier: newest  KVM's notifiers are the same on all kernels
# paths: kernel/as/map/gigabyte.* kernel/as/change/join.* tests/vm/programs/gigabyte_kvm.c kernel/fs/ tests/guest/kvm_memory.c
. "$(dirname "$0")/../guest/lib.sh"

modprobe -q kvm_amd || skip "this kernel has no kvm_amd"
[ -e /dev/kvm ] || skip "there is no /dev/kvm"
[ "$(cat $SYSFS/gigabytes)" = yes ] || skip "no entries of 1 GB: $(cat $SYSFS/gigabytes)"
hpmmap pool limit --default --size 100% >/dev/null
hpmmap run --page-size 1G -- "$HPMMAP_ROOT/build/tests-vm/gigabyte_kvm"
expect_pool_free
HPMMAP_TEST_EXPECT=native HPMMAP_TEST_ONLY=of_a_mount "$HPMMAP_ROOT/build/tests/kvm_memory" | tee /tmp/said
grep -q '\[       OK \] of_a_mount' /tmp/said || fail "not of a mount"
expect_pool_free
