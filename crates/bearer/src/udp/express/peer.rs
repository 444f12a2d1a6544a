//! One neighbour: whether frames reach it, as far as both sides' frames and datagrams tell.
//!
//! Each frame carries its number and the highest one heard from the other side. A neighbour is asked from time to time
//! whether frames reach it, until it answers; then packets go as frames, until some get no reply.

use super::frame::{Content, EVERYBODY, Frame};
use crate::Address;

/// Packets to a neighbour that are worth a question; twice as many, up to the last, after each question without an
/// answer.
const QUESTION_PACKETS: u32 = 32;
const QUESTION_PACKETS_MAX: u32 = 4_096;
/// Every so many packets one goes as a datagram, to show that datagrams still arrive.
const DATAGRAM_EVERY: u32 = 32;
/// Frames in a row, without any datagram between them, that make it doubtful that datagrams still arrive.
const FRAMES_ALONE_MAX: u32 = 3 * DATAGRAM_EVERY;
/// Frames that nothing was heard about for so long put frames in doubt: one alone may need no reply.
const DOUBT_NS: u64 = 5_000_000;
const DOUBT_FRAMES: u16 = 2;
/// So many of them do so at once.
const UNHEARD_MAX: u16 = 64;

/// How one packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Frame,
    Datagram,
    /// The same, and a question goes along.
    DatagramAndQuestion,
}

pub(super) struct Peer {
    pub address: Address,
    /// When it was last sent to, in packets of the bearer.
    pub used: u32,
    /// Unknown until it has asked or answered.
    hardware: Option<[u8; 6]>,
    /// Whether frames go both ways.
    ready: bool,
    asked: bool,
    /// Whether its question was answered, so that its next frame shows that the answer got there.
    answered: bool,
    packets: u32,
    question_at: u32,
    /// Number of the last frame to it, the highest it has heard of, the highest heard from it.
    sent: u16,
    told: u16,
    heard: u16,
    /// When the first frame after its last reply went; 0: none has.
    unheard_since_ns: u64,
    frames_alone: u32,
    behind: bool,
}

impl Peer {
    pub fn new(address: Address, used: u32) -> Peer {
        Peer {
            address,
            used,
            hardware: None,
            ready: false,
            asked: false,
            answered: false,
            packets: 0,
            question_at: QUESTION_PACKETS,
            sent: 0,
            told: 0,
            heard: 0,
            unheard_since_ns: 0,
            frames_alone: 0,
            behind: false,
        }
    }

    // ----- out -----------------------------------------------------------------------------------------------

    /// How the next packet goes to it. The clock is read only if it matters.
    pub fn choose(&mut self, now_ns: impl FnOnce() -> u64) -> Way {
        self.packets += 1;
        if self.ready && self.frames_doubtful(now_ns) {
            self.doubt();
        }
        if self.ready {
            if !self.packets.is_multiple_of(DATAGRAM_EVERY) {
                return Way::Frame;
            }
            self.packets = 0;
        } else if self.packets >= self.question_at {
            self.packets = 0;
            self.question_at = (self.question_at * 2).min(QUESTION_PACKETS_MAX);
            if self.frames_alone < FRAMES_ALONE_MAX {
                self.asked = true;
                self.behind = true;
                return Way::DatagramAndQuestion;
            }
        }
        self.behind = true;
        Way::Datagram
    }

    fn frames_doubtful(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        let unheard = self.unheard();
        if unheard >= UNHEARD_MAX {
            return true;
        }
        if self.unheard_since_ns == 0 {
            self.unheard_since_ns = now_ns();
            return false;
        }
        unheard >= DOUBT_FRAMES && now_ns().saturating_sub(self.unheard_since_ns) > DOUBT_NS
    }

    fn unheard(&self) -> u16 {
        self.sent.wrapping_sub(self.told)
    }

    fn doubt(&mut self) {
        (self.ready, self.asked, self.answered) = (false, false, false);
        (self.packets, self.question_at) = (0, QUESTION_PACKETS);
    }

    /// The machine could not send a frame.
    pub fn on_failed(&mut self) {
        self.doubt();
        self.behind = true;
    }

    pub fn on_datagrams_sent(&mut self) {
        self.behind = true;
    }

