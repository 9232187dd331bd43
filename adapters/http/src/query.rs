//! Query strings: the same types write them in the client and read them in the server.

use decklog_engine::ingest::Check;
use decklog_engine::replay::{BadMoment, Until};
use decklog_projections::inventory::Selection;
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The query of `POST /v1/events`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    unchecked: Option<bool>,
}

/// The query of `GET /v1/releases`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleasesQuery {
    cluster: Option<String>,
    namespace: Option<String>,
    release: Option<String>,
    at: Option<String>,
}

/// The query of `GET /v1/timeline`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimelineQuery {
    cluster: Option<String>,
    namespace: String,
    release: String,
    since: Option<String>,
    until: Option<String>,
}

/// The query of `GET /v1/quarantine`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    since: Option<String>,
    until: Option<String>,
}

/// `GET /v1/quarantine/{sequence}`, `GET /v1/status` and `GET /healthz` take no parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

// === impl EventsQuery ===

impl EventsQuery {
    pub(crate) fn new(check: Check) -> Self {
        let unchecked = match check {
            Check::Valid => None,
            Check::AsIs => Some(true),
        };
        Self { unchecked }
    }

    pub(crate) fn check(&self) -> Check {
        match self.unchecked {
            Some(true) => Check::AsIs,
            Some(false) | None => Check::Valid,
        }
    }
}

// === impl ReleasesQuery ===

impl ReleasesQuery {
    pub(crate) fn new(selection: &Selection, until: Option<Until>) -> Self {
        let at = text_of(until);
        match selection.clone() {
            Selection::All { cluster } => Self { cluster, at, ..Self::default() },
            Selection::Namespace { cluster, namespace } => {
                Self { cluster: Some(cluster), namespace: Some(namespace), at, ..Self::default() }
            }
            Selection::Release(key) => Self {
                cluster: Some(key.cluster.into()),
                namespace: Some(key.namespace.into()),
                release: Some(key.name.into()),
                at,
            },
        }
    }

    /// Which releases, and until when; now if that is not said.
    pub(crate) fn read(self) -> Result<(Selection, Until), Failure> {
        let until = moment(self.at.as_deref())?.unwrap_or(Until::Tail);
        for (name, value) in [("cluster", &self.cluster), ("namespace", &self.namespace), ("release", &self.release)] {
            not_empty(name, value.as_deref())?;
        }
        let cluster = self.cluster;
        let named = |cluster: Option<String>| cluster.unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
        let selection = match (self.namespace, self.release) {
            (None, None) => Selection::All { cluster },
            (Some(namespace), None) => Selection::Namespace { cluster: named(cluster), namespace },
            (Some(namespace), Some(name)) => Selection::Release(ReleaseKey::new(&named(cluster), &namespace, &name)),
            (None, Some(_)) => {
                return Err(Failure::bad_request("query: release needs a namespace").hint("add namespace=NAMESPACE"));
            }
        };
        Ok((selection, until))
    }
}

// === impl TimelineQuery ===

impl TimelineQuery {
    pub(crate) fn new(key: &ReleaseKey, since: Option<Until>, until: Option<Until>) -> Self {
        Self {
            cluster: Some(key.cluster.to_string()),
            namespace: key.namespace.to_string(),
            release: key.name.to_string(),
            since: text_of(since),
            until: text_of(until),
        }
    }

    /// Which release, from when, and until when; from the start and until now if that is not said.
    pub(crate) fn read(self) -> Result<(ReleaseKey, Option<Until>, Until), Failure> {
        let since = moment(self.since.as_deref())?;
        let until = moment(self.until.as_deref())?.unwrap_or(Until::Tail);
        let cluster = self.cluster.as_deref();
        not_empty("cluster", cluster)?;
        not_empty("namespace", Some(&self.namespace))?;
        not_empty("release", Some(&self.release))?;
        let cluster = cluster.unwrap_or(DEFAULT_CLUSTER);
        let key = ReleaseKey::new(cluster, &self.namespace, &self.release);
        Ok((key, since, until))
    }
}

// === impl QuarantineQuery ===

impl QuarantineQuery {
    pub(crate) fn new(since: Option<Until>, until: Option<Until>) -> Self {
        Self { since: text_of(since), until: text_of(until) }
    }

    /// From when, and until when; from the start and until now if that is not said.
    pub(crate) fn read(self) -> Result<(Option<Until>, Until), Failure> {
        Ok((moment(self.since.as_deref())?, moment(self.until.as_deref())?.unwrap_or(Until::Tail)))
    }
}

/// The tail has no text: it is what is meant if nothing is said.
fn text_of(moment: Option<Until>) -> Option<String> {
    let moment = moment.filter(|moment| *moment != Until::Tail);
    moment.map(|moment| moment.to_string())
}

/// The moment that a text names. No moment has a space in it, and a `+` that was not escaped arrives as one.
fn moment(text: Option<&str>) -> Result<Option<Until>, BadMoment> {
    let read = |text: &str| {
        let unescaped = |bad| text.replace(' ', "+").parse().map_err(|_| bad);
        text.parse().or_else(unescaped)
    };
    text.map(read).transpose()
}

fn not_empty(name: &str, value: Option<&str>) -> Result<(), Failure> {
    if value == Some("") {
        return Err(Failure::bad_request(format!("query: {name} is empty"))
            .hint(format!("give {name} a value, or leave it out")));
    }
    Ok(())
}
