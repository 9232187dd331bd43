//! Who may do what on NATS: the permissions that each role needs, and those that a login has.

use std::fmt;

use decklog_schemas::subject::PREFIX;
use decklog_schemas::{Domain, EventType};
use serde::Deserialize;

use crate::api::ApiError;
use crate::connect::Connection;
use crate::subjects::{covers, overlap};

/// Who works on a log. What a role may publish is its authority: no other makes the log believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Says how items and hooks fare.
    Observer,
    /// Says what it did: to releases, items and hooks.
    Controller,
    /// Reads all of the log, and says what it did to the cluster.
    Projector,
    /// Reads all of the log, as it grows too, and says nothing.
    Auditor,
    /// Says what was deployed.
    Ci,
}

/// Subjects that a user may publish to and subscribe to, and none besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// To publish to: events, and requests.
    pub publish: Vec<String>,
    /// To subscribe to.
    pub subscribe: Vec<String>,
}

/// What the server says of a login.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Name or public key; a server without users has none.
    #[serde(default, rename = "user")]
    pub name: String,
    /// The account.
    #[serde(default)]
    pub account: String,
    /// None where nothing is forbidden.
    #[serde(default)]
    permissions: Option<Granted>,
    /// What requests to JetStream begin with.
    #[serde(skip)]
    api: String,
}

/// Permissions as the server writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Granted {
    publish: Rules,
    subscribe: Rules,
}

/// Without an `allow`, all is allowed that is not denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Rules {
    allow: Vec<String>,
    deny: Vec<String>,
}

/// Something that a login may do, or may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// What, such as `publish health-inventory`.
    pub what: String,
    /// The subject that it takes.
    pub subject: String,
    /// Whether it may.
    pub may: May,
}

/// Whether somebody may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// With each subject.
    Yes,
    /// With some subjects, such as those of one cluster.
    Partly,
    /// With none.
    No,
}

/// Where the server tells a login of itself.
const USER_INFO: &str = "$SYS.REQ.USER.INFO";

/// What requests to JetStream begin with, outside of a domain of its own.
const API: &str = "$JS.API";

/// Where answers come, unless a login has an inbox of its own.
const INBOX: &str = "_INBOX.>";

/// What a projector sees of Releases in its cluster, although their domain is the controller's.
const WATCHED: [EventType; 2] = [EventType::ReleaseTracked, EventType::ReleaseDeleting];

/// The role that has the authority over a domain.
#[must_use]
pub fn writer_of(domain: Domain) -> Role {
    match domain {
        Domain::Release | Domain::ReleaseInventory | Domain::ReleaseHooks => Role::Controller,
        Domain::HealthInventory | Domain::HookStatus => Role::Observer,
        Domain::Projector => Role::Projector,
        Domain::Deployment => Role::Ci,
    }
}

/// The subjects of a domain's events, of all clusters and releases.
#[must_use]
pub fn events_of(domain: Domain) -> String {
    match domain {
        Domain::Deployment => format!("{PREFIX}.deployment.>"),
        Domain::Release
        | Domain::ReleaseInventory
        | Domain::HealthInventory
        | Domain::ReleaseHooks
        | Domain::HookStatus
        | Domain::Projector => format!("{PREFIX}.release.*.*.*.{domain}.>"),
    }
}

/// Every domain, in the order of the event types.
#[must_use]
pub fn domains() -> Vec<Domain> {
    let mut domains: Vec<_> = EventType::ALL.iter().map(|event_type| event_type.domain()).collect();
    domains.dedup();
    domains
}

/// The requests that reading takes: what to ask, and for what.
fn reading(api: &str, stream: &str) -> [(&'static str, String); 5] {
    [
        ("ask for the stream", format!("{api}.STREAM.INFO.{stream}")),
        ("begin to read", format!("{api}.CONSUMER.CREATE.{stream}.>")),
        ("read on", format!("{api}.CONSUMER.MSG.NEXT.{stream}.>")),
        ("ask for a reader", format!("{api}.CONSUMER.INFO.{stream}.>")),
        message_get(api, stream),
    ]
}

/// What a writer that expects a tail asks for to resolve a conflict, too.
fn message_get(api: &str, stream: &str) -> (&'static str, String) {
    ("read one record", format!("{api}.STREAM.MSG.GET.{stream}"))
}

/// The requests that change the stream itself: no role has them.
fn managing(api: &str, stream: &str) -> [(&'static str, String); 5] {
    [
        ("make the stream", format!("{api}.STREAM.CREATE.{stream}")),
        ("change the stream", format!("{api}.STREAM.UPDATE.{stream}")),
        ("delete the stream", format!("{api}.STREAM.DELETE.{stream}")),
        ("purge the stream", format!("{api}.STREAM.PURGE.{stream}")),
        ("delete a record", format!("{api}.STREAM.MSG.DELETE.{stream}")),
    ]
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Observer, Self::Controller, Self::Projector, Self::Auditor, Self::Ci];

    /// Its name, such as `observer`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Controller => "controller",
            Self::Projector => "projector",
            Self::Auditor => "auditor",
            Self::Ci => "ci",
        }
    }

    /// What it needs on a stream, and nothing besides.
    #[must_use]
    pub fn permissions(self, stream: &str) -> Permissions {
        let mut publish: Vec<_> =
            domains().into_iter().filter(|domain| writer_of(*domain) == self).map(events_of).collect();
        let mut subscribe = vec![INBOX.to_owned()];
        let requests = match self {
            Self::Observer | Self::Ci => Vec::new(),
            Self::Controller => vec![message_get(API, stream)],
            Self::Projector | Self::Auditor => reading(API, stream).to_vec(),
        };
        if self == Self::Projector {
            publish.extend(WATCHED.map(|event| format!("{PREFIX}.release.*.*.*.{}.{event}", event.domain())));
        }
        publish.extend(requests.into_iter().map(|(_, subject)| subject));
        if self == Self::Auditor {
            // What other clients read single records with.
            publish.extend(["", ".>"].map(|rest| format!("{API}.DIRECT.GET.{stream}{rest}")));
            subscribe.push(format!("{PREFIX}.>"));
        }
        publish.push(USER_INFO.to_owned());
        Permissions { publish, subscribe }
    }
}

