#!/bin/bash
# GCC and make compile bzip2 and run its own tests: the same objects, byte for byte.
# machine: apps
# pool: 1G
# timeout: 240
# scales: yes
# tier: all  app_shell starts more processes, and app_stress forks
# paths: tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

cat >"$WORK/build" <<'BUILD'
set -e
cp -r "$1" bzip2
cd bzip2
make --silent --jobs=3 CFLAGS="$2" >make.log 2>&1 || { cat make.log; exit 1; }
for file in *.o libbz2.a bzip2; do
	sha256sum $file
done
tail -n 4 make.log
BUILD
options='-O0 -g'
[ "$SCALE" = 1 ] || options='-O2 -g'
same compiler sh "$WORK/build" "$BUILT/bzip2" "$options"
took make 8
took cc1 100 8
took as 60 8
took ld 8
took bzip2 30 6
cat "$WORK/compiler"
