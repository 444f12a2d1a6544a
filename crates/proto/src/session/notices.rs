//! What a session tells its peer exactly once and in order, and what it does with what it is told so (protocol.md §5.5).

use super::control::Received;
use super::receive::{Taken, breach};
use super::{Cx, Notice, Session};
use crate::config::Config;
use crate::error::Violation;
use crate::wire::{self, Binding};

/// Records of the binding log per frame, so that a frame fits a packet of the smallest size.
const RECORDS_PER_FRAME: usize = 24;

impl Session {
    // ----- what it tells -------------------------------------------------------------------------------------

    pub(crate) fn notify(&mut self, notice: Notice) {
        self.control.push(notice);
        self.quiet.stir();
    }

    /// Control frames can be queued without growing the log beyond its bound.
    pub(crate) fn control_has_room(&self) -> bool {
        self.control.has_room()
    }

    /// The number that the next control frame gets.
    pub(crate) fn control_end(&self) -> u32 {
        self.control.end()
    }

    /// Whether the peer has processed all control frames below number `end`.
    pub(crate) fn control_is_confirmed(&self, end: u32) -> bool {
        self.control.has_confirmed(end)
    }

    /// How many records of our log, from number `log_seq` on, may be queued as one frame: as many as the frame that
    /// waits last can take if they follow those in it, or a whole frame if there is room for one more.
    pub(crate) fn bindings_room(&mut self, log_seq: u64) -> usize {
        if let Some(Notice::Bindings { log_seq: first, records, .. }) = self.control.last_unsent()
            && *first + records.len() as u64 == log_seq
            && records.len() < RECORDS_PER_FRAME
        {
            return RECORDS_PER_FRAME - records.len();
        }
        if self.control.has_room() { RECORDS_PER_FRAME } else { 0 }
    }

    /// Queues records of our log from number `log_seq` on, no more than there is room for.
    pub(crate) fn tell_bindings(&mut self, config: &Config, log_seq: u64, mut records: Vec<Binding>) {
        if self.peer.features & wire::FEATURE_NAMES == 0 {
            // It would not understand the flag. Its own bindings are not exclusive, and win.
            records.iter_mut().for_each(|record| record.exclusive = false);
        }
        match self.control.last_unsent() {
            Some(Notice::Bindings { log_seq: first, records: waiting, .. })
                if *first + waiting.len() as u64 == log_seq
                    && waiting.len() + records.len() <= RECORDS_PER_FRAME =>
            {
                waiting.append(&mut records);
            }
            _ => {
                let (origin, incarnation) = (config.node, config.incarnation);
                self.notify(Notice::Bindings { origin, incarnation, log_seq, records });
            }
        }
    }

    // ----- what it is told -----------------------------------------------------------------------------------

    pub(super) fn on_control(&mut self, number: u32, notice: impl FnOnce() -> Notice) -> Taken {
        match self.control.receive(number, notice) {
            Received::Taken => Taken::Yes,
            Received::TooFar => breach(Violation::BeyondControlWindow),
        }
    }

    /// A control frame that what follows it in its packet may depend on.
    pub(super) fn on_pressing_control(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        notice: impl FnOnce() -> Notice,
    ) -> Taken {
        let taken = self.on_control(number, notice);
        self.take_notices(cx);
        taken
    }

    pub(super) fn take_notices(&mut self, cx: &mut Cx<'_>) {
        while let Some(notice) = self.next_notice(cx) {
            match notice {
                Notice::PortClosed(port) => self.peer_port_closed(cx, port),
                Notice::LinkSet(id, wire::LinkStatus::Down, next) => self.peer_says_down(cx, id, next),
                Notice::LinkSet(id, status, _) => self.peer_wants(id, status),
                Notice::Connect(connect) => self.on_connect(cx, &connect),
                Notice::Accept(accept) => self.on_accept(cx, &accept),
                Notice::Shutdown(shutdown) => self.on_shutdown(cx, &shutdown),
                Notice::Consumed(consumed) => self.on_consumed(cx, &consumed),
                // These concern the node as a whole.
                others @ (Notice::Bindings { .. } | Notice::Digest(_) | Notice::BearerSet(_)) => {
                    self.notices.push_back(others);
                }
            }
        }
    }

    fn next_notice(&mut self, _cx: &Cx<'_>) -> Option<Notice> {
        #[cfg(feature = "planted")]
        if _cx.config.planted(crate::planted::Planted::ControlOutOfOrder) {
            return self.control.next_of_any();
        }
        self.control.next()
    }
}
