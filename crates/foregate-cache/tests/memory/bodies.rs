use bytes::Bytes;
use foregate_cache::Body;
use proptest::prelude::*;

use crate::{find, memory, put, uri};

proptest! {
    #[test]
    fn bodies_hold_all_bytes_in_order(lengths in prop::collection::vec(0_usize..9000, 0..12), from in 0_u64..60_000, to in 0_u64..60_000) {
        let mut whole = Vec::new();
        let pieces: Vec<_> = lengths.iter().enumerate().map(|(number, &length)| {
            let piece: Vec<_> = (0..length).map(|at| (at * 7 + number) as u8).collect();
            whole.extend_from_slice(&piece);
            Bytes::from(piece)
        }).collect();
        let body = Body::new(pieces);
        prop_assert_eq!(body.len(), whole.len() as u64);
        prop_assert_eq!(body.is_empty(), whole.is_empty());
        prop_assert!(body.pieces().iter().all(|piece| !piece.is_empty()));
        prop_assert_eq!(body.pieces().concat(), whole.clone());
        let part: Vec<_> = body.part(from..to).collect();
        let end = whole.len();
        let expected = whole.get((from as usize).min(end)..(to as usize).min(end)).unwrap_or_default();
        prop_assert_eq!(part.concat(), expected);
        // Read step by step from anywhere.
        let (mut at, mut rest) = (from, Vec::new());
        while let Some(piece) = body.at(at) {
            prop_assert!(!piece.is_empty());
            at += piece.len() as u64;
            rest.extend_from_slice(&piece);
        }
        prop_assert_eq!(rest, whole.get((from as usize).min(end)..).unwrap_or_default());
    }
}

#[test]
fn small_pieces_are_joined() {
    let body = Body::new(vec![Bytes::from_static(&[1; 100]); 1000]);
    assert_eq!((body.len(), body.pieces().len()), (100_000, 2));
    // As they come from a connection: each piece would cost a system call.
    let body = Body::new([4096, 16384, 12288].map(|length| vec![1; length].into()).into());
    assert_eq!((body.len(), body.pieces().len()), (32_768, 1));
    let pieces = vec![Bytes::from_static(&[1; 16_384]); 17];
    assert_eq!(Body::new(pieces).pieces().len(), 17, "a long body is not copied");
}

#[test]
fn bodies_that_left_and_are_still_read_count_and_keep_large_ones_out() {
    const LARGE: usize = 3 << 20;
    let memory = memory(64 << 20);
    let mut readers = Vec::new();
    for number in 0..60 {
        let path = format!("/{number}");
        let page = uri("a", &path);
        if !put(&memory, &page, &[], LARGE) {
            break;
        }
        readers.push(find(&memory, &page).unwrap().0);
    }
    let held = memory.stat().held;
    assert!((32 << 20..(32 << 20) + 2 * LARGE).contains(&held), "{held} with {} readers", readers.len());
    assert!(memory.holds_much() && !put(&memory, &uri("a", "/large"), &[], LARGE));
    assert!(put(&memory, &uri("a", "/small"), &[], 1000), "small ones are stored all the same");
    drop(readers);
    assert_eq!(memory.stat().held, 0);
    assert!(put(&memory, &uri("a", "/large"), &[], LARGE));
    // A validated response has the body of the one before, which has not left.
    let stored = find(&memory, &uri("a", "/large")).unwrap().0;
    let refreshed = stored.refreshed(stored.head.clone(), memory.floors().begin());
    assert!(memory.insert(std::sync::Arc::new(refreshed), crate::NOW));
    assert_eq!(memory.stat().held, 0);
    memory.remove(&find(&memory, &uri("a", "/large")).unwrap().0);
    assert!(memory.stat().held > LARGE);
    drop(stored);
    assert_eq!(memory.stat().held, 0);
}
