//! What acknowledgement and loss of packets mean to what they carried (protocol.md §5.4).

use super::{Cx, Session};
use crate::error::Violation;
use crate::link::send::{Item, ranges_of};
use crate::link::state::LinkEvent;
use crate::link::window::AckSample;
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::wire::Ack;

/// When the confirmation of a packet would have been heard if nobody had held it back: neither the peer, nor this machine
/// while it had other things to do. By what the packet waited on its way, as the peer saw it, and the bare round trip.
fn heard_at(now: Instant, rtt: Duration, rtt_min: Duration, queueing: Duration) -> Instant {
    let took = rtt_min + queueing;
    now - (rtt - took)
}

impl Session {
    /// Takes in an ACK frame. An error: the peer acknowledges what was never sent.
    pub(super) fn on_ack(&mut self, cx: &mut Cx<'_>, ack: &Ack) -> Result<(), Violation> {
        let Some(index) = self.link_index(ack.link) else { return Ok(()) };
        let mut items = std::mem::take(&mut self.scratch);
        let link = &mut self.links[index];
        let inflight = link.sent.inflight_bytes();
        let told = link.sent.acknowledge(ranges_of(ack), |item| items.push(item));
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::AckRangeOffByOne) {
            let low = |&(low, high): &(u64, u64)| (low.saturating_sub(1), high);
            let wrong: Vec<(u64, u64)> = ranges_of(ack).iter().map(low).collect();
            let _ = link.sent.acknowledge(&wrong, |item| items.push(item));
        }
        let told = match told {
            Ok(told) => told,
            Err(violation) => {
                items.clear();
                self.scratch = items;
                return Err(violation);
            }
        };
        if told.packets + told.spurious > 0 {
            link.pto_count = 0;
            link.restart_pto(cx.now);
            if let Some(size) = told.bytes.checked_div(told.packets) {
                link.mtu.on_packet_acked(size as u16);
            }
            link.losses.note(cx.now, told.packets, 0);
            link.window.set_packet_bytes(link.mtu.current());
            let rtt = Duration::between_stamps(cx.now.stamp(), ack.stamp_echo);
            if told.largest_is_new {
                link.rtt.sample(cx.now, rtt, Duration((ack.delay as u64) << 8));
                self.choice.note_round_trip(index, link.rtt.latest());
            }
            if told.spurious > 0 {
                link.stats.packets_lost_spuriously += told.spurious;
                link.losses.take_back(told.spurious);
                link.sent.on_spurious_loss();
            }
            let queueing = Duration((ack.queueing as u64) << 8);
            let heard_at = heard_at(cx.now, rtt, link.rtt.min(), queueing);
            link.on_ack(
                cx.now,
                &AckSample {
                    acked_bytes: told.bytes,
                    rx_bytes: ack.rx_bytes,
                    rx_clock: ack.rx_clock,
                    rtt: link.rtt.latest(),
                    rtt_min: link.rtt.min(),
                    inflight_before: inflight,
                    app_limited: inflight + link.train_bytes() < link.window.cwnd() && !link.blocked,
                    bearer_full: link.blocked,
                    queueing,
                    took: heard_at.since(told.oldest_sent_at.unwrap_or(heard_at)),
                    heard_at,
                },
            );
            self.last_proof_at = cx.now;
        }
        let proof = told.packets + told.spurious > 0;
        self.confirm(cx.store, &mut items, index, cx.now);
        self.scratch = items;
        self.forget_idle_connections(cx);
        self.detect_losses(cx, index);
        self.insure(cx);
        self.try_links(cx.now);
        if proof {
            self.link_event(cx, index, LinkEvent::ProofOfLife);
        }
        Ok(())
    }

    /// Looks for losses on a link and has what was lost sent again.
    pub(super) fn detect_losses(&mut self, cx: &mut Cx<'_>, index: usize) {
        let mut items = std::mem::take(&mut self.scratch);
        let link = &mut self.links[index];
        let threshold = link.rtt.time_threshold();
        let inflight = link.sent.inflight_bytes();
        let (packets, again) = link.sent.detect(cx.now, threshold, |item| items.push(item));
        link.set_loss_at(again);
        if packets > 0 {
            link.stats.packets_lost += packets;
            link.losses.note(cx.now, 0, packets);
            link.window.on_loss(cx.now, packets, inflight);
            let bytes = inflight - link.sent.inflight_bytes();
            link.mtu.on_packet_lost(cx.now, (bytes / packets) as u16);
            self.repeat(&mut items, index);
        }
        self.scratch = items;
    }

    /// Everything in `items` arrived.
    fn confirm(
        &mut self,
        store: &mut dyn Store,
        items: &mut Vec<Item>,
        link: usize,
        now: crate::time::Instant,
    ) {
        for item in items.drain(..) {
            match item {
                Item::Messages { flow: key, first, count } => {
                    let Some(flow) = self.sending.flows.get_mut(key) else { continue };
                    let (port, stats) = (flow.key.from, &mut self.stats);
                    flow.confirm_whole(first, count, |m| {
                        stats.messages_confirmed += 1;
                        #[cfg(feature = "planted")]
                        if self.early.remove(&(port, m.buffer)) {
                            return;
                        }
                        store.release(port, m.buffer, true);
                    });
                    self.note_if_idle(key);
                }
                Item::Fragment { flow: key, seq, offset, len } => {
                    let Some(flow) = self.sending.flows.get_mut(key) else { continue };
                    let (port, stats) = (flow.key.from, &mut self.stats);
                    flow.confirm_part(seq, offset, len, |m| {
                        stats.messages_confirmed += 1;
                        #[cfg(feature = "planted")]
                        if self.early.remove(&(port, m.buffer)) {
                            return;
                        }
                        store.release(port, m.buffer, true);
                    });
                    self.note_if_idle(key);
                }
                Item::Extent { token, offset, len } => self.confirm_extent(store, token, offset, len),
                Item::Control { number } => {
                    self.control.confirm(number);
                    if !self.receiving.consumed.is_empty() {
                        self.tell_consumed();
                    }
                }
                Item::MtuProbe { size } => self.links[link].mtu.on_probe_acked(now, size),
                Item::Rts { .. } | Item::Credit { .. } | Item::Cts { .. } => {}
            }
        }
    }

    /// The end of a connection whose last message was confirmed may be over.
    #[inline]
    fn note_if_idle(&mut self, key: u32) {
        if let Some(flow) = self.sending.flows.get(key)
            && flow.key.to.is_connection()
            && flow.is_idle()
        {
            self.connections.note_idle(flow.key.to);
        }
    }

    fn confirm_extent(&mut self, store: &mut dyn Store, token: u32, offset: u64, len: u32) {
        let Some(transfer) = self.sending.transfers.get_mut(token) else { return };
        if !transfer.confirm(offset, len) {
            return;
        }
        let (key, seq) = (transfer.flow, transfer.seq);
        self.sending.transfers.remove(token);
        let Some(flow) = self.sending.flows.get_mut(key) else { return };
        let (port, stats) = (flow.key.from, &mut self.stats);
        flow.confirm_message(seq, |m| {
            stats.messages_confirmed += 1;
            #[cfg(feature = "planted")]
            if self.early.remove(&(port, m.buffer)) {
                return;
            }
            store.release(port, m.buffer, true);
        });
        self.note_if_idle(key);
    }

    /// Everything in `items` must go out again, by whichever link takes it.
    pub(super) fn repeat(&mut self, items: &mut Vec<Item>, _link: usize) {
        for item in items.drain(..) {
            match item {
                Item::Messages { flow, first, count } => {
                    self.repeat_in_flow(flow, |f| f.repeat_whole(first, count))
                }
                Item::Rts { flow, seq } => self.repeat_in_flow(flow, |f| f.repeat_whole(seq, 1)),
                Item::Fragment { flow, seq, offset, len } => {
                    self.repeat_in_flow(flow, |f| f.repeat_part(seq, offset, len));
                }
                Item::Extent { token, offset, len } => {
                    let Some(transfer) = self.sending.transfers.get_mut(token) else { continue };
                    transfer.repeat(offset, len);
                    if let Some(flow) = self.sending.flows.get_mut(transfer.flow) {
                        self.schedule.enqueue_transfer(token, transfer, flow);
                    }
                }
                Item::Control { number } => self.control.repeat(number),
                Item::Credit { port } => self.repeat_credit(port),
                Item::Cts { transfer } => self.repeat_grant(transfer.0),
                Item::MtuProbe { .. } => {}
            }
        }
    }

    fn repeat_in_flow(&mut self, key: u32, repeat: impl FnOnce(&mut crate::flow::send::SendFlow)) {
        if let Some(flow) = self.sending.flows.get_mut(key) {
            repeat(flow);
            self.schedule.enqueue_flow(key, flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_counts_as_heard_when_it_could_have_been() {
        let now = Instant::ZERO + Duration::s(1);
        let heard_at = |rtt_us| heard_at(now, Duration::us(rtt_us), Duration::us(100), Duration::us(400));
        assert_eq!(heard_at(3_000), now - Duration::us(2_500));
        assert_eq!(heard_at(300), now);
    }
}
