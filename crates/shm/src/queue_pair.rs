//! One client's queue pair: how it lies in a segment, and its two ends.
//!
//! ```text
//! control page | submission ring | completion ring | tx counters | rx counters | tx blocks | rx blocks
//! ```
//!
//! The client submits commands and takes completions; it allocates what it sends (tx) and releases what it received
//! (rx). The engine does the reverse. The layout follows from the four sizes in the header alone, so both ends compute
//! it and no offset is read from shared memory. An untouched pair has one resident page.

mod layout;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::arena::{ArenaAllocator, ArenaReleaser};
use crate::counter::{Word, WordView};
use crate::doorbell::Doorbell;
use crate::open_entry::{OpenEntry, OpenEntryView};
use crate::ring::{Consumer, Producer};
use crate::segment::{Segment, invalid};
pub use layout::Sizes;
use layout::{Layout, control};

/// Where the memory of a queue pair comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory, for two threads of this process.
    Private,
    /// A sealed memfd, for two processes; [`Client::attach`] maps it on the other side.
    Shared,
}

/// Makes queue pairs.
#[derive(Debug)]
pub struct QueuePair;

impl QueuePair {
    /// Makes a queue pair and gives both its ends. With [`Backing::Shared`] the client end is usually dropped here and
    /// made again by [`Client::attach`] in the other process.
    ///
    /// Fails with `InvalidInput` on sizes out of range, or with what the kernel says.
    pub fn create(sizes: Sizes, backing: Backing) -> io::Result<(Client, Engine)> {
        let layout = Layout::new(sizes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "queue pair sizes are out of range")
        })?;
        let segment = match backing {
            Backing::Private => Segment::private(layout.segment_bytes)?,
            Backing::Shared => Segment::shared(layout.segment_bytes)?,
        };
        layout.write_header(&segment);
        let client = Client::new(&segment, &layout).ok_or_else(misfit)?;
        let engine = Engine::new(&segment, &layout).ok_or_else(misfit)?;
        Ok((client, engine))
    }
}

/// The application's end.
#[derive(Debug)]
pub struct Client {
    /// Commands to the engine.
    pub sq: Producer,
    /// A command that grows until it is taken.
    pub open: OpenEntry,
    /// Completions from the engine.
    pub cq: Consumer,
    /// What is sent: allocated here, released by the engine.
    pub tx: ArenaAllocator,
    /// What was received: allocated by the engine, released here.
    pub rx: ArenaReleaser,
    /// Rung after submitting.
    pub engine_bell: Doorbell,
    /// Slept on while there is no completion.
    pub client_bell: Doorbell,
    /// The control page's words.
    pub words: ClientWords,
    sizes: Sizes,
    segment: Arc<Segment>,
}

/// The control page as the client sees it.
#[derive(Debug)]
pub struct ClientWords {
    /// Commands submitted so far.
    pub accepted: Word,
    /// Payload bytes of completions consumed so far.
    pub consumed_bytes: Word,
    /// Completions consumed so far.
    pub consumed_entries: Word,
    /// The client's state; its values belong to the engine's protocol, 0 is fresh.
    pub client_state: Word,
    /// Commands done so far.
    pub completed: WordView,
    /// Changes with each change of the names the engine knows.
    pub names_generation: WordView,
    /// The engine's state; its values belong to the engine's protocol, 0 is fresh.
    pub state: WordView,
    /// Turns of the engine so far.
    pub engine_turns: WordView,
}

impl Client {
    /// Maps the queue pair that an engine made in another process, once per pair.
    ///
    /// Fails with `InvalidData` when the file is not a sealed segment or its header does not fit it.
    pub fn attach(file: OwnedFd) -> io::Result<Client> {
        let segment = Segment::from_fd(file)?;
        let layout = Layout::read_header(&segment)?;
        Client::new(&segment, &layout).ok_or_else(misfit)
    }

