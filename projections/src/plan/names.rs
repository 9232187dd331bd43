//! Which names an API server takes: RFC 1123, as apimachinery's validation has it. Whatever else an event says would be
//! refused there for ever.

use decklog_schemas::inventory::Metadata;

/// A name that no API server takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no {what}")]
pub struct BadName {
    /// What it should be, such as `name of a namespace (RFC 1123 label)`.
    pub what: &'static str,
    /// What it is.
    pub value: String,
}

const SUBDOMAIN_BYTES: usize = 253;

const LABEL_BYTES: usize = 63;

/// Whether an API server may have an object of that name in that namespace.
#[must_use]
pub fn is_name(namespace: &str, name: &str) -> bool {
    is_label(namespace) && is_subdomain(name)
}

/// Whether a text may be the key of a label: a name, with a domain and `/` before it or not.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Checks what the object is called, and its labels' values.
pub(super) fn check(metadata: &Metadata) -> Result<(), BadName> {
    let bad = |what, value: &str| Err(BadName { what, value: value.to_owned() });
    if !is_label(&metadata.namespace) {
        return bad("name of a namespace (RFC 1123 label)", &metadata.namespace);
    }
    if !is_subdomain(&metadata.name) {
        return bad("name of an object (RFC 1123 subdomain)", &metadata.name);
    }
    metadata.labels.values().find(|value| !is_label_value(value)).map_or(Ok(()), |value| bad("value of a label", value))
}

fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES && is_part(text)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_BYTES && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_value(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= LABEL_BYTES && text.bytes().all(is_inner) && ends.into_iter().all(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(namespace: &str, name: &str, shard: &str, expected: Option<&str>) {
        let labels = [("shard".to_owned(), shard.to_owned())].into();
        let metadata = Metadata { name: name.into(), namespace: namespace.into(), labels, annotations: [].into() };
        assert_eq!(check(&metadata).err().map(|bad| bad.value), expected.map(str::to_owned));
    }

    #[test]
    fn names_are_those_of_kubernetes() {
        expect("shop", "checkout.v2", "Shard_7.a", None);
        expect("shop", "checkout", "", None);
        expect("shop.eu", "checkout", "a", Some("shop.eu"));
        expect("Shop", "checkout", "a", Some("Shop"));
        expect("", "checkout", "a", Some(""));
        expect("shop", "a..b", "a", Some("a..b"));
        expect("shop", "-a", "a", Some("-a"));
        expect("shop", "a_b", "a", Some("a_b"));
        expect("shop", "checkout", "a b", Some("a b"));
        expect("shop", "checkout", "-a", Some("-a"));
        let long = "a".repeat(64);
        expect(&long, "checkout", "a", Some(&long));
        expect("shop", &long, "a", None);
        expect("shop", "checkout", &long, Some(&long));
    }

    #[test]
    fn keys_of_labels_may_have_a_domain() {
        for key in ["shard", "core.convoy.kumodo.io/shard", "a/Shard_7.a"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "/shard", "core.convoy.kumodo.io/", "a b", "a/b/c", "Core/shard", "-shard", &"a".repeat(64)] {
            assert!(!is_label_key(key), "{key}");
        }
    }
}
