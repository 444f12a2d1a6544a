#!/usr/bin/env bash
# Holds advice against a sweep: on three testbeds `polyrail advise` measures for under four minutes, then every protocol is measured
# at length, and each choice is told with how much worse it is than the best of the sweep.
#
#   scripts/advise.sh [FOLDER]      documents and answers go to FOLDER, else to a new one beneath /tmp; some twenty minutes
set -euo pipefail
cd "$(dirname "$0")/.."

polyrail=${POLYRAIL:-target/release/polyrail}
folder=${1:-$(mktemp -d /tmp/polyrail-advise.XXXXXX)}
reliable_inter=polyrail,polyrail-connection,polyrail-stream,tcp-cubic,tcp-bbr,tcp-nodelay,mptcp,mptcp-bbr,zmq
reliable_intra=$reliable_inter,unix-stream,unix-seqpacket,unix-dgram,pipe
window="--warmup 0.03 --duration 0.2 --repeat ${REPEAT:-7} --json"

# testbed NAME PROTOCOLS PLACEMENT...
testbed() {
    local name=$1 protocols=$2
    shift 2
    mkdir -p "$folder/$name/sweep"
    echo "$name: advice"
    "$polyrail" advise "$@" --keep "$folder/$name/quick" > "$folder/$name/advice.txt" 2> "$folder/$name/advice.err"
    echo "$name: sweep"
    sweep() {
        local file=$1
        shift
        # shellcheck disable=SC2086 # the window is several words
        "$polyrail" bench "$@" $window > "$folder/$name/sweep/$file.json" 2>> "$folder/$name/sweep.err"
    }
    sweep pingpong pingpong "$@" --size 64,16K --protocol "$protocols" --wait adaptive
    sweep stream stream "$@" --size 64K,1M --protocol "$protocols" --wait adaptive
    sweep transact transact "$@" --size 128 --protocol "$protocols" --wait adaptive
    sweep wait openloop "$@" --arrivals 1000 --size 64 --protocol polyrail --wait spin,adaptive,block
    sweep answers pingpong "$@" --size 64 --protocol polyrail --wait spin,adaptive,block
    case " $* " in
        *" --links "*) sweep links links "$@" --size 64K,1M --protocol polyrail --wait adaptive ;;
    esac
    "$polyrail" advise "$folder/$name"/quick/*.json --against "$folder/$name"/sweep/*.json > "$folder/$name/held.txt"
    sed -n '/^held against/,/^  [0-9]* of /p' "$folder/$name/held.txt"
}

# TESTBEDS names those to do.
for name in ${TESTBEDS:-fast unequal within}; do
    case $name in
        fast) testbed fast "$reliable_inter" --placement inter ;;
        unequal) testbed unequal "$reliable_inter" --placement inter --links 2 --rate 1000:100 ;;
        within) testbed within "$reliable_intra" --placement intra ;;
        *) echo "TESTBEDS: no testbed is named $name: there are fast, unequal, within" >&2; exit 2 ;;
    esac
done
echo "documents: $folder"
