#!/usr/bin/env bash
# Holds `polyrail bench transact` against the least program that does the same (transact.c), in interleaved pairs: the
# median of the ratios of median times, and the 95 % interval of it by rank.
#
#     transact.sh POLYRAIL [PAIRS]        (15 pairs if not given; root, for the weight of the session)
set -euo pipefail
program=$(realpath "${1:?which polyrail? transact.sh POLYRAIL [PAIRS]}")
pairs=${2:-15}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/transact" "$(dirname "$0")/transact.c"

ours() {
    "$program" bench transact --protocol tcp-nodelay --placement intra --wait block --repeat 1 --json 2>"$work/said" |
        awk '/"p50"/ { inside = 1 } inside && /"median"/ { gsub(/[^0-9.]/, ""); print; exit }'
}
# A session of its own with the highest weight, as the instrument's processes have.
theirs() { setsid -w bash -c 'echo -20 >/proc/self/autogroup; exec nice -n -20 "$0" 128 1' "$work/transact"; }

for ((pair = 0; pair < pairs; pair++)); do
    # Each is the first in every other pair.
    if ((pair % 2)); then a=$(ours) b=$(theirs); else b=$(theirs) a=$(ours); fi
    printf '%s %s\n' "$a" "$b" | tee -a "$work/pairs" >&2
done
awk '{ print $1 / $2 }' "$work/pairs" | sort -g | awk '
    { ratio[NR] = $1 }
    END {
        # Ranks between which the median lies with 95 %, by the binomial distribution.
        reach = 0.98 * sqrt(NR)
        low = int((NR + 1) / 2 - reach); high = NR + 1 - low
        if (low < 1) { low = 1; high = NR }
        middle = NR % 2 ? ratio[(NR + 1) / 2] : (ratio[NR / 2] + ratio[NR / 2 + 1]) / 2
        printf "polyrail / transact.c: %.3f (95 %%: %.3f to %.3f, %d pairs)\n", middle, ratio[low], ratio[high], NR
    }'
