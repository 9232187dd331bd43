//! What clients asked of an API server and what it answered, as its audit log tells it, from outside of our own code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use decklog_schemas::inventory::{GROUP, PLURAL};
use serde_json::Value;

/// The requests of a log that create or change ReleaseInventory objects: applies, which are patches, and the rest.
pub fn writes(log: &[Value]) -> impl Iterator<Item = &Value> {
    const VERBS: [&str; 4] = ["apply", "create", "patch", "update"];
    let is_ours = |object: &Value| object["apiGroup"] == GROUP && object["resource"] == PLURAL;
    log.iter().filter(move |line| is_ours(&line["objectRef"]) && VERBS.iter().any(|verb| line["verb"] == *verb))
}

/// How many requests there are of each kind, such as of each [`code`].
pub fn count<'a, K: Ord>(lines: impl IntoIterator<Item = &'a Value>, kind: fn(&Value) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(kind(line)).or_default() += 1;
    }
    counts
}

/// The status that was answered.
#[must_use]
pub fn code(line: &Value) -> u64 {
    line["responseStatus"]["code"].as_u64().unwrap_or_default()
}

/// What the client calls itself.
#[must_use]
pub fn user_agent(line: &Value) -> String {
    line["userAgent"].as_str().unwrap_or_default().to_owned()
}

/// Who asked, such as `system:serviceaccount:NAMESPACE:NAME`.
#[must_use]
pub fn user(line: &Value) -> String {
    line["user"]["username"].as_str().unwrap_or_default().to_owned()
}

/// The field manager as it stands in the request, or nothing.
#[must_use]
pub fn field_manager(line: &Value) -> String {
    let query = line["requestURI"].as_str().and_then(|uri| uri.split_once('?')).map_or("", |(_, query)| query);
    let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager="));
    manager.unwrap_or_default().to_owned()
}

/// The lines of a log that are complete.
pub(super) fn read(file: &Path) -> Vec<Value> {
    let text = String::from_utf8(fs::read(file).expect("the API server has made it")).expect("JSON is UTF-8");
    let complete = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    complete.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}
