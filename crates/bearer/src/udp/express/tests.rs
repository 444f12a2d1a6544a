//! Both ends of a cable, without the data sockets beside: what is left to those is only said.

use super::*;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::interface::{self, LinkMonitor};
use polyrail_sys::process::unshare_netns;

/// Nothing on one machine takes so long.
const PATIENCE_NS: u64 = 20_000_000_000;

struct Ends {
    a: Express,
    b: Express,
    /// Hears what goes to b, too.
    ear: PacketSocket,
    /// Sends what it is told to, at a's end.
    mouth: PacketSocket,
    to_b: Address,
}

/// Runs `test` on a thread with a network name space of its own; where there are none, or no packet sockets, it says so.
fn on_cable(claim: &'static str, test: impl FnOnce(Ends) + Send + 'static) {
    let there = std::thread::spawn(move || {
        if let Err(error) = unshare_netns() {
            return eprintln!("SKIPPED {claim}: no network name space: {error}");
        }
        make_cable();
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        let (to_a, to_b) = (ip("10.0.0.1:7430"), ip("10.0.0.2:7431"));
        let open = |device, address| Express::open(index(device), Network { address, prefix_bits: 24 });
        let (Some(a), Some(b)) = (open("va", to_a), open("vb", to_b)) else {
            return eprintln!("SKIPPED {claim}: no packet sockets");
        };
        let heard =
            |device| PacketSocket::open(index(device), frame::ETHER_TYPE, frame::TO_PORT_AT, 7431).unwrap();
        test(Ends { a, b, ear: heard("vb"), mouth: heard("va"), to_b });
    });
    there.join().unwrap();
}

fn make_cable() {
    let ip = |arguments: &str| {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(done.success(), "ip {arguments}");
    };
    let (mut monitor, epoll) = (LinkMonitor::open().unwrap(), Epoll::new().unwrap());
    epoll.add(monitor.as_raw_fd(), 0, Interest::READ).unwrap();
    ip("link add va type veth peer name vb");
    ip("link set va up addrgenmode none");
    ip("link set vb up addrgenmode none");
    let running = |name: &str| interface::list().unwrap().iter().any(|one| one.name == name && one.running);
    while !(running("va") && running("vb")) {
        epoll.wait(&mut Events::new(1), None).unwrap();
        monitor.drain(&mut Vec::new()).unwrap();
    }
}

fn index(device: &str) -> u32 {
    interface::list().unwrap().iter().find(|one| one.name == device).unwrap().index
}

/// Whether there is something in the ring behind `fd` within `timeout_ns`.
fn is_ready(fd: RawFd, timeout_ns: u64) -> bool {
    let epoll = Epoll::new().unwrap();
    epoll.add(fd, 0, Interest::READ).unwrap();
    epoll.wait(&mut Events::new(1), Some(timeout_ns)).unwrap() == 1
}

/// Waits until something is in the ring behind `fd`.
fn await_frame(fd: RawFd) {
    assert!(is_ready(fd, PATIENCE_NS), "waited in vain");
}

impl Ends {
    /// Offers a packet of so many bytes for b, which has just been heard; whether it went as a frame.
    fn offer(&mut self, bytes: usize, express: bool) -> bool {
        self.reply();
        let packet = vec![7; bytes];
        let (slices, segment_bytes) = ([IoSlice::new(&packet)], bytes);
        self.a.send(&Transmit {
            to: self.to_b,
            segment_bytes,
            bytes,
            slices: &slices,
            express,
            lend: false,
            dscp: 0,
        })
    }

    /// Number of the last packet's frame to b.
    fn sent(&mut self) -> u16 {
        self.a.peers.at(&self.to_b).map_or(0, |peer| peer.number(Content::Answer))
    }

    /// Lets a believe that b has heard everything, so that time is without meaning.
    fn reply(&mut self) {
        let (from, to, heard) = (self.to_b, self.a.local, self.sent());
        let (content, hardware_from, hardware_to) = (Content::Packet, [0; 6], [0; 6]);
        let reply = Frame { content, from, to, hardware_from, hardware_to, behind: false, number: 1, heard };
        if let Some(peer) = self.a.peers.at(&from) {
            peer.on_packet(&reply);
            peer.on_datagram();
        }
    }