    /// The sizes of this pair.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The memory of this pair.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    fn new(segment: &Arc<Segment>, layout: &Layout) -> Option<Client> {
        let words = ClientWords {
            accepted: Word::new(segment, control::ACCEPTED)?,
            consumed_bytes: Word::new(segment, control::CONSUMED_BYTES)?,
            consumed_entries: Word::new(segment, control::CONSUMED_ENTRIES)?,
            client_state: Word::new(segment, control::CLIENT_STATE)?,
            completed: WordView::new(segment, control::COMPLETED)?,
            names_generation: WordView::new(segment, control::NAMES_GENERATION)?,
            state: WordView::new(segment, control::STATE)?,
            engine_turns: WordView::new(segment, control::ENGINE_TURNS)?,
        };
        Some(Client {
            sq: Producer::new(segment, layout.sq, layout.sizes.sq_entries)?,
            open: OpenEntry::new(segment, control::OPEN_ENTRY)?,
            cq: Consumer::new(segment, layout.cq, layout.sizes.cq_entries)?,
            tx: ArenaAllocator::new(segment, layout.tx)?,
            rx: ArenaReleaser::new(segment, layout.rx)?,
            engine_bell: Doorbell::new(segment, control::ENGINE_BELL)?,
            client_bell: Doorbell::new(segment, control::CLIENT_BELL)?,
            words,
            sizes: layout.sizes,
            segment: Arc::clone(segment),
        })
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct Engine {
    /// Commands of the client.
    pub sq: Consumer,
    /// A command of the client that grows until it is taken.
    pub open: OpenEntryView,
    /// Completions to the client.
    pub cq: Producer,
    /// What the client sends: allocated there, released here.
    pub tx: ArenaReleaser,
    /// What the client receives: allocated here, released there.
    pub rx: ArenaAllocator,
    /// Slept on while there is no command.
    pub engine_bell: Doorbell,
    /// Rung after completing.
    pub client_bell: Doorbell,
    /// The control page's words.
    pub words: EngineWords,
    sizes: Sizes,
    segment: Arc<Segment>,
}

/// The control page as the engine sees it.
#[derive(Debug)]
pub struct EngineWords {
    /// Commands submitted so far, as the client claims.
    pub accepted: WordView,
    /// Payload bytes of completions consumed so far, as the client claims.
    pub consumed_bytes: WordView,
    /// Completions consumed so far, as the client claims.
    pub consumed_entries: WordView,
    /// The client's state, as it claims.
    pub client_state: WordView,
    /// Commands done so far.
    pub completed: Word,
    /// Changes with each change of the names the engine knows.
    pub names_generation: Word,
    /// The engine's state.
    pub state: Word,
    /// Turns of the engine so far.
    pub engine_turns: Word,
}

impl Engine {
    /// The sizes of this pair.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The memory of this pair; its descriptor goes to the client's process.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    fn new(segment: &Arc<Segment>, layout: &Layout) -> Option<Engine> {
        let words = EngineWords {
            accepted: WordView::new(segment, control::ACCEPTED)?,
            consumed_bytes: WordView::new(segment, control::CONSUMED_BYTES)?,
            consumed_entries: WordView::new(segment, control::CONSUMED_ENTRIES)?,
            client_state: WordView::new(segment, control::CLIENT_STATE)?,
            completed: Word::new(segment, control::COMPLETED)?,
            names_generation: Word::new(segment, control::NAMES_GENERATION)?,
            state: Word::new(segment, control::STATE)?,
            engine_turns: Word::new(segment, control::ENGINE_TURNS)?,
        };
        Some(Engine {
            sq: Consumer::new(segment, layout.sq, layout.sizes.sq_entries)?,
            open: OpenEntryView::new(segment, control::OPEN_ENTRY)?,
            cq: Producer::new(segment, layout.cq, layout.sizes.cq_entries)?,
            tx: ArenaReleaser::new(segment, layout.tx)?,
            rx: ArenaAllocator::new(segment, layout.rx)?,
            engine_bell: Doorbell::new(segment, control::ENGINE_BELL)?,
            client_bell: Doorbell::new(segment, control::CLIENT_BELL)?,
            words,
            sizes: layout.sizes,
            segment: Arc::clone(segment),
        })
    }
}

fn misfit() -> io::Error {
    invalid("queue pair does not fit its segment")
}
