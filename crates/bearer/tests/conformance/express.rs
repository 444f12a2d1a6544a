//! Express frames between two hosts: used where they can be, and never at the price of order or of a link's truth.

use polyrail_bearer::{Address, Bearer, RxBatch, UdpBearer, UdpConfig};
use polyrail_sys::epoll::{Epoll, Events, Interest};

use crate::media::Veth;
use crate::tools::{Train, numbered, receive, receive_now, send_ok};

/// Packets that are more than enough for frames to begin.
const ENOUGH: usize = 200;

/// Two bearers at the ends of a cable, `None` where there are no packet sockets.
fn pair(claim: &str) -> Option<(Veth, UdpBearer, UdpBearer)> {
    let veth = Veth::new(claim, ["10.0.0.1", "10.0.0.2"], true)?;
    let (a, b) = (open(&veth, 0, 0), open(&veth, 1, 0));
    if a.express_frames().is_none() {
        eprintln!("SKIPPED {claim}: no packet sockets");
        return None;
    }
    Some((veth, a, b))
}

fn open(veth: &Veth, side: usize, port: u16) -> UdpBearer {
    open_with(veth, side, port, true)
}

fn open_with(veth: &Veth, side: usize, port: u16, express: bool) -> UdpBearer {
    let (device, ip) = [("va", "10.0.0.1"), ("vb", "10.0.0.2")][side];
    let config = UdpConfig { port, beacon_port: 0, express, ..UdpConfig::new(device, ip.parse().unwrap()) };
    veth.host(side).run(|| UdpBearer::open(config).unwrap())
}

/// `rounds` packets there and back, of which none is lost.
fn exchange(a: &mut UdpBearer, b: &mut UdpBearer, rounds: usize) {
    for round in 0..rounds {
        let bytes = numbered(1 + round % 1_472, round as u64);
        for _ in 0..2 {
            send_ok(a, b.local().address, &Train::new(&bytes, 1_472));
            assert_eq!(receive(b, 1), [&bytes[..]]);
            std::mem::swap(a, b);
        }
    }
}

fn frames(bearer: &UdpBearer) -> (u64, u64) {
    bearer.express_frames().unwrap()
}

#[test]
fn single_packets_between_neighbours_become_frames() {
    let Some((_veth, mut a, mut b)) = pair("single_packets_between_neighbours_become_frames") else { return };
    exchange(&mut a, &mut b, ENOUGH + 1_000);
    let (sent, received) = frames(&a);
    assert_eq!(frames(&b), (received, sent), "none is lost");
    // Some stay datagrams, so that it is known that these arrive.
    for count in [sent, received] {
        assert!((900..1_170).contains(&count), "{count} of 1200");
    }
}

#[test]
fn no_packet_overtakes_a_train() {
    let Some((_veth, mut a, mut b)) = pair("no_packet_overtakes_a_train") else { return };
    exchange(&mut a, &mut b, ENOUGH);
    let to = b.local().address;
    let before = frames(&b).1;
    for round in 0..20u8 {
        // A few packets one by one, then trains, in changing numbers; nothing is read meanwhile.
        let (mut sent, mut in_trains) = (Vec::new(), Vec::new());
        for step in 0..12u8 {
            let packets = [1, 1, 3, 1, 7][usize::from(step + round) % 5];
            let mut bytes = vec![0; 100 * packets];
            bytes.chunks_mut(100).for_each(|packet| {
                packet[0] = sent.len() as u8;
                sent.push(packet[0]);
                in_trains.extend((packets > 1).then_some(packet[0]));
            });
            send_ok(&mut a, to, &Train::new(&bytes, 100));
        }
        let got: Vec<u8> = receive(&mut b, sent.len()).iter().map(|packet| packet[0]).collect();
        for (place, number) in got.iter().enumerate() {
            let overtaken = in_trains.iter().find(|other| *other < number && !got[..place].contains(other));
            assert_eq!(overtaken, None, "by {number}: {got:?}");
        }
        assert_eq!(sent.len(), got.len());
        send_ok(&mut b, a.local().address, &Train::new(b"heard", 5));
        receive(&mut a, 1);
    }
    assert!(frames(&b).1 > before + 50, "frames were among them");
}

/// Which descriptors have something, by their places, and what is read by looking only there.
fn receive_where_ready(bearer: &mut UdpBearer) -> (Vec<usize>, Vec<Vec<u8>>) {
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(8));
    let fds = bearer.fds().data;
    fds.iter().enumerate().for_each(|(at, fd)| epoll.add(*fd, at as u64, Interest::READ).unwrap());
    epoll.wait(&mut events, Some(1_000_000_000)).unwrap();
    let (mut batch, mut got) = (RxBatch::new(8), Vec::new());
    let ready: Vec<usize> = events.iter().map(|event| event.token as usize).collect();
    for at in &ready {
        // An answer of the other side may be behind it, and be read with what came before.
        let narrow = bearer.prefer(fds[*at]);
        batch.clear();
        bearer.recv(&mut batch, !narrow).unwrap();
        got.extend(batch.iter().map(|group| group.bytes.to_vec()));
    }
    (ready, got)
}

