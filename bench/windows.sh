#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: see README.md.
set -euo pipefail

hpmmap pool add --node 0 --size 1536M --leave 256M >/dev/null
sleep 5
# The emulator counts each round of a repeated string instruction: one for each byte here.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
hpmmap run --strict -- build/bench/windows 1024
grep . /sys/kernel/hpmmap/windows/entries_*
