//! Label selectors, as kubectl takes them with `-l`.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use kube::core::{Expression, SelectorExt as _};

/// Which labels an object must have: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, with commas between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(kube::core::Selector);

/// The text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is no part of a label selector, such as key=value, key!=value, key in (a,b), key or !key")]
pub struct BadSelector {
    part: String,
}

impl Selector {
    /// Whether these labels are chosen.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }
}

impl FromStr for Selector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, BadSelector> {
        let parts = parts(text).into_iter().map(str::trim);
        parts.map(|part| expression(part).ok_or_else(|| BadSelector { part: part.to_owned() })).collect()
    }
}

impl FromIterator<Expression> for Selector {
    fn from_iter<T: IntoIterator<Item = Expression>>(expressions: T) -> Self {
        Self(expressions.into_iter().collect())
    }
}

/// The parts between commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn expression(text: &str) -> Option<Expression> {
    if let Some(listed) = text.strip_suffix(')') {
        let (before, values) = listed.split_once('(')?;
        let values: BTreeSet<_> = values.split(',').map(word).collect::<Option<_>>()?;
        let mut words = before.split_whitespace();
        let (key, operator) = (word(words.next()?)?, words.next()?);
        return match (operator, words.next()) {
            ("in", None) => Some(Expression::In(key, values)),
            ("notin", None) => Some(Expression::NotIn(key, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(word(key)?, value_of(value)?));
    }
    if let Some((key, value)) = text.split_once('=') {
        return Some(Expression::Equal(word(key)?, value_of(value.strip_prefix('=').unwrap_or(value))?));
    }
    match text.strip_prefix('!') {
        Some(key) => word(key).map(Expression::DoesNotExist),
        None => word(text).map(Expression::Exists),
    }
}

/// The value of a label may be empty.
fn value_of(text: &str) -> Option<String> {
    if text.trim().is_empty() { Some(String::new()) } else { word(text) }
}

/// What keys and values of labels are made of.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(is_of_it)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, labels: &[(&str, &str)], expected: bool) {
        let selector: Selector = text.parse().expect("it is a selector");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(selector.matches(&labels), expected, "{text} on {labels:?}");
    }

    #[test]
    fn labels_are_selected_as_kubectl_does() {
        let labels = [("example.com/shard", "a"), ("tier", "")];
        for text in [
            "example.com/shard=a",
            "example.com/shard == a",
            "example.com/shard!=b",
            "other!=b",
            "example.com/shard in (a, b),tier",
            "tier=",
            "example.com/shard notin (b,c),!other",
        ] {
            check(text, &labels, true);
        }
        for text in ["example.com/shard=b", "tier,other", "!tier", "example.com/shard in (b,c)", "tier!="] {
            check(text, &labels, false);
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        for (text, part) in [("", ""), ("a=b,", ""), ("a in b", "a in b"), ("a of (b)", "a of (b)"), ("a=b c", "a=b c")]
        {
            assert_eq!(text.parse::<Selector>(), Err(BadSelector { part: part.to_owned() }), "{text}");
        }
    }
}
