//! The list of fields.

use foregate_wire::{FieldError, HeaderList, NameId};

use super::{lines, request};

fn list(fields: &[(&str, &str)]) -> HeaderList {
    let mut list = HeaderList::new();
    for (name, value) in fields {
        list.try_push(name.as_bytes(), value.as_bytes()).unwrap();
    }
    list
}

#[test]
fn every_known_name_is_found_in_any_case() {
    for id in NameId::all() {
        let name = id.as_str();
        assert_eq!(NameId::from_name(name.as_bytes()), id);
        assert_eq!(NameId::from_name(name.to_uppercase().as_bytes()), id);
        assert_eq!(NameId::from_name(id.as_canonical().as_bytes()), id);
        assert_eq!(id.as_canonical().to_lowercase(), name);
        // One byte more, one less, or another one: not that name.
        assert_ne!(NameId::from_name(format!("{name}x").as_bytes()), id);
        assert_ne!(NameId::from_name(&name.as_bytes()[1..]), id);
        for at in 0..name.len() {
            let mut other = name.as_bytes().to_vec();
            other[at] ^= 0x20;
            if other[at].is_ascii_alphabetic() {
                continue;
            }
            assert_ne!(NameId::from_name(&other), id, "{}", other.escape_ascii());
        }
    }
    assert_eq!(NameId::from_name(b""), NameId::Unknown);
    assert_eq!(NameId::from_name(b"x"), NameId::Unknown);
    assert_eq!(NameId::from_name(b"Content\rLength"), NameId::Unknown);
}

#[test]
fn order_case_and_duplicates_stay() {
    let headers = list(&[("B", "1"), ("host", "a"), ("b", "2"), ("COOKIE", "c")]);
    assert_eq!(lines(&headers), ["B: 1", "host: a", "b: 2", "COOKIE: c"]);
    assert_eq!(headers.len(), 4);
    assert_eq!(headers.get_all_name(b"b").collect::<Vec<_>>(), [b"1", b"2"]);
    let first = headers.find_name(b"b", 0).map(|(at, _)| at).unwrap();
    let (second, value) = headers.find_again(first).unwrap();
    assert_eq!(value, b"2");
    assert_eq!((headers.find_again(second), headers.find_again(usize::MAX - 1)), (None, None));
    assert_eq!(headers.get_name(b"HOST"), Some(&b"a"[..]));
    assert_eq!(headers.get(NameId::Via), None);
    assert!(headers.contains(NameId::Cookie) && headers.get_name(b"x").is_none());
}

#[test]
fn removing() {
    let mut headers = list(&[("a", "1"), ("Via", "2"), ("A", "3"), ("via", "4"), ("x", "5")]);
    assert_eq!(headers.count(NameId::Via), 2);
    assert_eq!(headers.remove(NameId::Via), 2);
    assert_eq!(headers.remove(NameId::Via), 0);
    assert_eq!(headers.remove_name(b"a"), 2);
    assert_eq!(headers.remove_name(b"host"), 0);
    assert_eq!(lines(&headers), ["x: 5"]);
    headers.retain(|field| field.name != b"x");
    assert!(headers.is_empty());
    headers.clear();
    assert_eq!(headers.arena_len(), 0);
}

#[test]
fn setting() {
    let mut headers = list(&[("host", "a"), ("x", "1"), ("Host", "b"), ("X", "2")]);
    headers.set(NameId::Host, b"longer than before");
    headers.set_name(b"x", b"");
    headers.set(NameId::Via, b"v");
    headers.set_name(b"New", b"n");
    headers.set_name(b"VIA", b"w");
    assert_eq!(lines(&headers), ["host: longer than before", "x: ", "Via: w", "New: n"]);
    headers.set(NameId::Unknown, b"no name");
    headers.push_id(NameId::Unknown, b"no name");
    headers.push_id(NameId::ContentLength, b"1");
    assert_eq!(headers.len(), 5);
    assert_eq!(headers.get_name(b"content-length"), Some(&b"1"[..]));
}

#[test]
fn fields_from_outside_are_checked() {
    let mut headers = HeaderList::new();
    for name in ["", "a b", "a:", "\u{e4}", "a\n"] {
        assert_eq!(headers.try_push(name.as_bytes(), b"v"), Err(FieldError::BadName));
    }
    for value in ["\r", "a\nb", "\0", "\x7f", "a\r\nX: y"] {
        assert_eq!(headers.try_push(b"n", value.as_bytes()), Err(FieldError::BadValue));
    }
    let long = vec![b'a'; foregate_wire::MAX_NAME + 1];
    assert_eq!(headers.try_push(&long, b""), Err(FieldError::TooLong));
    headers.push(&long[..], b"");
    assert!(headers.is_empty());
    headers.try_push(b"n", b" \tv\xff ").unwrap();
    assert_eq!(headers.get_name(b"N"), Some(&b"v\xff"[..]));
}

#[test]
fn secrets_do_not_show() {
    let headers = list(&[
        ("Authorization", "s3cret"),
        ("cookie", "s3cret"),
        ("Set-Cookie", "s3cret"),
        ("Proxy-Authorization", "s3cret"),
        ("Accept", "shown"),
    ]);
    let text = format!("{headers:?}");
    assert!(!text.contains("s3cret") && text.contains("shown"), "{text}");
}

#[test]
fn a_list_takes_the_fields_of_another() {
    let (mut list, mut other) = (HeaderList::new(), HeaderList::new());
    list.push(b"Host", b"a");
    other.push(b"gone", b"x");
    other.push(b"Via", b"1.1 b");
    other.push(b"x_own", b"");
    other.remove_name(b"gone");
    list.append(&other);
    list.append(&HeaderList::new());
    assert_eq!(lines(&list), ["Host: a", "Via: 1.1 b", "x_own: "]);
    assert_eq!(list.get(NameId::Via), Some(&b"1.1 b"[..]));
    let mut written = Vec::new();
    foregate_wire::serialise::write_fields(&mut written, &list);
    assert_eq!(written, b"Host: a\r\nVia: 1.1 b\r\nx_own: \r\n");
    assert_eq!(foregate_wire::connection::drop_underscore_names(&mut list), 1);
}

/// Writing copies adjacent fields of the buffer together; the output must equal the fields after any changes of the list.
#[test]
fn lines_are_written_as_the_fields_are() {
    let (_, mut head) = request(b"GET / HTTP/1.1\r\nHost: a\r\nA:b\r\nB:  c \r\nC: \r\nD: d\r\nE: e\r\n\r\n")
        .unwrap()
        .unwrap();
    let check = |list: &HeaderList| {
        let mut written = Vec::new();
        foregate_wire::serialise::write_fields(&mut written, list);
        let expected: String = lines(list).iter().map(|line| format!("{line}\r\n")).collect();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    };
    let list = &mut head.headers;
    check(list);
    list.remove(NameId::Host);
    list.push(b"Via", b"x");
    check(list);
    list.set_name(b"d", b"");
    check(list);
    list.set_name(b"E", b"longer than it was");
    check(list);
    list.set_name(b"via", b"longer than it was");
    list.push(b"F", b"");
    check(list);
    list.set_name(b"F", b"\r\n");
    check(list);
}