/// The bearer once it has a socket for `to` alone, which so many trains earn. It opens that itself, and so at its host.
fn earn_socket(veth: &Veth, side: usize, mut bearer: UdpBearer, to: Address) -> UdpBearer {
    veth.host(side).run(move || {
        let sockets = bearer.fds().data.len();
        (0..300).for_each(|_| send_ok(&mut bearer, to, &Train::new(&[0; 200], 100)));
        assert_eq!(bearer.fds().data.len(), sockets + 1);
        bearer
    })
}

#[test]
fn what_has_come_is_found_where_the_system_says_that_something_has() {
    let claim = "what_has_come_is_found_where_the_system_says_that_something_has";
    let Some((veth, mut a, b)) = pair(claim) else { return };
    // It is never answered, so what it sends stays with datagrams and with the common socket.
    let mut stranger = open_with(&veth, 0, 0, false);
    let mut b = earn_socket(&veth, 1, b, a.local().address);
    receive_now(&mut a);
    exchange(&mut a, &mut b, ENOUGH);
    const COMMON: usize = 0;
    const OWN: usize = 1;
    const PACKETS: usize = 2;
    assert_eq!(b.fds().data.len(), 3);
    let (to, before) = (b.local().address, frames(&b).1);
    let (mut found, mut alone) = ([0; 3], 0);
    for round in 0..300u64 {
        let bytes = numbered(64, round);
        let (is_strange, received) = (round % 3 == 2, frames(&b).1);
        send_ok(if is_strange { &mut stranger } else { &mut a }, to, &Train::new(&bytes, 64));
        let (ready, got) = receive_where_ready(&mut b);
        assert_eq!(got, [&bytes[..]], "round {round}: {ready:?}");
        let place = match (is_strange, frames(&b).1 > received) {
            (true, _) => COMMON,
            (false, true) => PACKETS,
            (false, false) => OWN,
        };
        assert!(ready.contains(&place), "round {round}: {ready:?}, not {place}");
        alone += usize::from(ready == [place]);
        found[place] += 1;
        exchange(&mut b, &mut a, 1);
    }
    assert!(found[COMMON] == 100 && found[OWN] > 1 && found[PACKETS] > 100, "{found:?}");
    assert!(alone > 250, "{alone} times nothing else was ready");
    assert!(frames(&b).1 > before + 200, "frames came in between too");
    assert!(!b.prefer(-1));
}

#[test]
fn where_frames_vanish_datagrams_take_over() {
    let Some((veth, mut a, mut b)) = pair("where_frames_vanish_datagrams_take_over") else { return };
    exchange(&mut a, &mut b, ENOUGH);
    drop_at(&veth, 1, "ether type 0x88b5");
    let to = b.local().address;
    let mut got = Vec::new();
    for number in 0..200u8 {
        send_ok(&mut a, to, &Train::new(&[number], 1));
        got.extend(receive_now(&mut b).concat());
    }
    assert!(got.windows(2).all(|pair| pair[0] < pair[1]), "{got:?}");
    // The hole is noticed after 64 packets at the latest; from then on all arrive, whatever is asked meanwhile.
    assert!(got.ends_with(&Vec::from_iter(70..200)), "{got:?}");
    veth.host(1).command("nft", "delete table netdev holes");
    let before = frames(&a).0;
    exchange(&mut a, &mut b, 6_000);
    assert!(frames(&a).0 > before, "they are taken up again");
}

#[test]
fn where_datagrams_vanish_frames_end_too() {
    let Some((veth, mut a, mut b)) = pair("where_datagrams_vanish_frames_end_too") else { return };
    exchange(&mut a, &mut b, ENOUGH);
    drop_at(&veth, 1, "ip protocol udp");
    let (here, there) = (a.local().address, b.local().address);
    let mut last = 0;
    for number in 1..2_000u32 {
        send_ok(&mut a, there, &Train::new(&number.to_be_bytes(), 4));
        if !receive_now(&mut b).is_empty() {
            last = number;
            send_ok(&mut b, here, &Train::new(b"heard", 5));
        }
        receive_now(&mut a);
    }
    // Half of a link is none: who is above must see that it is cut.
    assert!((32..600).contains(&last), "the last that came was {last}");
}