    /// Has a ask, b answer, and a hear that.
    fn agree(&mut self) {
        while !is_ready(self.b.fd(), 0) {
            assert!(!self.offer(1, true));
        }
        let batch = &mut RxBatch::new(1);
        // The datagrams before the question, which never went, are taken for read.
        assert!(self.b.recv(batch, false).behind);
        assert!(!self.b.recv(batch, true).behind);
        await_frame(self.a.fd());
        assert_eq!(self.a.recv(batch, false), Found::default());
    }

    /// Waits until the last packet's frame has come to b's end, and returns it.
    fn last_frame(&mut self) -> Frame {
        let number = self.sent();
        loop {
            while let Some(bytes) = self.ear.peek() {
                let frame = Frame::parse(bytes, &self.to_b).map(|(frame, _)| frame);
                self.ear.pass();
                match frame {
                    Some(frame) if (frame.content, frame.number) == (Content::Packet, number) => {
                        return frame;
                    }
                    _ => {}
                }
            }
            await_frame(self.ear.as_raw_fd());
        }
    }

    /// Whether the frame that the next packet becomes says that datagrams went before it.
    fn next_is_behind(&mut self) -> bool {
        assert!(self.offer(1, true));
        self.last_frame().behind
    }
}

#[test]
fn what_has_a_dscp_goes_as_a_datagram_that_the_next_frame_waits_for() {
    on_cable("what_has_a_dscp_goes_as_a_datagram_that_the_next_frame_waits_for", |mut ends| {
        ends.agree();
        assert!(ends.next_is_behind(), "behind those before frames began");
        assert!(!ends.next_is_behind());
        let (to, slices) = (ends.to_b, [IoSlice::new(b"marked")]);
        let marked = Transmit {
            to,
            segment_bytes: 6,
            bytes: 6,
            slices: &slices,
            express: true,
            lend: false,
            dscp: 46,
        };
        assert!(!ends.a.send(&marked));
        assert!(ends.next_is_behind());
    });
}

#[test]
fn a_frame_says_whether_datagrams_went_before_it() {
    on_cable("a_frame_says_whether_datagrams_went_before_it", |mut ends| {
        ends.agree();
        assert!(ends.next_is_behind(), "the datagram that the question went along with");
        assert!(!ends.next_is_behind());
        ends.a.after_datagrams(&ends.to_b.clone());
        assert!(ends.next_is_behind(), "a train");
        assert!(!ends.next_is_behind());
        assert!(!ends.offer(1, false));
        assert!(ends.next_is_behind(), "a packet that is to prove the link");
        assert!(!ends.offer(PACKET_BYTES_MAX + 1, true));
        assert!(ends.next_is_behind(), "a large one");
        let to = ends.to_b;
        while !ends.a.peers.at(&to).unwrap().is_behind() {
            ends.offer(1, true);
        }
        assert!(ends.next_is_behind(), "one of many");
        assert!(!ends.next_is_behind());
    });
}

/// Has a frame behind datagrams come to b's end.
fn send_behind(ends: &mut Ends) {
    ends.a.after_datagrams(&ends.to_b.clone());
    assert!(ends.next_is_behind());
}

#[test]
fn only_what_was_seen_before_the_datagrams_were_read_may_pass() {
    on_cable("only_what_was_seen_before_the_datagrams_were_read_may_pass", |mut ends| {
        ends.agree();
        let (found, mut batch) = (|packets, behind| Found { packets, behind }, RxBatch::new(8));
        // The knowledge that all datagrams were read is older than the frame.
        send_behind(&mut ends);
        assert_eq!(ends.b.recv(&mut batch, true), found(0, true));
        assert_eq!(ends.b.recv(&mut batch, false), found(0, true), "it is kept");
        send_behind(&mut ends);
        assert!(!ends.next_is_behind());
        assert_eq!(ends.b.recv(&mut batch, true), found(1, true), "datagrams went before the second");
        assert_eq!(ends.b.recv(&mut batch, true), found(2, false), "none went before the third");
        assert_eq!(batch.len(), 3);
    });
}

