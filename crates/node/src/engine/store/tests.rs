//! Where messages lie, and what is done with memory that was lent.

use super::*;
use crate::engine::command::{Body, Command};
use polyrail_proto::flow::Class;
use polyrail_proto::id::PortAddress;
use polyrail_proto::node::Destination;

#[test]
fn whole_blocks_are_kept_for_what_is_next() {
    let capacity = 16 * BLOCK_BYTES;
    let spares = |free, bytes| spares_urgent_share(free, capacity, bytes);
    assert!(spares(16 * BLOCK_BYTES, 15 * BLOCK_BYTES));
    assert!(!spares(16 * BLOCK_BYTES - 64, 15 * BLOCK_BYTES - 64), "a block's rest is no block");
    assert!(spares(BLOCK_BYTES + 4_096, 4_096) && !spares(BLOCK_BYTES + 4_096, 4_097));
    assert!(!spares(BLOCK_BYTES, 1) && !spares(BLOCK_BYTES - 64, 1), "the last block is kept");
    assert!(!spares(BLOCK_BYTES, 0) && spares(2 * BLOCK_BYTES, 0), "nothing is something");
}

#[test]
fn buffer_numbers_name_their_place() {
    for place in [
        Place::Tx(3, 70_016, 5),
        Place::Spaced(3, 65_536, 7),
        Place::Rx(16_383, 0),
        Place::Held(12, 0xff_ffff),
    ] {
        assert_eq!(Place::of(place.id()), place);
    }
}

const PORT: PortId = PortId(9);
const PIECE: u64 = 1_432;

/// A store with one client, whose messages are laid out for packets of 1,472 bytes.
fn store() -> (EngineStore, Client) {
    let mut store = EngineStore::default();
    let sizes = Sizes { sq_entries: 64, cq_entries: 64, tx_bytes: 1 << 20, rx_bytes: 1 << 20 };
    let spacing = Spacing::for_packets(1_472);
    let client =
        store.open(PORT, NodeId(1), (sizes, Charged::nothing()), Exchange::default(), spacing).unwrap();
    (store, client)
}

/// Has the client send so many bytes; where they lie, and their number.
fn sent(store: &mut EngineStore, client: &mut Client, bytes: &[u8]) -> (u64, BufferId) {
    let to = PortAddress { node: NodeId(2), port: PortId(1) };
    client.send(Destination::Port(to), Class::Normal, None, bytes).unwrap();
    let entry = store.slot(0).unwrap().pair.sq.take().unwrap();
    let Some(Command::Send { body: Body::Spaced(start), .. }) = Command::decode(&entry) else {
        panic!("a large message is spaced")
    };
    (start, Place::Spaced(0, start, 0).id())
}

/// A train of the pieces of `buffer` that begin at `from` and end before `to`, with heads of this byte.
fn train(buffer: BufferId, from: u64, to: u64, head: u8) -> Train {
    let mut train = Train::new();
    for offset in (from..to).step_by(PIECE as usize) {
        let len = PIECE.min(to - offset) as u32;
        let start = train.head.len() as u32;
        train.head.extend([head; PIECE_HEAD_BYTES]);
        train.pieces.push(Piece::Head { start, len: PIECE_HEAD_BYTES as u32 });
        train.pieces.push(Piece::Body { buffer, offset, len });
        train.bytes += PIECE_HEAD_BYTES + len as usize;
    }
    train
}

fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 / 7) as u8).collect()
}

#[test]
fn a_train_of_pieces_lies_as_it_leaves() {
    let (mut store, mut client) = store();
    let bytes = numbered(100_000);
    let (_, buffer) = sent(&mut store, &mut client, &bytes);
    let train = train(buffer, 10 * PIECE, 13 * PIECE, 0xaa);
    let run = store.lay_heads(&train).expect("pieces that follow each other");
    let mut expected = vec![];
    for piece in bytes[10 * 1_432..13 * 1_432].chunks(1_432) {
        expected.extend([0xaa; 40]);
        expected.extend(piece);
    }
    assert_eq!(*store.run_slice(&run).unwrap(), expected);
    let last = self::train(buffer, 69 * PIECE, 100_000, 1);
    assert!(store.lay_heads(&last).is_some(), "the end of the message");
}

