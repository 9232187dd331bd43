//! What is one event at all: the caps, the ends, the first byte, strings and keys.

use decklog_schemas::{Envelope, EventType, MAX_DEPTH, MAX_EVENT_BYTES};
use serde_json::json;

use crate::verdict::{OK, base, check, check_with, msgpack, verdict, with_bytes, with_data_bytes};

#[test]
fn the_first_byte_tells_the_form() {
    check("", "malformed: the event is empty");
    check(base().to_string(), OK);
    check(format!(" \r\n\t{}\n ", base()), OK);
    check(msgpack(&base()), OK);
    let with_mark = format!("\u{feff}{}", base());
    for (input, byte) in [
        (&b"[]"[..], "0x5b"),
        (b"null", "0x6e"),
        (b"\"{}\"", "0x22"),
        (with_mark.as_bytes(), "0xef"),
        (b"\x90", "0x90"),
        (b"\xc0", "0xc0"),
        (b"\xa1{", "0xa1"),
        (b"\0{}", "0x00"),
    ] {
        let neither = "starts neither a JSON object nor a MessagePack map";
        check(input, &format!("malformed: byte 0 is {byte}, which {neither}"));
    }
    check(
        " [{}]",
        "malformed: not a JSON object: invalid type: sequence, expected a CloudEvents JSON object at line 1 column 1",
    );
    check(" ", "malformed: not a JSON object: EOF while parsing a value at line 1 column 1");
}

#[test]
fn nothing_may_follow_an_event() {
    let column = base().to_string().len() + 1;
    let more = format!("malformed: not a JSON object: trailing characters at line 1 column {column}");
    check(format!("{}{}", base(), base()), &more);
    check(format!("{}\0", base()), &more);
    let mut bytes = msgpack(&base());
    let end = bytes.len();
    bytes.push(0xc0);
    let more = format!("malformed: the event ends at byte {end}, and more bytes follow");
    check(&bytes, &more);
    bytes.truncate(end);
    bytes.extend(msgpack(&base()));
    check(&bytes, &more);
}

#[test]
fn size_is_capped_before_anything_is_read() {
    let too_large = "malformed: the event has 1048577 bytes, and 1048576 is the most that is taken";
    let spaced = |size: usize| {
        let mut bytes = base().to_string().into_bytes();
        bytes.resize(size, b' ');
        bytes
    };
    check(spaced(MAX_EVENT_BYTES), OK);
    check(spaced(MAX_EVENT_BYTES + 1), too_large);
    let with_long_text = |size: usize| {
        let length = size - with_bytes(b"\xdb....").len();
        let length = u32::try_from(length).expect("about a mebibyte").to_be_bytes();
        let mut bytes = with_bytes(&[b"\xdb", &length[..]].concat());
        bytes.resize(size, b'x');
        bytes
    };
    check(with_long_text(MAX_EVENT_BYTES), OK);
    check(with_long_text(MAX_EVENT_BYTES + 1), too_large);
    check(vec![b'?'; MAX_EVENT_BYTES + 1], too_large);
}

#[test]
fn depth_is_capped_in_both_forms() {
    // The event itself is one level.
    let json = |levels: usize| {
        let lists = "[".repeat(levels - 1) + &"]".repeat(levels - 1);
        base().to_string().replacen('{', &format!("{{\"x\":{lists},"), 1)
    };
    check(json(MAX_DEPTH), OK);
    check(json(MAX_DEPTH + 1), "malformed: maps and lists are nested deeper than 64 at byte 68");
    let in_text = json!("[".repeat(100) + "\\\"{");
    check_with("/x", in_text.clone(), OK);
    check_with("/data/message", in_text, OK);

    let lists = |levels: usize| [vec![0x91; levels - 2], vec![0x90]].concat();
    let offset = with_bytes(b"").len() + MAX_DEPTH - 1;
    let too_deep = format!("malformed: maps and lists are nested deeper than 64 at byte {offset}");
    check(with_bytes(&lists(MAX_DEPTH)), OK);
    check(with_bytes(&lists(MAX_DEPTH + 1)), &too_deep);
    check(with_bytes(&[0x91; 100_000]), &too_deep);
    let maps = |levels: usize| [b"\x81\xa1m".repeat(levels - 2), vec![0x80]].concat();
    check(with_bytes(&maps(MAX_DEPTH)), OK);
    let offset = with_bytes(b"").len() + 3 * (MAX_DEPTH - 1);
    check(
        with_bytes(&maps(MAX_DEPTH + 1)),
        &format!("malformed: maps and lists are nested deeper than 64 at byte {offset}"),
    );

    // One level less is left inside of data, and as much as is left is read.
    check(with_data_bytes(&lists(MAX_DEPTH - 1)), OK);
    let offset = with_data_bytes(b"").len() + MAX_DEPTH - 2;
    check(
        with_data_bytes(&lists(MAX_DEPTH)),
        &format!("malformed: maps and lists are nested deeper than 64 at byte {offset}"),
    );
}

