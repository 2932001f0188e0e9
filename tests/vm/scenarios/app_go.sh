#!/bin/bash
# Go: goroutines, garbage, memory given back, signals that become errors.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: all  app_java is a runtime with a collector and threads, too
# paths: tests/vm/programs/apps/app.go tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

export GOMAXPROCS=4
same go "$BUILT/go" "$SCALE"
took go 100
cat "$WORK/go"