#[test]
fn a_neighbour_that_begins_anew_is_found_again() {
    let Some((veth, mut a, b)) = pair("a_neighbour_that_begins_anew_is_found_again") else { return };
    let Address::Ip(there) = b.local().address else { return };
    let mut b = b;
    exchange(&mut a, &mut b, ENOUGH);
    drop(b);
    let mut b = open(&veth, 1, there.port());
    // What goes as frames before the new one is known is lost, as on a wire.
    for number in 0..200u8 {
        send_ok(&mut a, b.local().address, &Train::new(&[number], 1));
        receive_now(&mut b);
    }
    exchange(&mut a, &mut b, ENOUGH);
    assert!(frames(&b).0 > 50 && frames(&b).1 > 50, "{:?}", frames(&b));
}

/// Drops what matches on arrival at a host.
fn drop_at(veth: &Veth, side: usize, packets: &str) {
    drop_on("ingress", veth, side, packets);
}

/// Drops what matches at a host, at the hook that is named.
fn drop_on(hook: &str, veth: &Veth, side: usize, packets: &str) {
    let device = ["va", "vb"][side];
    let host = veth.host(side);
    host.command("nft", "add table netdev holes");
    host.command(
        "nft",
        &format!("add chain netdev holes some {{ type filter hook {hook} device {device} priority 0 ; }}"),
    );
    host.command("nft", &format!("add rule netdev holes some {packets} drop"));
}

#[test]
fn a_frame_that_the_machine_refuses_goes_as_a_datagram() {
    let Some((veth, mut a, mut b)) = pair("a_frame_that_the_machine_refuses_goes_as_a_datagram") else {
        return;
    };
    exchange(&mut a, &mut b, ENOUGH);
    // The packet after the one of many that stays a datagram is a frame.
    let mut sent = 0;
    while frames(&a).0 != sent {
        sent = frames(&a).0;
        exchange(&mut a, &mut b, 1);
    }
    drop_on("egress", &veth, 0, "ether type 0x88b5");
    exchange(&mut a, &mut b, 1);
    veth.host(0).command("nft", "delete table netdev holes");
    exchange(&mut a, &mut b, 30);
    assert_eq!(frames(&a).0, sent, "no other frame before the next question");
    exchange(&mut a, &mut b, ENOUGH);
    assert!(frames(&a).0 > sent, "they are taken up again");
}

/// How many groups come before a packet that was sent as a frame behind `trains`, read by so many `slots` at a time.
fn wait_of_a_frame(a: &mut UdpBearer, b: &mut UdpBearer, trains: usize, slots: usize) -> usize {
    let to = b.local().address;
    (0..trains).for_each(|_| send_ok(a, to, &Train::new(&[0; 200], 100)));
    let sent = frames(a).0;
    let mut singles = 0;
    // One of many goes as a datagram.
    while frames(a).0 == sent {
        send_ok(a, to, &Train::new(&[1], 1));
        singles += 1;
        assert!(singles <= 2, "frames have ended");
    }
    let (mut batch, mut before) = (RxBatch::new(slots), 0);
    let received = frames(b).1;
    for _ in 0..=trains + singles {
        batch.clear();
        b.recv(&mut batch, true).unwrap();
        if frames(b).1 > received {
            receive_now(b);
            return before;
        }
        before += batch.len();
    }
    panic!("it never came");
}

#[test]
fn a_frame_waits_for_datagrams_but_not_for_all_of_a_flood() {
    let claim = "a_frame_waits_for_datagrams_but_not_for_all_of_a_flood";
    let Some((_veth, mut a, mut b)) = pair(claim) else { return };
    for round in 0..6 {
        exchange(&mut a, &mut b, ENOUGH);
        // A call reads a socket for 16 groups at most, and a batch may hold less.
        let (slots, groups) = [(8, 24), (64, 16), (1, 20)][round % 3];
        let before = wait_of_a_frame(&mut a, &mut b, 100, slots);
        assert!((16..=40).contains(&before), "{slots} slots: {before} groups");
        exchange(&mut a, &mut b, ENOUGH);
        let before = wait_of_a_frame(&mut a, &mut b, groups, slots);
        assert!(before >= groups, "{slots} slots: {before} of {groups}");
    }
}

#[test]
fn an_interface_that_goes_down_keeps_nobody_awake() {
    let Some((veth, mut a, mut b)) = pair("an_interface_that_goes_down_keeps_nobody_awake") else { return };
    let packets = *a.fds().data.last().unwrap();
    let is_ready = move || {
        let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(1));
        epoll.add(packets, 0, Interest::READ).unwrap();
        epoll.wait(&mut events, Some(0)).unwrap() == 1
    };
    veth.host(0).ip("link set va down");
    assert!(is_ready(), "the error is pending");
    assert!(!a.prefer(packets), "there is no frame");
    for _ in 0..100 {
        receive_now(&mut a);
    }
    assert!(!is_ready());
    veth.host(0).ip("link set va up");
    veth.host(0).await_running("va");
    veth.host(1).await_running("vb");
    exchange(&mut a, &mut b, 2 * ENOUGH);
    assert!(frames(&a).0 > 50, "frames go on when it is back");
}
