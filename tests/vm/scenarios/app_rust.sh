#!/bin/bash
# Rust: threads and patterns of allocation, with glibc's malloc.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: all  app_openmp and app_python allocate in threads, too
# paths: tests/vm/programs/apps/rust/ tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

same rust "$BUILT/rust" "$SCALE"
took rust 60
cat "$WORK/rust"
# Every allocation its own mapping: thousands of small mmap and munmap.
export MALLOC_MMAP_THRESHOLD_=16384 MALLOC_ARENA_MAX=2
same rust-mmap "$BUILT/rust" "$SCALE"
took rust 60
