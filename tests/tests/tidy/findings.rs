//! What a checker found, and the message that a person reads.

use std::fmt;

use crate::repository::File;

#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self { path, line, what }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails with everything that `check` finds in `files`, and with what to do about it.
#[track_caller]
pub(crate) fn forbid<'a>(files: impl Iterator<Item = &'a File>, check: impl Fn(&File) -> Vec<Finding>, advice: &str) {
    settle(files.flat_map(check).collect(), advice);
}

/// Fails with all `findings`, and with what to do about them.
#[track_caller]
pub(crate) fn settle(findings: Vec<Finding>, advice: &str) {
    let list: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "\n{}\nWhat to do: {advice}.\n", list.join("\n"));
}

/// Compares the places of `findings`, as `path:line`, with those that are expected.
#[track_caller]
pub(crate) fn expect(findings: &[Finding], places: &[&str]) {
    let found = findings.iter().map(|f| format!("{}:{}", f.path, f.line));
    assert_eq!(found.collect::<Vec<_>>(), places, "{findings:#?}");
}
