#!/bin/bash
# OpenJDK: collectors, threads, direct buffers, exec, stack overflow, heap limit.
# takes: 40
# machine: apps
# pool: 1G
# timeout: 240
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/App.java kernel/as/map/range.* tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

java=$(echo /usr/lib/jvm/java-17-openjdk-*/bin/java)
run_java() {
	same "java $1" "$java" "$1" -Xms64m -Xmx192m -Xshare:auto -cp "$BUILT" App "$SCALE"
	took java 100
}
run_java -XX:+UseG1GC
cat "$WORK/java -XX:+UseG1GC"
[ "$SCALE" = 1 ] || for option in -XX:+UseSerialGC -XX:+UseParallelGC -XX:+UseZGC -XX:+AlwaysPreTouch \
	-XX:+UseTransparentHugePages -Xint; do
	run_java $option
done
