#!/bin/bash
# Go: goroutines, garbage, memory given back, signals that become errors.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
. "$(dirname "$0")/../guest/apps.sh"

export GOMAXPROCS=4
same go "$BUILT/go" "$SCALE"
took go 100
cat "$WORK/go"
