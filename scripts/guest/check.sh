# Runs in the guest: every workload over each protocol that is the kernel's alone, within the node and between two, and a plan
# that has them beside the others, with the options given. Fails if one could not be measured, or if one that promises delivery lost,
# repeated, reordered or damaged something. But when a link comes back, the kernel's TIPC itself may deliver what a connection carries in
# the wrong order (docs/measuring.md), which spoils a message that comes in several pieces: that is told and fails nothing.
uname -r
polyrail bench list | grep -A1 -E '^(sctp|tipc)'
failed=0

# faults WORKLOAD FILE: the counts of each protocol in a document; fails if there is one that must not be.
faults() {
    # One value a line; a row's protocol comes before its counts.
    awk -v workload="$1" -F'"' '
        /"protocol":/ { protocol = $4 }
        /"reason":|"errors":|"error":/ { print "FAILED:", protocol, $0; bad = 1; next }
        /"(lost|duplicated|reordered|damaged)":/ {
            count = $3; gsub(/[^0-9]/, "", count)
            counted[protocol] = 1
            sum[protocol " " $2] += count
            if (workload == "failover" && protocol ~ /^tipc-/) next
            if (count > 0 && ($2 == "damaged" || protocol !~ /^(udp|tipc-rdm|tipc-dgram)$/)) bad = 1
        }
        END {
            for (protocol in counted)
                print protocol ": lost", sum[protocol " lost"], "duplicated", sum[protocol " duplicated"], \
                    "reordered", sum[protocol " reordered"], "damaged", sum[protocol " damaged"]
            exit bad
        }' "$2"
}

# check PLACEMENT WORKLOAD PROTOCOLS OPTIONS...
check() {
    placement=$1 workload=$2 protocols=$3
    shift 3
    echo "==== $placement $workload $*"
    polyrail bench "$workload" --placement "$placement" --protocol "$protocols" --repeat 1 "$@" --json >/tmp/report 2>/tmp/complaints
    code=$?
    [ $code = 0 ] || { failed=1; echo "FAILED: exit code $code"; cat /tmp/complaints; }
    faults "$workload" /tmp/report || { failed=1; echo FAILED; tail -n 40 /tmp/report; }
}

all=tcp-nodelay,sctp,tipc-stream,tipc-seqpacket,tipc-rdm,tipc-dgram
connected=tcp-nodelay,sctp,tipc-stream,tipc-seqpacket
short="--warmup 0.1 --duration 0.3"
# What the plan has too: within the node it is left to that.
check inter rate $all $short --wait block
check inter pingpong $all $short --wait block
check inter transact $connected $short --wait block
for placement in intra inter; do
    check $placement stream $all $short --wait block --size 60000
    check $placement stream tcp-nodelay,sctp,tipc-stream $short --wait block
    check $placement stream tcp-nodelay,tipc-stream $short --wait block --read whole
    check $placement stream $connected $short --streams 2 --size 16384
    check $placement datagram $all $short --wait block --offer 50
    check $placement openloop $all $short --wait block --arrivals 1000
    check $placement share $connected $short --size 16384 --pairs 2
    check $placement buffer sctp $short --wait block --size 1K --socket-buffer-max 64K
    check $placement pingpong $all $short --wait adaptive --size 4096
    # Not by spinning: on emulated cores the kernel's own work starves beside it, and retransmits after seconds.
    check $placement transact $connected $short --wait adaptive
    check $placement stalled tcp-nodelay,tipc-stream --bytes 32M --duration 0.5
    check $placement stalled sctp --bytes 4M --duration 0.5 --size 16384
done
check inter incast sctp,tipc-stream,tipc-seqpacket --duration 0.5 --senders 2
check inter links $connected $short --links 2 --rate 20 --size 16384
check inter lone $connected --warmup 0.1 --duration 0.5 --wait block --rate 20 --links 1 --size 32768
check inter idle $connected --warmup 0.5 --duration 1
check inter failover tipc-stream --rate 100 --arrivals 100 --cuts 1 --pause 3 --warmup 0.5
check inter stream $connected $short --wait block --size 60000 --rate 20
check inter stream $connected $short --wait block --size 60000 --rate 20 --loss 1

# Of everything in one run: a row for each protocol and workload, a figure for each finding. What the figures are decides nothing here.
echo "==== plan kernel-tipc"
polyrail bench plan kernel-tipc --duration 0.3 "$@" --document /tmp/document 2>/tmp/complaints
code=$?
[ $code = 0 ] || { failed=1; echo "FAILED: exit code $code"; cat /tmp/complaints; }
faults plan /tmp/document || { failed=1; echo FAILED; }
# rows WORD: how often it is in what was measured.
rows() { sed -n '/^  "results"/,/^  "ratios"/p' /tmp/document | grep -c "$1"; }
findings=$(grep -c '"verdict":' /tmp/document)
[ "$(rows '^      "workload":')" = 37 ] || { failed=1; echo "FAILED: not 37 rows but $(rows '^      "workload":')"; }
[ "$findings" = 11 ] && [ "$(grep -c '"measured":' /tmp/document)" = 11 ] || { failed=1; echo "FAILED: findings without figures"; }
grep -q '"emulated": true' /tmp/document || { failed=1; echo "FAILED: the document does not say that the cores are emulated"; }
cat /tmp/document >/dev/ttyS1
exit $failed
