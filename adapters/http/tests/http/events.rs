//! Events for the tests, in both codecs.

use decklog_schemas::data::ReleaseTracked;
use decklog_schemas::{Body, Draft, ReleaseKey};

/// A valid JSON event of a release `namespace/name`, one line.
pub(crate) fn json(id: &str, release: &str) -> Vec<u8> {
    format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/test/1","type":"dev.decklog.ReleaseTracked.v1","subject":"{release}","time":"2026-03-02T13:40:00Z","data":{{}}}}"#
    )
    .into_bytes()
}

/// The same event in MessagePack.
pub(crate) fn msgpack(id: &str, release: &str) -> Vec<u8> {
    let (namespace, name) = release.split_once('/').unwrap();
    let mut bytes = Vec::new();
    let draft = Draft {
        id,
        source: "/test/1",
        release: Some(&ReleaseKey::new("default", namespace, name)),
        time: "2026-03-02T13:40:00Z".parse().unwrap(),
        release_uid: None,
        writer_seq: None,
        term: None,
        correlation_id: None,
        trace_parent: None,
        body: Body::ReleaseTracked(ReleaseTracked { shard: None }),
    };
    draft.write_msgpack(&mut bytes);
    bytes
}

/// An event whose time cannot be read: refused unless it is unchecked, and ignored then.
pub(crate) fn invalid(id: &str, release: &str) -> Vec<u8> {
    let event = String::from_utf8(json(id, release)).unwrap();
    event.replace("2026-03-02T13:40:00Z", "yesterday").into()
}

/// An event of a named cluster.
pub(crate) fn of_cluster(id: &str, release: &str, cluster: &str) -> Vec<u8> {
    let event = String::from_utf8(json(id, release)).unwrap();
    let attribute = format!(r#""cluster":"{cluster}","data""#);
    event.replace(r#""data""#, &attribute).into()
}
