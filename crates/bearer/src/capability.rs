//! What a medium can do, as data: the core chooses train sizes, checksums and windows by it.

/// Facts about one bearer. Only `segments_max` (offload fails, or works again), `lends_pages` (the kernel refuses),
/// `send_buffer_bytes` (after [`set_send_buffer`](crate::Bearer::set_send_buffer)) and `mtu_bytes` (after
/// [`set_mtu`](crate::Bearer::set_mtu)) ever change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Largest datagram payload in bytes, for example 1,472 for UDP over IPv4 on an MTU of 1,500.
    pub mtu_bytes: u16,
    /// Most datagrams one call of `send` carries at the price of about one; 1 means that there is no such
    /// offload. Trains of up to [`TRAIN_SEGMENTS_MAX`](crate::TRAIN_SEGMENTS_MAX) are accepted all the same.
    pub segments_max: u8,
    /// Whether datagrams that arrive back to back come as one group.
    pub gro: bool,
    /// Whether nothing accepted is ever lost while the receiver lives.
    pub lossless: bool,
    /// Whether datagrams of one sender arrive in the order sent.
    pub ordered: bool,
    /// Whether the medium itself detects altered bytes.
    pub checksummed: bool,
    /// What may be queued for sending, in bytes as the kernel counts them (with its own overhead).
    pub send_buffer_bytes: u32,
    /// What may wait to be received, in bytes as the kernel counts them: a single 1,500-byte datagram costs
    /// about 2,304.
    pub receive_buffer_bytes: u32,
    /// Whether trains whose bytes stay as they are may leave by reference instead of being copied
    /// ([`Transmit::lend`](crate::Transmit::lend)).
    pub lends_pages: bool,
    /// Whether `broadcast` reaches the neighbours.
    pub broadcast: bool,
    /// Whether those that it reaches are on this machine, by memory that they share: to look for what has come is no system
    /// call, and no other medium is as quick.
    pub near: bool,
}
