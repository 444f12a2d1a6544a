//! Trains that leave by reference: the kernel takes the pages that they lie in instead of copying them.
//!
//! Only by connected sockets, for a spliced train cannot name its destination nor say its DSCP, and only large ones: two system
//! calls are worth it from some pages on.

use std::io;

use polyrail_sys::errno;
use polyrail_sys::udp::PageLender;

use super::sockets::Data;
use super::trouble::Trouble;
use crate::Transmit;

/// Shorter trains are copied.
const LENT_BYTES_MIN: usize = 16_384;

/// What to send by, where the kernel can do it.
pub(super) struct Lending {
    lender: Option<PageLender>,
    /// The last attempt failed, and copying will tell what was to blame.
    suspect: bool,
}

impl Lending {
    /// `wanted`: the socket knows segmentation, without which trains go one by one.
    pub fn new(wanted: bool) -> Lending {
        Lending { lender: wanted.then(|| PageLender::new().ok().flatten()).flatten(), suspect: false }
    }

    pub fn is_possible(&self) -> bool {
        self.lender.is_some()
    }

    /// A train was copied and taken: if lending it had failed, lending is given up.
    pub fn on_copied(&mut self) {
        if std::mem::take(&mut self.suspect) {
            self.lender = None;
        }
    }

    /// Sends the train by the socket `data` with datagrams of `segment_bytes`. `None`: it has to be copied.
    pub fn send(
        &mut self,
        train: &Transmit<'_>,
        data: &mut Data,
        segment_bytes: u16,
        trouble: &mut Trouble,
    ) -> Option<io::Result<usize>> {
        self.suspect = false;
        let lender = self.lender.as_ref()?;
        let [bytes] = train.slices else { return None };
        if !train.lend || train.bytes < LENT_BYTES_MIN || data.peer.is_none() {
            return None;
        }
        if !data.cut(segment_bytes) || !data.mark_all(train.dscp) {
            return None;
        }
        let sent = trouble.retry(&data.socket, |socket| lender.send(socket, bytes).map(|()| train.bytes));
        let Err(error) = &sent else { return Some(sent) };
        if error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(errno::ENOBUFS) {
            return Some(sent);
        }
        self.suspect = true;
        None
    }
}
