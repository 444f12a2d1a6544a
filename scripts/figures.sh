#!/usr/bin/env bash
# Measures README's figures: each document in docs/results by its command, then the table and the commands in README between its two
# marks. `scripts/figures.sh NAME...` measures only these; `scripts/figures.sh none` only makes the table. About a quarter of an
# hour for all, on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

# Name of the document, and what is measured.
figures() {
    cat <<'LIST'
01-one-link        stream --protocol polyrail,tcp-cubic --links 1 --rate 1000 --size 1048576 --repeat 9
02-two-links       stream --protocol polyrail,mptcp --links 2 --rate 1000 --size 1048576 --repeat 9
03-no-limit        stream --protocol polyrail,tcp-cubic --size 1048576 --repeat 9 --send slice
04-buffers         stream --protocol polyrail,tcp-cubic --size 1048576 --repeat 9 --send buffer
05-byte-stream     stream --protocol polyrail-stream,tcp-cubic --size 64K --wait block --repeat 15 --warmup 0.15 --duration 0.35
06-rate            rate --protocol polyrail,zmq --repeat 9
07-round-trip      pingpong --protocol polyrail,udp,tcp-nodelay --repeat 9
08-connect         transact --protocol polyrail,tcp-nodelay --size 128 --repeat 15 --warmup 0.1 --duration 0.25
09-connect-asleep  transact --protocol polyrail,tcp-nodelay --size 128 --wait block --repeat 31 --warmup 0.1 --duration 0.25
10-near-round-trip pingpong --placement intra --protocol polyrail,tcp-nodelay --size 64 --wait spin,block --repeat 15 --warmup 0.1 --duration 0.2
11-near-connect    transact --placement intra --protocol polyrail,tcp-nodelay --size 128 --repeat 15 --warmup 0.1 --duration 0.25
12-near-stream     stream --placement intra --protocol polyrail,tcp-cubic,unix-stream --size 4K,1M --repeat 15 --warmup 0.1 --duration 0.2
13-shared-trip     pingpong --placement intra --protocol polyrail-attached,tcp-nodelay --size 64 --wait spin --repeat 15 --warmup 0.1 --duration 0.15
14-shared-connect  transact --placement intra --protocol polyrail-attached,tcp-nodelay --size 128 --wait spin,block --repeat 15 --warmup 0.1 --duration 0.2
15-cuts            failover --protocol polyrail,mptcp --outage 0.3 --pause 2
LIST
}

polyrail=${POLYRAIL:-${CARGO_TARGET_DIR:-target}/release/polyrail}
[ -x "$polyrail" ] || { echo "figures: $polyrail is missing: run \`make build\`, or name the program in POLYRAIL" >&2; exit 3; }

wanted() {
    local name=$1 one
    shift
    [ $# = 0 ] && return 0
    for one in "$@"; do [ "$one" = "$name" ] && return 0; done
    return 1
}

whole=$(mktemp)
table=$(mktemp)
trap 'rm -f "$whole" "$table"' EXIT
mkdir -p docs/results
while read -r name arguments; do
    wanted "$name" "$@" || continue
    echo "== $name: bench $arguments" >&2
    # shellcheck disable=SC2086
    "$polyrail" bench $arguments --json >"$whole" </dev/null
    "$polyrail" bench report "$whole" --brief "docs/results/$name.json"
done < <(figures)

"$polyrail" bench report --markdown docs/results/*.json >"$table"
awk -v table="$table" '
    /^<!-- figures: / { print; print ""; while ((getline line < table) > 0) print line; print ""; skipping = 1 }
    /^<!-- end of figures -->$/ { skipping = 0 }
    !skipping { print }
' README.md >"$whole"
grep -q '^<!-- end of figures -->$' "$whole" || { echo "figures: README.md has lost its marks" >&2; exit 1; }
cat "$whole" >README.md
echo "README.md has the new table"
