#!/bin/bash
# Five minutes of random sequences of calls, guided by their coverage of the kernel.
# pool: 1G
# timeout: 600
# scales: yes
. "$(dirname "$0")/../guest/lib.sh"

guided $((300 * ${HPMMAP_TEST_SCALE:-1}))
