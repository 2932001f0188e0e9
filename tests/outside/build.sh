#!/bin/bash
# Build the kernel's own tests of memory, from Debian's source of the newest series, into
# build/outside. Repeated only if this script or the source package has changed.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"

PACKAGE=linux-source-6.12
SUITES=(mm mincore proc)

"$ROOT/scripts/setup" kernel "$PACKAGE" >&2
"$ROOT/scripts/setup" outside >&2

target=$BUILD/outside
key=$(sha256sum "$0" | cut -c 1-16)-$(dpkg-query -W -f '${Version}' $PACKAGE)
[ "$(cat "$target/built" 2>/dev/null)" != "$key" ] || exit 0

echo "outside: building the kernel's selftests" >&2
rm -rf "$target"
mkdir -p "$target/source"
log=$target/build.log
source=$target/source
parts=(Makefile arch/x86 include lib/test_hmm_uapi.h mm/gup_test.h scripts tools/arch/x86 tools/build tools/include tools/scripts)
for file in 'kselftest*.h' lib.mk 'kselftest/*' x86 "${SUITES[@]}"; do
	parts+=("tools/testing/selftests/$file")
done
tar --extract --xz --file "/usr/src/$PACKAGE.tar.xz" --directory "$source" --strip-components=1 \
	--wildcards --no-wildcards-match-slash "${parts[@]/#/$PACKAGE/}"
make -C "$source" headers >"$log" 2>&1 || die "no headers: the output is in $log"
for suite in "${SUITES[@]}"; do
	# What is 32-bit, or needs a newer C library, does not build here. Below another make they
	# would be put where that says: nowhere, which is the root.
	env -u MAKEFLAGS MAKELEVEL=0 make -k -j"$(nproc)" -C "$source/tools/testing/selftests/$suite" >>"$log" 2>&1 || true
	mkdir "$target/$suite"
	find "$source/tools/testing/selftests/$suite" -maxdepth 1 -type f -perm -u+x ! -name '*.sh' -exec mv {} "$target/$suite" \;
done
rm -rf "$source"
[ -n "$(find "$target" -mindepth 2 -type f)" ] || die "none of the tests was built: the output is in $log"
echo "$key" >"$target/built"
