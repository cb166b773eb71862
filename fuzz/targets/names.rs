//! Invariants for any answer of a nameserver. The body of a fuzz target, also run over its corpus by `cargo test`.
//!
//! The first byte of an input is the number of records, and the rest are these. The whole input is read as a message, too.

use super::message::{Name, NameserverReply, Question, RecordKind};

/// The longest part of a message that is cut at every byte.
const CUT_LIMIT: usize = 256;
/// A response to a question, with recursion, without an error.
const FLAGS: [u8; 2] = [0x81, 0x80];

/// An answer is read the same way each time, has records of the type that was asked for, and may be cut anywhere.
pub fn name_answers(data: &[u8]) {
    for kind in [RecordKind::A, RecordKind::Aaaa, RecordKind::Srv] {
        let name = Name::new("app.internal").expect("this is a name");
        let question = Question { id: 7, name, kind };
        if let Some(reply) = question.reply(data) {
            check(&reply, kind);
        }
        let Some((count, records)) = data.split_first() else { continue };
        let mut message = question.message();
        message[2..4].copy_from_slice(&FLAGS);
        message[7] = *count;
        message.extend(records);
        let reply = question.reply(&message).expect("it repeats the question");
        check(&reply, kind);
        assert_eq!(Some(reply), question.reply(&message));
        for end in 0..message.len().min(CUT_LIMIT) {
            if let Some(reply) = question.reply(&message[..end]) {
                check(&reply, kind);
            }
        }
    }
}

fn check(reply: &NameserverReply, kind: RecordKind) {
    match reply {
        NameserverReply::Addresses(addresses, _) => {
            assert!(!addresses.is_empty());
            let is_of_kind = |is_v4: bool| is_v4 == (kind == RecordKind::A);
            assert!(addresses.iter().all(|address| is_of_kind(address.is_ipv4())) && kind != RecordKind::Srv);
        }
        NameserverReply::Targets(targets, _) => assert!(kind == RecordKind::Srv && !targets.is_empty()),
        _ => {}
    }
}
