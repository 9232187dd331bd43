//! Uids of objects: compared with each event, and therefore kept in the row itself.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::keyed::hash;

/// `metadata.uid` of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Uid {
    /// The halves of a UUID as Kubernetes writes them, in small letters.
    Uuid([u64; 2]),
    /// Any other text.
    Other(Box<str>),
}

impl Uid {
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Uuid(halves) => hash(&[halves]),
            Self::Other(text) => hash(&[text]),
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl Display for Uid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid([high, low]) => {
                let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
                write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn uuid(text: &str) -> Option<[u64; 2]> {
    let mut number = 0_u128;
    for (place, character) in text.bytes().enumerate() {
        let digit = match (place, character) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => character - b'0',
            (_, b'a'..=b'f') => character - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u128::from(digit);
    }
    (text.len() == 36).then_some([(number >> 64) as u64, number as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_uid_comes_back() {
        for (text, is_uuid) in [
            ("6f1c3a52-0b7d-4e19-9c55-8d2f0a714be6", true),
            ("6F1c3a52-0b7d-4e19-9c55-8d2f0a714be6", false),
            ("6f1c3a520-b7d-4e19-9c55-8d2f0a714be6", false),
            ("6f1c3a52-0b7d-4e19-9c55-8d2f0a714be", false),
            ("6f1c3a52-0b7d-4e19-9c55-8d2f0a714bé", false),
            ("", false),
            ("u1", false),
        ] {
            let uid = Uid::from(text);
            assert_eq!((uid.to_string().as_str(), matches!(uid, Uid::Uuid(_))), (text, is_uuid));
        }
    }
}
