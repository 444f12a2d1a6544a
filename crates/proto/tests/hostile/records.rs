//! Datagrams overheard in earlier and in present sessions, a bounded choice of them.

use crate::world::Packet;
use crate::world::random::Random;
use polyrail_proto::wire::{HEADER_BYTES, Hello, PacketType, peek_type};

const RECORDS: usize = 1_024;

#[derive(Default)]
pub struct Records {
    /// To be damaged, and repeated from anywhere.
    packets: Vec<Packet>,
    /// Of the honest pair: repeated as they were. Who may alter them may be believed to be one of the two.
    honest: Vec<Packet>,
    hello: Option<Hello>,
}

impl Records {
    /// Keeps a packet in the place of an older one.
    pub fn note(&mut self, random: &mut Random, packet: &Packet, honest: bool) {
        let kind = peek_type(&packet.bytes);
        if kind == Some(PacketType::Init) && !honest {
            self.hello = Hello::parse(&packet.bytes[HEADER_BYTES..]).ok().or(self.hello.take());
        }
        let list = if honest { &mut self.honest } else { &mut self.packets };
        if list.len() < RECORDS {
            list.push(packet.clone());
        } else if kind != Some(PacketType::Data) || random.one_in(4) {
            list[random.below(RECORDS)].clone_from(packet);
        }
    }

    /// The bytes of one of them; none if there is no record.
    pub fn any(&self, random: &mut Random) -> Vec<u8> {
        self.packets.get(random.below(self.packets.len())).map_or_else(Vec::new, |p| p.bytes.clone())
    }

    /// A packet of the honest pair, as it was.
    pub fn honest(&self, random: &mut Random) -> Option<Packet> {
        self.honest.get(random.below(self.honest.len())).cloned()
    }

    /// The body of the last INIT overheard.
    pub fn hello(&self) -> Option<Hello> {
        self.hello.clone()
    }
}
