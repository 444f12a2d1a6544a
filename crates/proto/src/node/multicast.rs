//! Messages to all who have bound something of a range (protocol.md §5.9).

use super::Node;
use crate::address::{ServiceAddress, ServiceRange};
use crate::error::SendError;
use crate::flow::send::Outgoing;
use crate::flow::{Class, FlowKey};
use crate::id::{BufferId, NodeId, PortId};
use crate::limits;
use crate::session::Session;
use crate::store::Store;
use crate::time::Instant;
use crate::wire;
use smallvec::SmallVec;

impl Node {
    /// Sends one copy to each node on which somebody has bound something of `range`; it is handed to every such port there.
    pub(super) fn send_to_all(
        &mut self,
        now: Instant,
        port: PortId,
        range: ServiceRange,
        (class, tag): (Class, Option<u64>),
        (buffer, len): (BufferId, u64),
        store: &mut dyn Store,
    ) -> Result<(), SendError> {
        if len > limits::EAGER_BYTES_MAX {
            return Err(SendError::TooLarge(len));
        }
        let mut nodes: SmallVec<[NodeId; 8]> =
            self.table.lookup_range(range).iter().map(|to| to.node).collect();
        nodes.dedup();
        if nodes.is_empty() {
            return Err(SendError::NoService(ServiceAddress::new(range.kind, range.lower)));
        }
        let speaks = |session: &Session| session.peer.features & wire::FEATURE_MULTICAST != 0;
        if let Some(mute) = nodes.iter().find(|node| self.session_with(**node).is_some_and(|s| !speaks(s))) {
            return Err(SendError::Unsupported(*mute));
        }
        let key = FlowKey { from: port, to: PortId::MULTICAST, class };
        let message = Outgoing { buffer, len, service: None, range: Some(range), tag, returns: false };
        let mut copies = 0;
        for node in nodes {
            let Some(session) = self.session_with_mut(node) else { continue };
            copies += u32::from(session.send(now, key, message));
        }
        if copies == 0 {
            return Err(SendError::NoService(ServiceAddress::new(range.kind, range.lower)));
        }
        store.share(port, buffer, copies);
        Ok(())
    }
}
