//! The strings of a release: kept once where they repeat, and cut where the object has a limit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::keyed::{Keyed, Table, hash};

/// How many bytes of a message are kept, the mark of the cut included.
const MESSAGE_BYTES: usize = 1024;

const CUT: &str = "…";

/// The strings that a release used last: all its rows carry the same few render references and versions. Their hashes
/// lie beside each other, so that looking for one touches no other string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    strings: Vec<(u64, Arc<str>)>,
    oldest: usize,
}

/// The sources of all releases, each text once: a release tells its writers apart without a look at their texts.
#[derive(Debug, Default)]
pub(crate) struct Sources(Table<Source>);

/// One of [`Sources`]. Two of the same text are the same allocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Source(Arc<str>);

/// Group, kind, namespace and name in one allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ItemKey {
    text: Box<str>,
    ends: [u32; 3],
}

/// The same key, borrowed from an event. Its order is that of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ItemRef<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Cuts a message at its limit, on a character boundary, and marks the cut.
pub(crate) fn message(text: &str) -> Box<str> {
    if text.len() <= MESSAGE_BYTES {
        return text.into();
    }
    let end = text.floor_char_boundary(MESSAGE_BYTES - CUT.len());
    [&text[..end], CUT].concat().into()
}

impl Recent {
    const KEPT: usize = 8;

    /// The string, shared with its last user if that is not long ago.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        let hash = hash(&[text]);
        if let Some((_, shared)) = self.strings.iter().find(|(other, shared)| *other == hash && **shared == *text) {
            return Arc::clone(shared);
        }
        let shared = Arc::<str>::from(text);
        if self.strings.len() < Self::KEPT {
            self.strings.push((hash, Arc::clone(&shared)));
        } else {
            self.strings[self.oldest] = (hash, Arc::clone(&shared));
            self.oldest = (self.oldest + 1) % Self::KEPT;
        }
        shared
    }
}

/// The string that is at hand already, if it is the same.
pub(crate) fn share_at_hand(recent: &mut Recent, at_hand: &Arc<str>, text: &str) -> Arc<str> {
    if **at_hand == *text { Arc::clone(at_hand) } else { recent.share(text) }
}

impl Sources {
    pub(crate) fn source(&mut self, text: &str) -> &Source {
        let found = self.0.find(hash(&[text]), |Source(known)| **known == *text);
        let at = found.unwrap_or_else(|| self.0.insert(Source(text.into())));
        self.0.row(at)
    }

    /// The one of the same text that is here.
    pub(crate) fn known(&mut self, source: &Source) -> Source {
        self.source(&source.0).clone()
    }
}

impl Source {
    /// Whether it is the same; both are of the same [`Sources`].
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Keyed for Source {
    fn key_hash(&self) -> u64 {
        hash(&[&*self.0])
    }
}

impl ItemKey {
    pub(crate) fn of(&self) -> ItemRef<'_> {
        let [group, kind, namespace] = self.ends.map(|end| end as usize);
        ItemRef {
            group: &self.text[..group],
            kind: &self.text[group..kind],
            namespace: &self.text[kind..namespace],
            name: &self.text[namespace..],
        }
    }
}

impl ItemRef<'_> {
    pub(crate) fn to_key(self) -> ItemKey {
        let Self { group, kind, namespace, name } = self;
        // An event is far below four gigabytes, so no length is cut here.
        let [a, b, c] = [group, kind, namespace].map(|part| part.len() as u32);
        ItemKey { text: [group, kind, namespace, name].concat().into(), ends: [a, a + b, a + b + c] }
    }

    pub(crate) fn hash(self) -> u64 {
        hash(&[self.group, self.kind, self.namespace, self.name])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_1024_bytes_between_characters() {
        assert_eq!(message(&"x".repeat(1024)).len(), 1024);
        let cut = message(&"x".repeat(1025));
        assert_eq!((cut.len(), cut.ends_with("x…")), (1024, true));
        let cut = message(&"ä".repeat(600));
        assert_eq!((cut.len(), cut.ends_with("ä…")), (1023, true));
    }
}
