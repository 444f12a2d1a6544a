//! One suite for all bearers: what the engine above relies on, claim by claim.
//!
//! Bearers that need network name spaces are tested when the process may make them; otherwise the test says aloud
//! that it was skipped.

#[path = "conformance/claims.rs"]
mod claims;
#[path = "conformance/express.rs"]
mod express;
#[path = "conformance/hosts.rs"]
mod hosts;
#[path = "conformance/media.rs"]
mod media;
#[path = "conformance/tools.rs"]
mod tools;

use claims::conforms;
use hosts::Host;
use media::{Loopback, Medium, Memory, Shm, Veth, Wrapped};
use polyrail_bearer::{
    Address, Bearer, FaultBearer, Faults, Notice, NoticeCode, PcapBearer, SendOutcome, UdpBearer, UdpConfig,
};
use tools::{Train, numbered, receive, send, wait_readable};

#[test]
fn memory_conforms() {
    conforms(&Memory::new());
}

#[test]
fn shared_memory_conforms() {
    conforms(&Shm::new());
}

#[test]
fn udp_v4_on_loopback_conforms() {
    conforms(&Loopback::new("127.0.0.1"));
}

#[test]
fn udp_v6_on_loopback_conforms() {
    conforms(&Loopback::new("::1"));
}

#[test]
fn pages_that_are_lent_are_not_copied() {
    for home in ["127.0.0.1", "::1"] {
        let medium = Loopback::new(home);
        let (mut a, mut b) = (medium.bearer(0), medium.bearer(1));
        if !a.capabilities().lends_pages {
            eprintln!("skipped: this kernel copies what UDP sends");
            return;
        }
        let to = b.local().address;
        let mut changed = false;
        // As soon as the peer has a socket of its own, what is written after sending is what arrives.
        for _ in 0..400 {
            let mut bytes = vec![1; 40_000];
            assert!(matches!(send(&mut a, to, &Train::lent(&bytes, 1_000)), SendOutcome::Sent));
            bytes.fill(2);
            let got = receive(&mut b, 40).concat();
            changed |= got == bytes;
        }
        assert!(changed, "{home}");
        let bytes = vec![1; 40_000];
        assert!(matches!(send(&mut a, to, &Train::new(&bytes, 1_000)), SendOutcome::Sent));
        assert_eq!(receive(&mut b, 40).concat(), bytes);
    }
}

#[test]
fn udp_v4_between_two_hosts_conforms() {
    if let Some(veth) = Veth::new("udp_v4_between_two_hosts_conforms", ["10.0.0.1", "10.0.0.2"], true) {
        conforms(&veth);
    }
}

#[test]
fn udp_v6_between_two_hosts_conforms() {
    if let Some(veth) = Veth::new("udp_v6_between_two_hosts_conforms", ["fd00::1", "fd00::2"], true) {
        conforms(&veth);
    }
}

#[test]
fn udp_v6_link_local_conforms() {
    if let Some(veth) = Veth::new("udp_v6_link_local_conforms", ["fe80::1", "fe80::2"], true) {
        conforms(&veth);
    }
}

#[test]
fn udp_without_offloads_conforms() {
    if let Some(veth) = Veth::new("udp_without_offloads_conforms", ["10.0.0.1", "10.0.0.2"], false) {
        conforms(&veth);
    }
}

#[test]
fn a_faultless_fault_bearer_conforms() {
    conforms(&Wrapped::new(Memory::new(), |inner| Box::new(FaultBearer::new(inner, 1, Faults::default()))));
    conforms(&Wrapped::new(Shm::new(), |inner| Box::new(FaultBearer::new(inner, 1, Faults::default()))));
    conforms(&Wrapped::new(Loopback::new("127.0.0.1"), |inner| {
        Box::new(FaultBearer::new(inner, 1, Faults::default()))
    }));
}

#[test]
fn a_pcap_bearer_conforms() {
    let wrap = |inner| {
        let bearer = PcapBearer::create(inner, std::path::Path::new("/dev/null")).expect("a capture");
        Box::new(bearer) as Box<dyn Bearer>
    };
    conforms(&Wrapped::new(Memory::new(), wrap));
}

/// Three hosts in a row; the way behind the router is narrower.
fn routed(claim: &str) -> Option<[Host; 3]> {
    let [a, router, b] = Host::some(claim)?;
    a.link(&router, "va", "ra", 1_500);
    router.link(&b, "rb", "vb", 1_400);
    a.ip("addr add 10.0.1.1/24 dev va");
    router.ip("addr add 10.0.1.9/24 dev ra");
    router.ip("addr add 10.0.2.9/24 dev rb");
    b.ip("addr add 10.0.2.1/24 dev vb");
    router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    a.ip("route add 10.0.0.0/8 via 10.0.1.9");
    b.ip("route add 10.0.0.0/8 via 10.0.2.9");
    Some([a, router, b])
}

fn open(device: &str, ip: &str) -> UdpBearer {
    UdpBearer::open(UdpConfig::new(device, ip.parse().unwrap())).unwrap()
}

