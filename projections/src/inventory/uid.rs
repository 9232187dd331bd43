//! Uids of objects: compared with each event, and therefore kept in the row itself.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::keyed::hash;

/// `metadata.uid` of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Uid {
    /// A UUID as Kubernetes writes them, in small letters.
    Uuid([u8; 16]),
    /// Any other text.
    Other(Box<str>),
}

impl Uid {
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Uuid(bytes) => hash(&[bytes]),
            Self::Other(text) => hash(&[text.as_bytes()]),
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text.as_bytes()).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl Display for Uid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let mut bytes = [0; 16];
    let mut at = 0;
    for (place, byte) in bytes.iter_mut().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
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
