//! Subjects: where an event stands in the log, and the escape that makes every name a token.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;

use crate::data::DeploymentRecorded;
use crate::envelope::Envelope;
use crate::event::{Domain, EventType, bare_name};
use crate::names::ReleaseKey;

/// First token of every subject.
pub const PREFIX: &str = "decklog";

/// What a token may not hold as it is: NATS separates by `.`, matches by `*` and `>`, and ends at white space.
/// `/` and `\` are escaped too, so that a token is a file name everywhere.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'.').add(b'*').add(b'>').add(b'/').add(b'\\').add(b'%');

/// The token of the empty name: NATS has no empty tokens, and nothing else is written as a bare `%`.
const EMPTY: &str = "%";

/// A parsed subject, its tokens still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// `<prefix>.release.<cluster>.<namespace>.<release>.<domain>.<Type>`
    Release {
        /// The three tokens that name the release.
        release: ReleaseTokens<'a>,
        /// The domain token.
        domain: &'a str,
        /// The type token.
        event_type: &'a str,
    },
    /// `<prefix>.deployment.<region>.<team>.<pipeline>`
    Deployment,
}

/// `<cluster>.<namespace>.<release>`, escaped: one text for each release, fit to be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseTokens<'a>(&'a str);

/// The longest subject that is made, in bytes. A NATS server ends the connection of a client that sends a line of more
/// than 4,096, headers and all. Kubernetes' longest names fit, also with every dot in them escaped.
pub const MAX_SUBJECT_BYTES: usize = 1024;

/// The event says of no release which one it is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/subject: {found}, and must be \"<namespace>/<release>\"")]
pub struct Unplaced {
    found: String,
}

/// Makes a name safe as a token of a subject and as a file name; every string comes back from [`unescape`].
#[must_use]
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.is_empty() { EMPTY.into() } else { utf8_percent_encode(name, UNSAFE).into() }
}

/// The name of a token; none if [`escape`] never writes this token, so that two tokens are never one name.
#[must_use]
pub fn unescape(token: &str) -> Option<Cow<'_, str>> {
    if token == EMPTY {
        return Some("".into());
    }
    let name = percent_decode_str(token).decode_utf8().ok()?;
    (escape(&name) == token).then_some(name)
}

/// The subject under which an event is appended.
///
/// # Errors
/// The event has no usable `subject` attribute, and is not a deployment either; or its names make a subject of more
/// than [`MAX_SUBJECT_BYTES`].
pub fn place(envelope: &Envelope<'_>) -> Result<String, Unplaced> {
    let wire = envelope.wire_type().unwrap_or_default();
    let known = bare_name(wire).and_then(EventType::from_name);
    let subject = if known == Some(EventType::DeploymentRecorded) {
        deployment(envelope)
    } else {
        let (namespace, release) = release_of(envelope)?;
        let tokens = release_tokens(envelope.cluster(), namespace, release);
        let domain = known.map_or("unsupported", |known| known.domain().as_str());
        let event_type = escape(bare_name(wire).unwrap_or(wire));
        format!("{PREFIX}.release.{tokens}.{domain}.{event_type}")
    };
    if subject.len() > MAX_SUBJECT_BYTES {
        return Err(Unplaced {
            found: format!(
                "makes, with cluster and type, a subject of {} bytes where {MAX_SUBJECT_BYTES} are the most",
                subject.len()
            ),
        });
    }
    Ok(subject)
}

/// The tokens of a release: what its records' subjects have between `release` and the domain.
#[must_use]
pub fn release_tokens(cluster: &str, namespace: &str, name: &str) -> String {
    format!("{}.{}.{}", escape(cluster), escape(namespace), escape(name))
}

/// The `subject` attribute as namespace and name.
pub(crate) fn release_of<'e>(envelope: &'e Envelope<'_>) -> Result<(&'e str, &'e str), Unplaced> {
    let Some(subject) = envelope.subject() else {
        return Err(Unplaced { found: "is missing or not a string".to_owned() });
    };
    match subject.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace, name))
        }
        _ => Err(Unplaced { found: format!("is {:?}", subject.chars().take(128).collect::<String>()) }),
    }
}