#[test]
fn other_trains_are_gathered_from_where_they_lie() {
    let (mut store, mut client) = store();
    let bytes = numbered(100_000);
    let (_, buffer) = sent(&mut store, &mut client, &bytes);
    let whole = || train(buffer, 0, 3 * PIECE, 2);
    let mut moved = whole();
    moved.pieces[3] = Piece::Body { buffer, offset: PIECE + 8, len: PIECE as u32 };
    let mut shorter = whole();
    shorter.pieces[1] = Piece::Body { buffer, offset: 0, len: 1_000 };
    let mut longer_head = whole();
    longer_head.pieces[0] = Piece::Head { start: 0, len: 48 };
    let mut padded = whole();
    padded.pieces.push(Piece::Head { start: 0, len: 3 });
    let mut of_two = whole();
    of_two.pieces[5] =
        Piece::Body { buffer: Place::Spaced(0, 131_072, 0).id(), offset: 2 * PIECE, len: 1_432 };
    let astray = train(buffer, 8, 8 + PIECE, 2);
    for (what, train) in [moved, shorter, longer_head, padded, of_two, astray].iter().enumerate() {
        assert!(store.lay_heads(train).is_none(), "{what}");
    }
    let mut out = vec![];
    assert!(store.copy_out(buffer, 1_000, 50_000, &mut out));
    assert_eq!(out, bytes[1_000..51_000]);
    let parts: Vec<_> = store.parts(buffer, 1_000, 3_000).collect();
    assert_eq!(parts, [(1_000, 432), (1_432, 1_432), (2_864, 1_136)]);
    let gathered: Vec<u8> =
        parts.iter().flat_map(|&(at, len)| store.io_slice(buffer, at, len).unwrap().to_vec()).collect();
    assert_eq!(gathered, bytes[1_000..4_000]);
    assert!(store.io_slice(buffer, 1_000, 433).is_none(), "a header lies between");
}

#[test]
fn headers_that_were_lent_are_not_written_again() {
    let (mut store, mut client) = store();
    let (_, buffer) = sent(&mut store, &mut client, &numbered(100_000));
    let run = store.lay_heads(&train(buffer, 0, 5 * PIECE, 1)).unwrap();
    store.lend(&run);
    assert!(store.lay_heads(&train(buffer, 4 * PIECE, 6 * PIECE, 2)).is_none(), "one of them was");
    assert!(store.lay_heads(&train(buffer, 5 * PIECE, 6 * PIECE, 3)).is_some(), "none was");
    assert!(store.run_slice(&run).unwrap().starts_with(&[1; 40]));
    assert!(store.run_slice(&run).unwrap()[4 * 1_472..].starts_with(&[1; 40]));
}

#[test]
fn pages_that_packets_may_refer_to_stay_with_them() {
    let arena = |store: &mut EngineStore, start| {
        let slot = store.slot(0).unwrap();
        slot.pair.tx.memory().bytes(start, 73_000).unwrap().to_vec()
    };
    for (lent, again, delivered, kept) in [
        (true, false, true, true),
        (true, true, true, false),
        (true, false, false, false),
        (false, true, false, true),
    ] {
        let (mut store, mut client) = store();
        let bytes = numbered(70_000);
        let (start, buffer) = sent(&mut store, &mut client, &bytes);
        let first = train(buffer, 0, 70_000, 1);
        let run = store.lay_heads(&first).unwrap();
        if lent {
            store.lend(&run);
        }
        if again {
            store.lay_heads(&train(buffer, 20 * PIECE, 21 * PIECE, 1));
        }
        let before = arena(&mut store, start);
        assert_eq!(before[40..1_472], bytes[..1_432]);
        store.release(PORT, buffer, delivered);
        let after = arena(&mut store, start);
        assert_eq!(after == before, kept, "lent {lent}, again {again}, delivered {delivered}");
        assert_eq!(after.iter().all(|b| *b == 0), !kept);
        assert_eq!(client.pair.tx.reclaim(), 1 << 20, "the memory is free again");
    }
}
