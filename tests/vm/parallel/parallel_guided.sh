#!/bin/bash
# Random sequences of calls from launches of two users, with threads, children, and calls on the memory
# of other processes; guided by their coverage on a kernel with KCOV. tests/fuzz/guided.c.
# machine: parallel
# pool: 1G
# timeout: 400
# scales: yes
# tier: parallel  only CPUs that run at once tell anything new
. "$(dirname "$0")/../guest/parallel.sh"

guided $((DEADLINE - SECONDS))
