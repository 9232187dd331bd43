//! The name of a Lease, one for each shard.

use std::fmt;

/// How long a name may be, in bytes, as the API server has it.
const LONGEST: usize = 253;

/// The name of a Lease: `decklog`, or `decklog-<shard>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName(String);

/// A shard after which no object can be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there can be no Lease {name:?}: names are lower-case letters, digits, '-' and '.', at most {LONGEST} of them, and \
     each part between dots begins and ends with a letter or a digit; name the shard so"
)]
pub struct InvalidLeaseName {
    /// What it would be called.
    pub name: String,
}

impl LeaseName {
    /// The name for a shard, or for the whole cluster.
    ///
    /// # Errors
    /// If the shard is no part of a name: its label may hold more than a name may.
    pub fn new(shard: Option<&str>) -> Result<Self, InvalidLeaseName> {
        let name = shard.map_or_else(|| "decklog".to_owned(), |shard| format!("decklog-{shard}"));
        if is_subdomain(&name) { Ok(Self(name)) } else { Err(InvalidLeaseName { name }) }
    }

    /// As it stands in `metadata.name`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A DNS subdomain, as RFC 1123 has it.
fn is_subdomain(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= LONGEST
        && name.split('.').all(|label| {
            label.starts_with(is_alphanumeric)
                && label.ends_with(is_alphanumeric)
                && label.chars().all(|c| is_alphanumeric(c) || c == '-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_are_names() {
        assert_eq!(LeaseName::new(None).map(|name| name.0), Ok("decklog".to_owned()));
        for good in ["a", "eu-1", "eu.west", "0"] {
            assert_eq!(LeaseName::new(Some(good)).map(|name| name.0), Ok(format!("decklog-{good}")));
        }
        for bad in ["", "EU", "a_b", "a.", "a..b", "a-", "a.-b", "ü", "a/b", &"a".repeat(246)] {
            assert!(LeaseName::new(Some(bad)).is_err(), "{bad}");
        }
        assert!(LeaseName::new(Some(&"a".repeat(245))).is_ok());
    }
}