#[test]
fn a_frame_waits_for_so_many_groups_without_an_end_each_time() {
    on_cable("a_frame_waits_for_so_many_groups_without_an_end_each_time", |mut ends| {
        ends.agree();
        let mut batch = RxBatch::new(1);
        for groups in [1, 8, 1, WAITS_MAX] {
            // What nobody waits for does not count.
            assert!(!ends.b.has_waited(3 * WAITS_MAX));
            send_behind(&mut ends);
            for read in 1..=WAITS_MAX / groups {
                batch.clear();
                assert!(ends.b.recv(&mut batch, false).behind);
                batch.push(ends.to_b, b"datagram", 0, false);
                assert_eq!(ends.b.has_waited(groups), read * groups == WAITS_MAX);
                assert_eq!(ends.b.recv(&mut batch, true), Found::default(), "the batch is full");
            }
            batch.clear();
            assert_eq!(ends.b.recv(&mut batch, false), Found { packets: 1, behind: false });
        }
    });
}

#[test]
fn a_flood_of_questions_or_rubbish_is_taken_in_parts() {
    on_cable("a_flood_of_questions_or_rubbish_is_taken_in_parts", |mut ends| {
        ends.agree();
        let question = Frame {
            content: Content::Question,
            from: Address::Ip("10.0.0.3:7430".parse().unwrap()),
            to: ends.to_b,
            hardware_from: ends.mouth.hardware_address(),
            hardware_to: frame::EVERYBODY,
            behind: false,
            number: 0,
            heard: 0,
        };
        let mut bytes = Vec::new();
        assert!(question.emit(&[], &mut bytes));
        let mut rubbish = bytes.clone();
        rubbish[30] ^= 1;
        for bytes in [bytes, rubbish] {
            for _ in 0..3 * FRAMES_PER_LOOK + 1 {
                ends.mouth.send(&[IoSlice::new(&bytes)]).unwrap();
            }
            ends.next_is_behind();
            let (fd, mut batch) = (ends.b.fd(), RxBatch::new(8));
            for _ in 0..3 {
                assert_eq!(ends.b.recv(&mut batch, false).packets, 0);
                assert!(is_ready(fd, 0), "one look takes no more than its part");
            }
            let found = [ends.b.recv(&mut batch, false), ends.b.recv(&mut batch, true)];
            assert_eq!(found.map(|found| found.packets).iter().sum::<usize>(), 1);
            assert!(!is_ready(fd, 0));
        }
    });
}

#[test]
fn one_datagram_amid_frames_shows_that_they_arrive_and_more_are_looked_for_first() {
    on_cable("one_datagram_amid_frames_shows_that_they_arrive_and_more_are_looked_for_first", |mut ends| {
        ends.agree();
        let from_a = ends.a.local;
        let frames = |ends: &mut Ends| {
            for _ in 0..20 {
                while !ends.offer(1, true) {}
                ends.last_frame();
                let mut batch = RxBatch::new(8);
                ends.b.recv(&mut batch, false);
                ends.b.recv(&mut batch, true);
            }
            ends.b.hot = true;
        };
        // The sender's own datagrams, one in 32, never went: nobody is at them here.
        let is_hot_after = |ends: &mut Ends, datagrams: &[(&[u8], usize)]| {
            let mut batch = RxBatch::new(8);
            for (bytes, stride) in datagrams {
                assert!(batch.push(from_a, bytes, *stride, false));
            }
            ends.b.on_datagrams(batch.iter());
            ends.b.hot
        };
        frames(&mut ends);
        assert!(is_hot_after(&mut ends, &[(b"proof", 0)]));
        assert!(!is_hot_after(&mut ends, &[(b"another", 0)]), "no frame came between");
        frames(&mut ends);
        assert!(!is_hot_after(&mut ends, &[(b"train", 2)]));
        frames(&mut ends);
        assert!(!is_hot_after(&mut ends, &[(b"one", 0), (b"two", 0)]));
    });
}
