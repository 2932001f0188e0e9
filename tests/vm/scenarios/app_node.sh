#!/bin/bash
# Node.js: the heap of V8, workers, buffers, WebAssembly, children.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: all  app_java is a runtime with a collector and threads, too
# paths: tests/vm/programs/apps/app.js tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

same node /usr/bin/node --expose-gc "$APPS/app.js" "$SCALE"
took node 100
/usr/bin/node --version
cat "$WORK/node"
