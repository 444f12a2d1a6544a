#!/usr/bin/env bash
# Everything that must hold before a change lands, one step after the other. Every step runs even if an earlier one
# failed; what this machine can't run is skipped by name. `scripts/test.sh STEP...` runs only the steps named.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

only=("$@")
passed=0 failed=0 skipped=0
failed_names=()
begun=$SECONDS

wanted() {
    [ ${#only[@]} = 0 ] && return 0
    local name
    for name in "${only[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

# step NAME COMMAND...
step() {
    local name=$1 started=$SECONDS
    shift
    wanted "$name" || return 0
    printf '\n==== %s\n' "$name"
    if "$@" </dev/null; then
        passed=$((passed + 1))
        printf -- '---- %s: ok, %d s\n' "$name" $((SECONDS - started))
    else
        failed=$((failed + 1))
        failed_names+=("$name")
        printf -- '---- %s: FAILED, %d s\n' "$name" $((SECONDS - started))
    fi
}

# skip NAME REASON
skip() {
    wanted "$1" || return 0
    skipped=$((skipped + 1))
    printf '\n==== %s\n---- %s: SKIPPED, %s\n' "$1" "$1" "$2"
}

# Quick to build and to run, every assertion included: see the profile in Cargo.toml. Every step uses this one, so that
# what one has built is there for the next.
profile=(--profile test-light)

# Names the files; `cargo fmt --all` puts them right.
formatted() { cargo fmt --all -- --check -l; }

clippy() { cargo clippy "${profile[@]}" --workspace --all-targets --quiet -- -D warnings; }

docs() { RUSTDOCFLAGS="-D warnings" cargo doc "${profile[@]}" --workspace --no-deps --quiet; }

# What failed is said once more at the very end, where it isn't lost among thousands of lines.
test_output=$(mktemp)
trap 'rm -f "$test_output"' EXIT
tests() { cargo test "${profile[@]}" --workspace --no-fail-fast 2>&1 | tee "$test_output"; }

# Each failed test's own output (the last lines of it), and the line that names its file.
failures() {
    awk '/^---- .* stdout ----$/ { shown = 40 } /^failures:$/ { shown = 0 } shown > 0 { print; shown-- }
         /^error: .*target.* failed/ || /^ +`-p .*`$/' "$test_output"
}

loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
        cargo test "${profile[@]}" --package polyrail-shm --lib
}

# About a minute of damaged, repeated and made-up packets; the tests have had a twelfth of it. The same number of attackers
# on every machine, unless FUZZ_SECONDS says how long they come. FUZZ_SEED takes another way.
fuzz() {
    FUZZ_EPISODES=${FUZZ_EPISODES:-2400} \
        cargo test "${profile[@]}" --quiet --workspace --test hostile_input -- --nocapture
}

simulator() { cargo run "${profile[@]}" --quiet --package polyrail-sim -- --seeds "${SEEDS:-1000}"; }

planted_faults() {
    cargo run "${profile[@]}" --quiet --package polyrail-sim --features planted -- --planted
}

# The kernel's TIPC and SCTP, in another kernel; the document of the run stays beside it. With the program that the tests have had, and
# one round of the plan, for its figures decide nothing here: `make test-guest` has the one for release, and all rounds.
guest() {
    local kernel code check
    kernel=$(scripts/kernel.sh) || return 1
    read -ra check <<<"scripts/guest/check.sh ${GUEST_OPTIONS---repeat 1 --warmup 0.1}"
    export DOCUMENT="${CARGO_TARGET_DIR:-target}/guest/kernel-tipc.json"
    if [ -z "${PROGRAM:-}" ]; then
        cargo build "${profile[@]}" --quiet --package polyrail-cli || return 1
        export PROGRAM="${CARGO_TARGET_DIR:-target}/test-light/polyrail"
    fi
    scripts/guest.sh "$kernel" "${check[@]}"
    code=$?
    # The emulation's fault, not ours: once more.
    [ "$code" = 75 ] && { scripts/guest.sh "$kernel" "${check[@]}"; code=$?; }
    return "$code"
}

# What the guest lacks, in words; nothing where it can be booted.
guest_lacks() {
    [ "$(uname -m)" = x86_64 ] || { echo "the guest is for x86-64"; return; }
    local command
    for command in apt-get dpkg-deb qemu-system-x86_64 busybox cpio modprobe ip tipc nft ethtool; do
        command -v "$command" >/dev/null || { echo "$command is missing (scripts/setup.sh test installs what it can)"; return; }
    done
}

can_make_namespaces() { [ "$(id -u)" = 0 ] || unshare -Urnm true 2>/dev/null; }

if cargo fmt --version >/dev/null 2>&1; then
    step format formatted
else
    skip format "rustfmt is not installed"
fi
if cargo clippy --version >/dev/null 2>&1; then
    step clippy clippy
else
    skip clippy "clippy is not installed"
fi
step docs docs
step tests tests
if ! can_make_namespaces; then
    skip namespaces "neither root nor user namespaces; tests that need them said so above"
fi
step loom loom
step fuzz fuzz
step simulator simulator
step planted-faults planted_faults
lack=$(guest_lacks)
if [ -z "$lack" ]; then
    step guest guest
else
    skip guest "$lack"
fi

printf '\n'
failures
for name in ${failed_names[@]+"${failed_names[@]}"}; do echo "failed: $name"; done
echo "took $((SECONDS - begun)) s"
echo "steps: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
