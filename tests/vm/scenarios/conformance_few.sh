#!/bin/bash
# Every conformance case once: of one alignment, in the main process.
# takes: 40
# machine: programs
# timeout: 300
# pool: 2G
# tier: all  conformance asks the same of the newest kernel; on the others sem_ and fuzz_ compare with Linux
# paths: kernel/as/ kernel/call/ kernel/task/ kernel/compat/ tests/conformance/
export HPMMAP_CONFORMANCE=few HPMMAP_CONFORMANCE_RECORDS=/tmp/records
exec bash "$(dirname "$0")/conformance.sh"