/// A deployment's subject comes from its payload; what the payload does not say is the empty name.
fn deployment(envelope: &Envelope<'_>) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Payload {
        region: String,
        pipeline: Pipeline,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Pipeline {
        team: String,
        name: String,
    }
    let data = envelope.data.read::<DeploymentRecorded<'_>>();
    let payload: Payload = data.ok().and_then(|data| serde_json::from_str(&data.payload).ok()).unwrap_or_default();
    let Pipeline { team, name } = payload.pipeline;
    format!("{PREFIX}.deployment.{}.{}.{}", escape(&payload.region), escape(&team), escape(&name))
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// Takes a subject apart; none if it is not one of ours.
    #[must_use]
    pub fn parse(subject: &'a str) -> Option<Self> {
        let rest = subject.strip_prefix(PREFIX)?.strip_prefix('.')?;
        if let Some(rest) = rest.strip_prefix("release.") {
            let (mut ends, mut dots) = ([0; 4], 0);
            for (at, byte) in rest.bytes().enumerate() {
                if byte == b'.' {
                    *ends.get_mut(dots)? = at;
                    dots += 1;
                }
            }
            let [cluster, namespace, name, domain] = ends;
            let has_empty = cluster == 0 || namespace == cluster + 1 || name == namespace + 1;
            return (dots == ends.len() && !has_empty).then(|| Self::Release {
                release: ReleaseTokens(&rest[..name]),
                domain: &rest[name + 1..domain],
                event_type: &rest[domain + 1..],
            });
        }
        let rest = rest.strip_prefix("deployment.")?;
        (rest.split('.').filter(|token| !token.is_empty()).count() == 3).then_some(Self::Deployment)
    }
}

// === impl ReleaseTokens ===

impl<'a> ReleaseTokens<'a> {
    /// The escaped text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The release that the tokens name; none if a token is not in its one escaped form.
    #[must_use]
    pub fn key(self) -> Option<ReleaseKey> {
        let mut tokens = self.0.split('.').map(unescape);
        let (cluster, namespace, name) = (tokens.next()??, tokens.next()??, tokens.next()??);
        Some(ReleaseKey::new(&cluster, &namespace, &name))
    }

    /// Whether these are the tokens of this release.
    pub(crate) fn name(self, cluster: &str, namespace: &str, release: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>' | b'/' | b'\\' | b'%');
        if !self.0.bytes().all(is_plain) {
            return self.0 == release_tokens(cluster, namespace, release);
        }
        // Nothing in the tokens is escaped or would have to be, so they stand for themselves.
        let behind = |text: &'a str, name| text.strip_prefix(name)?.strip_prefix('.');
        behind(self.0, cluster).and_then(|rest| behind(rest, namespace)) == Some(release)
    }
}

impl fmt::Display for ReleaseTokens<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl ReleaseKey {
    /// The release's tokens in a subject, escaped.
    #[must_use]
    pub fn tokens(&self) -> String {
        release_tokens(&self.cluster, &self.namespace, &self.name)
    }
}

/// Whether an event of this type may stand under this domain token. A type that is unknown may stand anywhere.
pub(crate) fn domain_fits(domain: &str, wire: Option<&str>) -> bool {
    known_domain(wire).is_none_or(|known| known != Domain::Deployment && known.as_str() == domain)
}

/// Whether an event of this type may stand under the subject of a deployment.
pub(crate) fn deployment_fits(wire: Option<&str>) -> bool {
    known_domain(wire).is_none_or(|known| known == Domain::Deployment)
}

fn known_domain(wire: Option<&str>) -> Option<Domain> {
    // A type of another version has the domain of its name.
    let known = |wire| EventType::from_wire(wire).or_else(|| EventType::from_name(bare_name(wire)?));
    wire.and_then(known).map(EventType::domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_and_is_one_token() {
        for name in
            ["", "a", "shop.checkout", "a b", "*", ">", "%", "%2E", "ä/ö\\", "\u{0}\n\u{7f}", "a..b", "=", "日本"]
        {
            let token = escape(name);
            assert_eq!(unescape(&token).as_deref(), Some(name), "{token}");
            assert!(
                !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic() && !b".*>/\\".contains(&b)),
                "{token}"
            );
        }
    }

    #[test]
    fn only_the_one_form_of_a_token_is_read() {
        for token in ["%2e", "%41", "a%", "%zz", "%FF", "ä"] {
            assert_eq!(unescape(token), None, "{token}");
        }
    }

    #[test]
    fn subjects_are_taken_apart() {
        let subject = Subject::parse("decklog.release.default.shop.check%2Eout.health-inventory.HealthAssessed");
        let Some(Subject::Release { release, domain, event_type }) = subject else { panic!("{subject:?}") };
        assert_eq!(release.key(), Some(ReleaseKey::new("default", "shop", "check.out")));
        assert_eq!((domain, event_type), ("health-inventory", "HealthAssessed"));
        assert_eq!(Subject::parse("decklog.deployment.eu.team.pipe"), Some(Subject::Deployment));
        for other in [
            "",
            "decklog",
            "decklog.release.a.b.c.d",
            "decklog.release.a..c.d.E",
            "other.release.a.b.c.d.E",
            "decklog.deployment.a.b",
        ] {
            assert_eq!(Subject::parse(other), None, "{other}");
        }
    }
}
