//! Bytes of unknown origin on a terminal: as the JSON text that they are, or in hexadecimal; they never steer it.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::output::harmless;

/// How many bytes a line shows.
const LINE: usize = 16;

/// The bytes, ending in a line feed.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match text(bytes) {
        Some(text) => format!("{}\n", text.trim_end()),
        None => dump(bytes),
    }
}

/// JSON that a terminal shows as it is.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    serde_json::from_str::<&RawValue>(text).ok()?;
    let is_harmless = text.lines().all(|line| {
        let line = line.replace('\t', " ");
        harmless(&line) == line
    });
    is_harmless.then_some(text)
}

/// Offset, sixteen bytes, and those of them that are ASCII.
fn dump(bytes: &[u8]) -> String {
    let mut lines = String::with_capacity(bytes.len() * 5);
    for (line, offset) in bytes.chunks(LINE).zip((0..).step_by(LINE)) {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
        let ascii: String = line.iter().map(shown).collect();
        // A string takes all that is written to it.
        let _ = writeln!(lines, "{offset:08x}  {:<47}  |{ascii}|", hex.join(" "));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        assert_eq!(shown(bytes), expect);
    }

    #[test]
    fn json_is_text_and_the_rest_is_hexadecimal() {
        check(b"{\"a\": 1,\r\n\t\"b\": \"\xc3\xa4\"}\n", "{\"a\": 1,\r\n\t\"b\": \"ä\"}\n");
        check(b"", "");
        check(b"{\"a\"", "00000000  7b 22 61 22                                      |{\"a\"|\n");
        check(
            b"\x82\xa2id\xa51\x1b[0m0123456",
            "00000000  82 a2 69 64 a5 31 1b 5b 30 6d 30 31 32 33 34 35  |..id.1.[0m012345|\n\
             00000010  36                                               |6|\n",
        );
    }

    #[test]
    fn text_that_would_steer_a_terminal_is_hexadecimal() {
        for text in ["\"\u{202e}\"", "\"\u{7f}\"", "\"\u{9b}0m\"", "1\r2", "\"a\rb\""] {
            assert!(shown(text.as_bytes()).starts_with("00000000  "), "{text:?}");
        }
    }
}
