#!/bin/bash
# A machine with the firmware of firmware.S: qemu.sh FILE COMMAND... ends it when the file is there.
set -euo pipefail

file=$1
shift
{
	for ((tries = 300; tries > 0; tries--)); do
		[ ! -e "$file" ] || break
		sleep 0.1
	done
	echo
} | "$@"
