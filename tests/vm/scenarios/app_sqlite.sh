#!/bin/bash
# SQLite: inserts, joins, windows, deletes, vacuum, integrity check; the same file.
# machine: apps
# pool: 1G
# timeout: 120
# scales: yes
# tier: all  app_python maps files and grows memory, too
# paths: tests/vm/programs/apps/tables.sql tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

cat >"$WORK/tables" <<'TABLES'
set -e
sqlite3 -batch table.db ".param set :scale $2" ".read $1"
sha256sum table.db
sqlite3 -batch table.db .dump | sha256sum
TABLES
same sqlite sh "$WORK/tables" "$APPS/tables.sql" "$SCALE"
took sqlite3 20 2
cat "$WORK/sqlite"