/// A path that takes 1,400 bytes between two interfaces that take 1,500: datagrams are not fragmented, the first
/// one too large vanishes, a hint comes, and the hint binds nobody.
#[test]
fn a_narrow_path_gives_a_hint_and_never_a_fragment() {
    let Some([a, _router, b]) = routed("a_narrow_path_gives_a_hint_and_never_a_fragment") else { return };
    let (mut near, mut far) = (a.run(|| open("va", "10.0.1.1")), b.run(|| open("vb", "10.0.2.1")));
    let to = far.local().address;
    assert_eq!((near.capabilities().mtu_bytes, far.capabilities().mtu_bytes), (1_472, 1_372));

    for _ in 0..2 {
        let too_large = numbered(1_472, 1);
        assert!(matches!(send(&mut near, to, &Train::new(&too_large, 1_472)), SendOutcome::Sent));
        wait_readable(&mut near);
        assert_eq!(tools::receive_now(&mut near), Vec::<Vec<u8>>::new());
        let mut notices = Vec::new();
        near.notices(&mut notices);
        assert_eq!(notices, [Notice::MtuHint { to, mtu_bytes: 1_372 }]);
    }
    let fits = numbered(1_372 * 3, 2);
    assert!(matches!(send(&mut near, to, &Train::new(&fits, 1_372)), SendOutcome::Sent));
    let got = receive(&mut far, 3);
    assert_eq!(got.concat(), fits, "only what fits has arrived, and unbroken");
}

/// What a router says about a machine or a network that it cannot reach.
#[test]
fn a_router_tells_what_it_cannot_reach() {
    let Some([a, router, _b]) = routed("a_router_tells_what_it_cannot_reach") else { return };
    // The router asks once for the missing machine instead of three times.
    router.run(|| std::fs::write("/proc/sys/net/ipv4/neigh/rb/mcast_solicit", "1").unwrap());
    let mut near = a.run(|| open("va", "10.0.1.1"));
    for (ip, code) in [("10.0.2.77:7", NoticeCode::Host), ("10.77.0.1:7", NoticeCode::Net)] {
        let to = Address::Ip(ip.parse().unwrap());
        assert!(matches!(send(&mut near, to, &Train::new(b"anybody?", 8)), SendOutcome::Sent));
        wait_readable(&mut near);
        assert!(tools::receive_now(&mut near).is_empty());
        let mut notices = Vec::new();
        near.notices(&mut notices);
        assert_eq!(notices, [Notice::Unreachable { to, code }]);
    }
}

/// The interface itself becomes narrow while the bearer is open: too large, not "offload is broken".
#[test]
fn an_interface_that_shrinks_makes_datagrams_too_large() {
    let claim = "an_interface_that_shrinks_makes_datagrams_too_large";
    let Some(veth) = Veth::new(claim, ["10.0.0.1", "10.0.0.2"], true) else { return };
    let (mut a, mut b) = (media::Medium::bearer(&veth, 0), media::Medium::bearer(&veth, 1));
    let to = b.local().address;
    veth.host(0).ip("link set va mtu 1000");
    let bytes = numbered(4_000, 1);
    assert!(matches!(send(&mut a, to, &Train::new(&bytes, 1_200)), SendOutcome::TooLarge));
    assert!(matches!(send(&mut a, to, &Train::new(&bytes[..1_200], 1_200)), SendOutcome::TooLarge));
    assert_eq!(a.capabilities().segments_max, 64);
    let mut notices = Vec::new();
    a.notices(&mut notices);
    assert!(notices.is_empty(), "the outcome has said it: {notices:?}");
    assert!(matches!(send(&mut a, to, &Train::new(&bytes, 900)), SendOutcome::Sent));
    assert_eq!(receive(&mut b, 5).concat(), bytes);
}

/// An interface that is down is told by the send itself, and the bearer goes on when it is back.
#[test]
fn a_dead_interface_is_an_outcome_until_it_is_back() {
    let claim = "a_dead_interface_is_an_outcome_until_it_is_back";
    let Some(veth) = Veth::new(claim, ["10.0.0.1", "10.0.0.2"], true) else { return };
    let (mut a, mut b) = (media::Medium::bearer(&veth, 0), media::Medium::bearer(&veth, 1));
    let to = b.local().address;
    veth.host(0).ip("link set va down");
    match send(&mut a, to, &Train::new(b"gone", 4)) {
        SendOutcome::Failed(error) => {
            let number = error.raw_os_error().unwrap();
            let expected = [polyrail_sys::errno::ENETUNREACH, polyrail_sys::errno::ENETDOWN];
            assert!(expected.contains(&number), "{error}");
        }
        other => panic!("{other:?}"),
    }
    veth.host(0).ip("link set va up");
    veth.host(0).await_running("va");
    veth.host(1).await_running("vb");
    assert!(matches!(send(&mut a, to, &Train::new(b"back", 4)), SendOutcome::Sent));
    assert_eq!(receive(&mut b, 1), [b"back"]);
}
