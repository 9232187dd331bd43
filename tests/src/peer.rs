//! The events as a struct of serde's own making: what the codec is compared with.

use serde::{Deserialize, Serialize};

/// An event with all its attributes, of the types that the benches use, borrowed from the bytes; nothing is checked.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the attributes")]
pub struct PeerEvent<'a> {
    pub specversion: &'a str,
    pub id: &'a str,
    pub source: &'a str,
    pub r#type: &'a str,
    pub subject: &'a str,
    pub time: &'a str,
    pub cluster: &'a str,
    pub writerseq: u64,
    #[serde(borrow)]
    pub data: PeerData<'a>,
}

/// The data of an ItemApplied or a HealthAssessed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of the fields")]
pub struct PeerData<'a> {
    #[serde(borrow)]
    pub item: PeerItem<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub render_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assessed_render_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_unhealthy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
}

/// An object of the release.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the fields")]
pub struct PeerItem<'a> {
    pub group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<&'a str>,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> PeerEvent<'a> {
    /// Reads an event in the fastest way that serde has.
    pub fn read(bytes: &'a [u8]) -> Self {
        rmp_serde::from_slice(bytes).expect("the event is one of the peer's types")
    }
}