impl Connection {
    /// Asks the server who is logged in, and what that login may do.
    ///
    /// # Errors
    /// The login may not even ask that, or the server does not answer.
    pub async fn user(&self) -> Result<User, ApiError> {
        #[derive(Deserialize)]
        struct Answer {
            data: User,
        }
        let unavailable = |source| ApiError::Unavailable { subject: USER_INFO.to_owned(), source };
        let asked = self.client.request(USER_INFO, Vec::new().into());
        let message = self.unless_denied(USER_INFO, asked).await?.map_err(|error| unavailable(error.into()))?;
        let answer: Answer = serde_json::from_slice(&message.payload).map_err(|error| unavailable(error.into()))?;
        Ok(User { api: self.api.to_string(), ..answer.data })
    }
}

impl User {
    /// What this login may do on a stream, thing by thing.
    #[must_use]
    pub fn abilities(&self, stream: &str) -> Vec<Ability> {
        let everything = Granted::default();
        let Granted { publish, subscribe } = self.permissions.as_ref().unwrap_or(&everything);
        let ability = |rules: &Rules, what: String, subject: String| {
            let may = rules.may(&subject);
            Ability { what, subject, may }
        };
        let domains = domains().into_iter();
        let mut abilities: Vec<_> =
            domains.map(|domain| ability(publish, format!("publish {domain}"), events_of(domain))).collect();
        abilities.push(ability(subscribe, "subscribe to events".to_owned(), format!("{PREFIX}.>")));
        for (what, subject) in reading(&self.api, stream).into_iter().chain(managing(&self.api, stream)) {
            abilities.push(ability(publish, what.to_owned(), subject));
        }
        abilities
    }
}

impl Rules {
    fn may(&self, subject: &str) -> May {
        let is_allowed = |by: fn(&str, &str) -> bool| self.allow.iter().any(|allowed| by(allowed, subject));
        let is_denied = |by: fn(&str, &str) -> bool| self.deny.iter().any(|denied| by(denied, subject));
        if is_denied(covers) || (!self.allow.is_empty() && !is_allowed(overlap)) {
            May::No
        } else if is_denied(overlap) || (!self.allow.is_empty() && !is_allowed(covers)) {
            May::Partly
        } else {
            May::Yes
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl May {
    /// `yes`, `partly` or `no`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(permissions: &str) -> User {
        let text = format!(r#"{{"user":"u","account":"$G"{permissions}}}"#);
        User { api: API.to_owned(), ..serde_json::from_str(&text).expect("as the server writes") }
    }

    fn may(user: &User, what: &str) -> May {
        let abilities = user.abilities("DECKLOG");
        abilities.iter().find(|ability| ability.what == what).expect("it is one of the abilities").may
    }

    #[test]
    fn a_login_without_permissions_may_do_everything() {
        let user = user("");
        assert!(user.abilities("DECKLOG").iter().all(|ability| ability.may == May::Yes), "{user:?}");
    }

    #[test]
    fn one_cluster_of_a_domain_is_a_part_of_it() {
        let user = user(r#","permissions":{"publish":{"allow":["decklog.release.eu.*.*.release.>"]}}"#);
        assert_eq!(may(&user, "publish release"), May::Partly);
        assert_eq!(may(&user, "publish projector"), May::No);
        assert_eq!(may(&user, "delete the stream"), May::No);
        assert_eq!(may(&user, "subscribe to events"), May::Yes);
    }

    #[test]
    fn what_is_denied_is_not_allowed() {
        let user = user(r#","permissions":{"publish":{"allow":[">"],"deny":["decklog.release.us.>","$JS.API.>"]}}"#);
        assert_eq!(may(&user, "publish release"), May::Partly);
        assert_eq!(may(&user, "publish deployment"), May::Yes);
        assert_eq!(may(&user, "ask for the stream"), May::No);
    }

    #[test]
    fn each_domain_has_one_role_and_no_role_manages() {
        for role in Role::ALL {
            let Permissions { publish, .. } = role.permissions("DECKLOG");
            for domain in domains() {
                let is_allowed = publish.iter().any(|allowed| covers(allowed, &events_of(domain)));
                assert_eq!(is_allowed, writer_of(domain) == role, "{role} and {domain}");
                let is_part_allowed = publish.iter().any(|allowed| overlap(allowed, &events_of(domain)));
                let is_watched = role == Role::Projector && domain == Domain::Release;
                assert_eq!(is_part_allowed, is_allowed || is_watched, "{role} and parts of {domain}");
            }
            for (what, subject) in managing(API, "DECKLOG").into_iter().chain(managing(API, "OTHER")) {
                assert!(!publish.iter().any(|allowed| overlap(allowed, &subject)), "{role} may {what}");
            }
        }
    }
}