#[test]
fn lengths_are_believed_only_as_far_as_there_are_bytes() {
    let end = with_bytes(b"").len();
    for head in [
        &b"\xdb\xff\xff\xff\xff"[..],
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xda\xff\xff",
        b"\xdc\xff\xff",
        b"\xd9\x05four",
    ] {
        // A string's length and its marker are read before its bytes are missed; `four` stays unread.
        let at = end + head.len() - if head.ends_with(b"four") { 4 } else { 0 };
        check(with_bytes(head), &format!("malformed: not MessagePack: the event is cut off at byte {at}"));
    }
    check(b"\xdf\xff\xff\xff\xff", "malformed: not MessagePack: the event is cut off at byte 5");
    check(b"\xde\xff\xff", "malformed: not MessagePack: the event is cut off at byte 3");
    check(b"\x81", "malformed: not MessagePack: the event is cut off at byte 1");
    check(b"\xdf\x00", "malformed: not MessagePack: the event is cut off at byte 1");
}

#[test]
fn strings_are_utf8_and_keys_are_strings() {
    check(b"{\"id\":\"\xff\"}", "malformed: not a JSON object: byte 7 is not UTF-8");
    check(b"\x81\xa2id\xa1\xff", "malformed: not MessagePack: a string is not UTF-8 at byte 5");
    check(b"\x81\xa1\xff\xc0", "malformed: not MessagePack: a string is not UTF-8 at byte 2");
    check(b"\x81\x01\xc0", "malformed: not MessagePack: a map key is not a string at byte 1");
    check(b"\x81\xc4\x02id\xc0", "malformed: not MessagePack: a map key is not a string at byte 1");
    let end = with_bytes(b"").len();
    let key = format!("malformed: not MessagePack: a map key is not a string at byte {}", end + 1);
    check(with_bytes(b"\x81\x01\xc0"), &key);
    check(with_bytes(b"\x81\x91\xc0\xc0"), &key);
    let end = with_data_bytes(b"").len();
    let key = format!("malformed: not MessagePack: a map key is not a string at byte {}", end + 1);
    check(with_data_bytes(b"\x81\x01\xc0"), &key);
    let text = format!("malformed: not MessagePack: a string is not UTF-8 at byte {}", end + 1);
    check(with_data_bytes(b"\xa1\xff"), &text);
    check(
        with_bytes(b"\xc1"),
        &format!("malformed: not MessagePack: the reserved marker 0xc1 stands at byte {}", with_bytes(b"").len() + 1),
    );
    check(r#"{"id":"\ud800"}"#, "malformed: not a JSON object: unexpected end of hex escape at line 1 column 14");
    check(r#"{id:1}"#, "malformed: not a JSON object: key must be a string at line 1 column 2");
    check(r#"{"id":1,}"#, "malformed: not a JSON object: trailing comma at line 1 column 9");
    check(r#"{"id":NaN}"#, "malformed: not a JSON object: expected value at line 1 column 7");
}

#[test]
fn an_attribute_stands_once() {
    check(
        r#"{"id":"1","id":"1"}"#,
        "malformed: not a JSON object: the attribute \"id\" stands twice at line 1 column 14",
    );
    check(
        r#"{"id":"1","\u0069d":"2"}"#,
        "malformed: not a JSON object: the attribute \"id\" stands twice at line 1 column 19",
    );
    check(r#"{"data":{},"data":{}}"#, "malformed: not a JSON object: duplicate field `data` at line 1 column 17");
    check(r#"{"data":null,"data":{}}"#, "malformed: not a JSON object: duplicate field `data` at line 1 column 19");
    check(b"\x82\xa2id\xa11\xa2id\xa12", "malformed: the attribute \"id\" stands twice");
    check(b"\x82\xa4data\x80\xa4data\x80", "malformed: the attribute \"data\" stands twice");
    let twice = base().to_string().replace("\"state\"", "\"state\":\"Unknown\",\"state\"");
    check(twice, "invalid: /data: duplicate field `state`");
}

#[test]
fn every_cut_of_an_event_is_refused_and_no_change_of_a_byte_panics() {
    for event_type in EventType::ALL {
        let name = format!("{}/golden/events/{event_type}.v1", env!("CARGO_MANIFEST_DIR"));
        for form in ["json", "msgpack"] {
            let mut bytes = std::fs::read(format!("{name}.{form}")).expect("a golden event");
            bytes.truncate(bytes.trim_ascii_end().len());
            assert_eq!(verdict(&bytes), OK);
            for end in 0..bytes.len() {
                assert!(Envelope::decode(&bytes[..end]).is_err(), "{event_type}.{form} cut at {end}");
            }
            for at in 0..bytes.len() {
                for mask in [0x01, 0x20, 0x80, 0xff] {
                    bytes[at] ^= mask;
                    verdict(&bytes);
                    bytes[at] ^= mask;
                }
            }
        }
    }
}
