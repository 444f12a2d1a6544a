#!/usr/bin/env bash
# Builds the program as one file that needs no library of the machine it runs on, and prints where it is. Without
# ZeroMQ, whose own libraries cannot be linked that way. PROFILE and CARGO_TARGET_DIR as with cargo.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

profile=${PROFILE:-release}
# Named, so that build scripts and macros, which run here, are linked as usual.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" \
    cargo build --profile "$profile" --package polyrail-cli --no-default-features --target "$host" >&2

program="${CARGO_TARGET_DIR:-target}/$host/$profile/polyrail"
# The loader is what a program with libraries names first.
if ! headers=$(LC_ALL=C readelf -lW "$program"); then
    echo "static: $program could not be examined: readelf (package binutils) is needed" >&2
    exit 1
fi
if grep -q INTERP <<<"$headers"; then
    echo "static: $program still needs the machine's loader: is this Rust target one that can do without?" >&2
    exit 1
fi
"$program" --version >&2
printf '%s\n' "$program"
