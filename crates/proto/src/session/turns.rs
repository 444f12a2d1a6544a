//! What a flow's turn costs it. A train that the bearer did not take cost the flows whose turn it was nothing: where every
//! other one finds no room, those that are asked then would get less for ever.

use super::Session;
use crate::link::send::Item;

impl Session {
    /// So much of the turn of a flow that sends `bytes` is used up by them.
    pub(super) fn cost(&mut self, flow: u32, bytes: u64) -> u64 {
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::EndlessTurn) {
            return 0;
        }
        let Some(flow) = self.sending.flows.get_mut(flow) else { return bytes };
        let paid = flow.unsent_bytes.min(bytes);
        flow.unsent_bytes -= paid;
        bytes - paid
    }

    /// These are back from a train that did not leave.
    pub(super) fn give_turns_back(&mut self, items: &[Item]) {
        for item in items {
            let (key, bytes) = match *item {
                Item::Messages { flow, first, count } => {
                    let lens = |f: &crate::flow::send::SendFlow| f.bytes_of(first, count);
                    (flow, self.sending.flows.get(flow).map_or(0, lens))
                }
                Item::Fragment { flow, len, .. } => (flow, len as u64),
                Item::Extent { token, len, .. } => {
                    let Some(transfer) = self.sending.transfers.get(token) else { continue };
                    (transfer.flow, len as u64)
                }
                _ => continue,
            };
            if let Some(flow) = self.sending.flows.get_mut(key) {
                flow.unsent_bytes += bytes;
            }
        }
    }
}
