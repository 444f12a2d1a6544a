#!/usr/bin/env bash
# Fetches Debian's stock kernel of this release, which has TIPC and SCTP as modules, unpacks it for scripts/guest.sh, and prints
# where it is. One that is there already is not fetched again. Needs apt, and no rights.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'kernel: %s\n' "$*" >&2; exit 1; }

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    fail "apt-get and dpkg-deb are needed: unpack a kernel package yourself and give it to scripts/guest.sh"
# The package without a version needs the one with the newest.
package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\).*/\1/p' | head -n1)
[ -n "$package" ] || fail "apt knows no linux-image-amd64: apt-get update, on Debian for x86-64"

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/guest
root=$folder/$package
if [ ! -d "$root" ]; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get -qq download "$package" >&2) || fail "$package could not be fetched: apt-get update, and try again"
    dpkg-deb -x "$work"/*.deb "$work/root"
    mv "$work/root" "$root"
fi
printf '%s\n' "$root"
