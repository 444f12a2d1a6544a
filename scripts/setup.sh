#!/usr/bin/env bash
# Installs what building, testing and the demo need and the machine lacks: Debian packages by apt, Rust by rustup.
# Called by every make target; where nothing is missing it says nothing and takes a few milliseconds. `setup.sh test`
# also installs what only the tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin"

# The stamp says that this script, as it is now, has found Rust to be new enough; what is cheap is looked at each time.
stamp=target/setup.stamp
key=$(sha256sum scripts/setup.sh Cargo.toml | sha256sum | cut -d' ' -f1)

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# Packages without which nothing can be built, and those that only the namespaces of demo, testbed and tests need.
packages_to_build() {
    has cc || echo gcc libc6-dev
    if ! has pkg-config; then
        echo pkg-config libzmq3-dev
    elif ! pkg-config --exists libzmq; then
        echo libzmq3-dev
    fi
    if ! has cargo && ! has curl; then echo curl ca-certificates; fi
}
packages_to_run() {
    has ip && has tc || echo iproute2
    has nft || echo nftables
    has ethtool || echo ethtool
}

# What only tests use: tshark checks the dissector, and what it checks is skipped without it; a browser shows reports, whose tests
# fail without one; the others boot another kernel (scripts/guest.sh), which is skipped without them.
packages_to_test() { has tshark || echo tshark; }
packages_to_look() {
    has chromium-headless-shell || has chromium || has google-chrome || browser_package
}
packages_for_guest() {
    has qemu-system-x86_64 || echo qemu-system-x86
    has busybox || echo busybox-static
    has cpio || echo cpio
    has modprobe || echo kmod
    has tipc || echo iproute2
}

# Debian's headless one is the lightest that draws as others do; where it is not known, the whole browser.
browser_package() {
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then echo chromium-headless-shell; else echo chromium; fi
}

# As root, or by sudo where that asks nothing; fails where neither works.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

apt_install() {
    has apt-get || return 1
    as_root true || return 1
    say "installing $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -qq)
    # The lists may be missing or old: fetch them only if the first try finds no package.
    as_root "${apt[@]}" install --yes --no-install-recommends "$@" >/dev/null 2>&1 </dev/null ||
        { as_root "${apt[@]}" update </dev/null >&2 &&
            as_root "${apt[@]}" install --yes --no-install-recommends "$@" </dev/null >&2; }
}

install_packages() {
    local build run
    build=$(packages_to_build | xargs)
    run=$(packages_to_run | xargs)
    [ -n "$build$run" ] || return 0
    # shellcheck disable=SC2086
    apt_install $build $run && return 0
    say "these packages are missing and could not be installed from here: $(echo $build $run)"
    say "please run:  sudo apt-get update && sudo apt-get install --yes --no-install-recommends $(echo $build $run)"
    [ -z "$build" ] || exit 3
    say "going on: the program can be built; what needs network namespaces will be skipped"
}

# Each by itself, so that a system without one gets all else.
install_for_tests() {
    local packages test
    for packages in packages_to_test packages_to_look packages_for_guest; do
        test=$($packages | xargs)
        [ -n "$test" ] || continue
        # shellcheck disable=SC2086
        apt_install $test || say "going on without $test: tests that need a browser will fail, others that need one of these will be skipped"
    done
}

rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

rust_is_new_enough() {
    has cargo || return 1
    local found
    found=$(cargo --version 2>/dev/null | cut -d' ' -f2 | cut -d- -f1)
    [ -n "$found" ] && [ "$(printf '%s\n' "$(rust_wanted)" "$found" | sort -V | head -n1)" = "$(rust_wanted)" ]
}

install_rust() {
    rust_is_new_enough && return 0
    if has rustup; then
        say "installing the stable Rust toolchain for this directory (at least $(rust_wanted) is needed)"
        rustup toolchain install stable --profile minimal --component rustfmt,clippy >&2
        rustup override set stable >&2
    else
        say "installing Rust by rustup (at least $(rust_wanted) is needed)"
        local installer
        installer=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o "$installer" https://sh.rustup.rs ||
            { rm -f "$installer"; say "rustup's installer could not be fetched; see https://rustup.rs"; exit 3; }
        sh "$installer" -y --no-modify-path --profile minimal --component rustfmt --component clippy \
            --default-toolchain stable >&2 </dev/null || { rm -f "$installer"; say "rustup's installer failed"; exit 3; }
        rm -f "$installer"
        hash -r
    fi
    rust_is_new_enough || { say "cargo $(rust_wanted) or newer is still missing; see https://rustup.rs"; exit 3; }
}

# Formatting and lints are part of the tests; without rustup the tests skip what is missing.
install_components() {
    has rustup || return 0
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    say "installing rustfmt and clippy"
    rustup component add rustfmt clippy >&2 || say "rustfmt or clippy could not be installed; the tests will skip them"
}

install_packages
[ "${1:-}" != test ] || install_for_tests
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || ! has cargo; then
    install_rust
    install_components
    mkdir -p target
    echo "$key" >"$stamp"
fi
