//! Counters as plain integers in plain structs.

use crate::wire::RefusedConnect;

/// Why bytes were dropped, each counted apart; never a silent loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// Malformed packets.
    pub malformed: u64,
    /// Packets of another wire version.
    pub version: u64,
    /// Beacons and openings of another cluster.
    pub foreign_cluster: u64,
    /// Packets for a session that does not exist.
    pub unknown_session: u64,
    /// Packets for a link that does not exist, or that came from another address than the link's.
    pub unknown_link: u64,
    /// Packets received twice (by number).
    pub duplicate_packet: u64,
    /// Packets older than the window.
    pub stale_packet: u64,
    /// Frames whose message had already been received.
    pub duplicate_message: u64,
    /// Fragments dropped because a message had too many holes.
    pub holes: u64,
    /// Frames of a type that this build does not speak.
    pub skipped_frame: u64,
    /// Breaches of the protocol.
    pub violation: u64,
    /// Connections refused: nobody listened, or too many waited.
    pub refused_connection: u64,
    /// Messages for a connection that was over.
    pub late_message: u64,
    /// Messages that came before the connection or its answer, by another link: refused, to come again.
    pub early_message: u64,
    /// All that was known of a peer's bindings, because it was not what the peer had said.
    pub names_diverged: u64,
    /// Records of peers' bindings: there were too many, of one peer or in all.
    pub names_full: u64,
    /// Bindings of own ports that were refused: there were too many, of the port or of the node.
    pub bindings_refused: u64,
    /// Openings by the life of a peer with which there is a session: it has lost that, as after a long stop, or somebody repeats
    /// an old one. The peer is asked first.
    pub repeated_opening: u64,
    /// Openings refused: too many sessions, or an identity in doubt.
    pub opening: u64,
    /// Own bearers that were refused: there were as many as there may be.
    pub bearers_refused: u64,
    /// Links that were not made: all numbers of the session were used.
    pub links_refused: u64,
}

/// What a session did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionStats {
    /// Messages accepted from local ports.
    pub messages_sent: u64,
    /// Messages confirmed by the peer.
    pub messages_confirmed: u64,
    /// Messages delivered to local ports.
    pub messages_received: u64,
    /// Messages that failed.
    pub messages_failed: u64,
    /// Packets that were late on one link and whose contents another link carried too.
    pub packets_insured: u64,
    /// Copies of small messages, pieces and announcements that were sent by another link, where policies say so.
    pub messages_copied: u64,
    /// Refusals of messages here, for whatever reason; a message that comes again is refused again.
    pub messages_refused: u64,
    /// Those of them for ports that do not exist.
    pub refused_no_port: u64,
    /// Refusals of messages of ours that the peer told.
    pub refused_by_peer: u64,
}

/// What a port did since it was opened: messages of all kinds, to and from all nodes, its own among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Messages taken from its program; one to several counts once.
    pub messages_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Messages delivered to it.
    pub messages_received: u64,
    /// Bytes of them.
    pub bytes_received: u64,
}

/// What became of the connections of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionStats {
    /// Asked for by ports here.
    pub asked: u64,
    /// Asked for by ports of the peer.
    pub offered: u64,
    /// Wanted by both sides.
    pub opened: u64,
    /// Refused here.
    pub refused_here: Refusals,
    /// Refused by the peer.
    pub refused_by_peer: Refusals,
    /// Ended by the peer without order.
    pub aborted: u64,
    /// Ends that are here no more, for whatever reason.
    pub over: u64,
}

/// Connections that were refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// Too many waited for the port.
    pub backlog: u64,
    /// The port did not exist, or did not listen.
    pub nobody_listens: u64,
    /// The port did not want it.
    pub not_allowed: u64,
}

impl Refusals {
    /// Counts one more.
    pub(crate) fn count(&mut self, reason: RefusedConnect) {
        match reason {
            RefusedConnect::Backlog => self.backlog += 1,
            RefusedConnect::NobodyListens => self.nobody_listens += 1,
            RefusedConnect::NotAllowed => self.not_allowed += 1,
        }
    }
}

/// What a link did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, packet headers included.
    pub bytes_sent: u64,
    /// Trains sent.
    pub trains_sent: u64,
    /// Packets received and accepted.
    pub packets_received: u64,
    /// Bytes of them.
    pub bytes_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost that had arrived after all.
    pub packets_lost_spuriously: u64,
    /// Trains that the local queue refused.
    pub trains_dropped_locally: u64,
    /// Probe time-outs.
    pub probe_timeouts: u64,
    /// Times the link left Up or Probation.
    pub failures: u64,
}