    /// Whether datagrams went since the last frame.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    pub fn on_frame_sent(&mut self) {
        self.behind = false;
    }

    /// The number for one more frame.
    pub fn number(&mut self, content: Content) -> u16 {
        if content == Content::Packet {
            self.sent = self.sent.wrapping_add(1);
        }
        self.sent
    }

    pub fn heard(&self) -> u16 {
        self.heard
    }

    /// Questions go to everybody: its hardware address may be another than before.
    pub fn hardware_address(&self, content: Content) -> [u8; 6] {
        self.hardware.filter(|_| content != Content::Question).unwrap_or(EVERYBODY)
    }

    // ----- in ------------------------------------------------------------------------------------------------

    /// Whether `frame` is from it: a packet's says the port only, and is good for nothing before an exchange of the rest.
    pub fn is_from(&self, frame: &Frame) -> bool {
        if frame.content != Content::Packet {
            return self.address == frame.from;
        }
        let port = |address: &Address| match address {
            Address::Ip(ip) => Some(ip.port()),
            Address::Memory(_) | Address::Shm { .. } => None,
        };
        self.hardware == Some(frame.hardware_from) && port(&self.address) == port(&frame.from)
    }

    pub fn on_packet(&mut self, frame: &Frame) {
        self.heard = frame.number;
        if std::mem::take(&mut self.answered) {
            self.begin();
        }
        // What it cannot have heard is older than this life of it, or of us.
        let told = frame.heard.wrapping_sub(self.told);
        if told > 0 && told <= self.unheard() {
            self.told = frame.heard;
            self.unheard_since_ns = 0;
        }
        self.frames_alone += 1;
        if self.frames_alone >= FRAMES_ALONE_MAX && self.ready {
            self.doubt();
        }
    }

    /// A datagram has come from it; whether after frames enough for one that only shows that it can.
    pub fn on_datagram(&mut self) -> bool {
        std::mem::take(&mut self.frames_alone) > DATAGRAM_EVERY / 2
    }

    /// It asks whether its frames reach us; whether it is to be told that they do. As long as its datagrams do not, it
    /// is to stay with those.
    pub fn on_question(&mut self, hardware: [u8; 6]) -> bool {
        if self.frames_alone >= FRAMES_ALONE_MAX {
            return false;
        }
        self.hardware = Some(hardware);
        self.answered = true;
        true
    }

    pub fn on_answer(&mut self, hardware: [u8; 6]) {
        if std::mem::take(&mut self.asked) {
            self.hardware = Some(hardware);
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.ready = true;
        (self.packets, self.question_at) = (0, QUESTION_PACKETS);
        (self.told, self.unheard_since_ns) = (self.sent, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Way::{Datagram, DatagramAndQuestion};

    const HERE: &str = "10.0.0.1:1";
    const THERE: &str = "10.0.0.2:2";

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn from_there(content: Content, number: u16, heard: u16) -> Frame {
        let (from, to) = (ip(THERE), ip(HERE));
        Frame { content, from, to, hardware_from: [2; 6], hardware_to: [1; 6], behind: false, number, heard }
    }

    /// Packets until the next that does not go by `way`, and how that one goes.
    fn run(peer: &mut Peer, way: Way, now_ns: u64) -> (u32, Way) {
        for count in 0.. {
            let next = peer.choose(|| now_ns);
            if next != way {
                return (count, next);
            }
            if way == Way::Frame {
                peer.number(Content::Packet);
            }
        }
        unreachable!()
    }

    fn ready() -> Peer {
        let mut peer = Peer::new(ip(THERE), 0);
        assert_eq!(run(&mut peer, Datagram, 0), (31, DatagramAndQuestion));
        peer.on_answer([2; 6]);
        peer
    }

    #[test]
    fn questions_become_rarer_until_one_is_answered() {
        let mut peer = Peer::new(ip(THERE), 0);
        for packets in [32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 4_096] {
            assert_eq!(run(&mut peer, Datagram, 0), (packets - 1, DatagramAndQuestion));
        }
        peer.on_answer([2; 6]);
        assert!(peer.is_from(&from_there(Content::Packet, 1, 0)));
        assert_eq!(peer.choose(|| 1), Way::Frame);
        assert_eq!(peer.hardware_address(Content::Packet), [2; 6]);
        assert_eq!(peer.hardware_address(Content::Question), EVERYBODY);
    }

    #[test]
    fn an_answer_that_nobody_asked_for_means_nothing() {
        let mut peer = Peer::new(ip(THERE), 0);
        peer.on_answer([2; 6]);
        assert!(!peer.is_from(&from_there(Content::Packet, 1, 0)));
        assert_eq!(peer.choose(|| 1), Datagram);
    }

    #[test]
    fn who_was_answered_is_believed_once_its_frames_come() {
        let mut peer = Peer::new(ip(THERE), 0);
        assert!(peer.on_question([2; 6]));
        assert_eq!(peer.choose(|| 1), Datagram);
        peer.on_packet(&from_there(Content::Packet, 1, 0));
        assert_eq!(peer.choose(|| 1), Way::Frame);
        assert_eq!(peer.heard(), 1);
    }

    #[test]
    fn one_packet_in_so_many_stays_a_datagram() {
        let mut peer = ready();
        for number in 1..1_000 {
            let datagram = number % DATAGRAM_EVERY == 0;
            assert_eq!(peer.choose(|| 1), if datagram { Datagram } else { Way::Frame });
            if !datagram {
                let sent = peer.number(Content::Packet);
                peer.on_packet(&from_there(Content::Packet, sent, sent));
                peer.on_datagram();
            }
            assert_eq!(peer.is_behind(), datagram || number == 1, "{number}");
            peer.on_frame_sent();
        }
    }

    #[test]
    fn frames_without_a_reply_are_doubted_by_number_and_by_time() {
        let mut peer = ready();
        assert_eq!(run(&mut peer, Way::Frame, 1).0, 31);
        assert_eq!(run(&mut peer, Way::Frame, 1), (31, Datagram));
        assert_eq!(run(&mut peer, Way::Frame, 1), (2, Datagram), "64 in all");
        assert_eq!(run(&mut peer, Datagram, 1), (31, DatagramAndQuestion), "it is asked again soon");

        for (frames, late) in [(1, Way::Frame), (2, Datagram)] {
            let mut peer = ready();
            for _ in 0..frames {
                assert_eq!(peer.choose(|| 1), Way::Frame);
                peer.number(Content::Packet);
            }
            assert_eq!(peer.choose(|| 1 + DOUBT_NS), Way::Frame, "not yet");
            assert_eq!(peer.choose(|| 2 + DOUBT_NS), late, "one alone may need no reply");
        }
    }

    #[test]
    fn a_reply_ends_the_doubt() {
        let mut peer = ready();
        for round in 0..200u64 {
            for _ in 0..2 {
                if peer.choose(|| round * 3 * DOUBT_NS) == Way::Frame {
                    peer.number(Content::Packet);
                }
            }
            assert!(peer.ready, "{round}");
            let told = peer.sent;
            peer.on_packet(&from_there(Content::Packet, round as u16, told));
            peer.on_datagram();
        }
        // What it cannot have heard counts for nothing.
        let (sent, told) = (peer.sent, peer.told);
        for heard in [sent.wrapping_add(1), told.wrapping_sub(1)] {
            peer.on_packet(&from_there(Content::Packet, 0, heard));
            assert_eq!(peer.told, told);
        }
    }

    #[test]
    fn numbers_wrap_without_a_doubt() {
        let (mut peer, mut frames) = (ready(), 0u16);
        for round in 0..2 * u32::from(u16::MAX) {
            assert!(peer.ready, "{round}");
            if peer.choose(|| 1) != Way::Frame {
                continue;
            }
            let sent = peer.number(Content::Packet);
            frames = frames.wrapping_add(1);
            assert_eq!(sent, frames);
            // Replies come in tens, so that the wrap is between a frame and what is heard of it.
            if sent % 10 == 3 && round > 10 {
                peer.on_packet(&from_there(Content::Packet, round as u16, sent.wrapping_sub(5)));
                peer.on_datagram();
                assert_eq!((peer.unheard(), peer.heard()), (5, round as u16));
            }
        }
    }

    #[test]
    fn a_frame_that_failed_is_followed_by_datagrams_until_the_next_answer() {
        let mut peer = ready();
        assert_eq!(peer.choose(|| 1), Way::Frame);
        peer.on_frame_sent();
        peer.on_failed();
        assert!(peer.is_behind());
        assert_eq!(run(&mut peer, Datagram, 1), (31, DatagramAndQuestion));
        peer.on_answer([2; 6]);
        assert_eq!(peer.choose(|| 1), Way::Frame);
    }

    #[test]
    fn a_neighbour_heard_by_frames_alone_gets_none_and_no_answer() {
        let mut peer = ready();
        for number in 1..FRAMES_ALONE_MAX as u16 {
            peer.on_packet(&from_there(Content::Packet, number, 0));
        }
        assert!(peer.ready && peer.on_question([2; 6]));
        for _ in 0..2 {
            peer.on_packet(&from_there(Content::Packet, FRAMES_ALONE_MAX as u16, 0));
        }
        assert!(!peer.ready && !peer.on_question([2; 6]));
        for _ in 0..100 {
            assert_eq!(peer.choose(|| 1), Datagram, "and it is not asked");
        }
        peer.on_datagram();
        assert!(peer.on_question([2; 6]));
    }
}
