//! Moves batches of datagrams over one local attachment, and nothing more.
//!
//! A *bearer* is a local attachment to a medium: a UDP socket on one interface, memory shared with other processes, an
//! in-process hub. It knows neither packets nor peers; it takes a *train* (up to 64 datagrams of equal size for one destination,
//! handed over as a gather list) and gives back *groups* (datagrams that arrived together). What the medium can do is
//! told as data in [`Capabilities`]; what went wrong beside the data is told as [`Notice`]s.
//!
//! Bearers are made to be driven by one thread that never sleeps in them: every call returns at once.
#![forbid(unsafe_code)]

mod address;
mod batch;
mod bearer;
mod capability;
pub mod capture;
mod fault;
mod memory;
mod pcap;
mod shm;
mod udp;

pub use address::{Address, Network};
pub use batch::{RxBatch, RxGroup, SLOT_BYTES, Slot};
pub use bearer::{
    Bearer, Descriptors, Notice, NoticeCode, SendOutcome, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Transmit,
};
pub use capability::Capabilities;
pub use fault::{FaultBearer, FaultControl, Faults};
pub use memory::{MemoryBearer, MemoryConfig, MemoryHub};
pub use pcap::PcapBearer;
pub use shm::{ShmBearer, shm_seats};
pub use udp::{BufferShortage, UdpBearer, UdpConfig, buffer_shortages, datagram_bytes_max, shortages};
