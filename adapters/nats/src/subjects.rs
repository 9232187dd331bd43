//! Subjects with wildcards, compared as the server compares them.

/// Whether every subject of `these` is one of `pattern`.
pub(crate) fn covers(pattern: &str, these: &str) -> bool {
    let (mut pattern, mut these) = (pattern.split('.'), these.split('.'));
    loop {
        match (pattern.next(), these.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(wanted), Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
}

/// Whether some subject is one of both.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(this), Some(that)) if this == that || this == "*" || that == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_lies_in_it() {
        for (pattern, these) in [
            (">", "a"),
            (">", "a.>"),
            ("a.>", "a.b.c"),
            ("a.>", "a.*"),
            ("a.>", "a.>"),
            ("a.*.c", "a.b.c"),
            ("a.*.c", "a.*.c"),
            ("a.b", "a.b"),
        ] {
            assert!(covers(pattern, these), "{pattern} covers {these}");
            assert!(overlap(pattern, these) && overlap(these, pattern), "{pattern} overlaps {these}");
        }
        for (pattern, these) in
            [("a.*", "a.>"), ("a.>", ">"), ("a.b.>", "a.>"), ("a.*.c", "a.>"), ("a.b.c", "a.*.c"), ("*", ">")]
        {
            assert!(!covers(pattern, these), "{pattern} does not cover {these}");
            assert!(overlap(pattern, these) && overlap(these, pattern), "{pattern} overlaps {these}");
        }
    }

    #[test]
    fn subjects_apart_are_told_apart() {
        for (one, other) in [("a", "b"), ("a", "a.b"), ("a.>", "a"), ("a.*", "a.b.c"), ("a.*.c", "a.b.d")] {
            assert!(!covers(one, other) && !covers(other, one), "{one} and {other}");
            assert!(!overlap(one, other) && !overlap(other, one), "{one} and {other}");
        }
    }
}
