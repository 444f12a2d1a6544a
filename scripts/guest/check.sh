# Runs in the guest: every workload over each protocol that is the kernel's alone, within the node and between two.
# Fails if one could not be measured, or if one that promises delivery lost, repeated, reordered or damaged something. But
# when a link comes back, the kernel's TIPC itself may deliver messages of a connection in the wrong order
# (docs/measuring.md): that is told and fails nothing.
uname -r
polyrail bench list | grep -A1 -E '^(sctp|tipc)'
failed=0

# check PLACEMENT WORKLOAD PROTOCOLS OPTIONS...
check() {
    placement=$1 workload=$2 protocols=$3
    shift 3
    echo "==== $placement $workload $*"
    polyrail bench "$workload" --placement "$placement" --protocol "$protocols" --repeat 1 "$@" --json >/tmp/report 2>/tmp/complaints
    code=$?
    [ $code = 0 ] || { failed=1; echo "FAILED: exit code $code"; cat /tmp/complaints; }
    # One value a line; a row's protocol comes before its counts.
    awk -v workload="$workload" -F'"' '
        /"protocol":/ { protocol = $4 }
        /"reason":|"errors":|"error":/ { print "FAILED:", protocol, $0; bad = 1; next }
        /"(lost|duplicated|reordered|damaged)":/ {
            count = $3; gsub(/[^0-9]/, "", count)
            counted[protocol] = 1
            text[protocol] = text[protocol] " " $2 " " count
            if (workload == "failover" && $2 == "reordered" && protocol ~ /^tipc-/) next
            if (count > 0 && ($2 == "damaged" || protocol !~ /^(udp|tipc-rdm|tipc-dgram)$/)) bad = 1
        }
        END {
            for (protocol in counted) print protocol ":" text[protocol]
            exit bad
        }' /tmp/report || { failed=1; echo FAILED; tail -n 40 /tmp/report; }
}

all=tcp-nodelay,sctp,tipc-stream,tipc-seqpacket,tipc-rdm,tipc-dgram
connected=tcp-nodelay,sctp,tipc-stream,tipc-seqpacket
short="--warmup 0.1 --duration 0.5"
for placement in intra inter; do
    check $placement stream $all $short --wait block --size 60000
    check $placement stream tcp-nodelay,sctp,tipc-stream $short --wait block
    check $placement rate $all $short --wait block
    check $placement pingpong $all $short --wait block
    check $placement pingpong $all $short --wait adaptive --size 4096
    check $placement transact $connected $short --wait block
    # Not by spinning: on emulated cores the kernel's own work starves beside it, and retransmits after seconds.
    check $placement transact $connected $short --wait adaptive
    check $placement stalled tcp-nodelay,tipc-stream --bytes 32M --duration 0.5
    check $placement stalled sctp --bytes 4M --duration 0.5 --size 16384
done
check inter incast sctp,tipc-stream,tipc-seqpacket --duration 0.5 --senders 2
check inter idle $connected --warmup 0.5 --duration 1
check inter failover tipc-stream --rate 100 --arrivals 100 --cuts 1 --pause 3 --warmup 0.5
check inter stream $connected $short --wait block --size 60000 --rate 20
check inter stream $connected $short --wait block --size 60000 --rate 20 --loss 1
exit $failed
