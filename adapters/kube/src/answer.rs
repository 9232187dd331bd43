//! What an answer of the API server to a write means for the release that it was about.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusDetails;

use crate::kubeconfig::innermost;

/// Why a write has no success, as the decision that follows. Unless it is permanent, the object is read again before
/// the next try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is no such namespace: this release waits for it.
    #[error("the namespace does not exist")]
    NamespaceMissing,
    /// The namespace is being deleted, and takes nothing new: this release waits until it is gone and there again.
    #[error("the namespace is being deleted")]
    NamespaceTerminating,
    /// The kind is not served: its definition is not installed, or not any more. This is about all releases.
    #[error("the API server does not serve this kind of object")]
    NotServed,
    /// The object is not what it was when it was read: it has changed, is another one of the same name, or is gone.
    #[error("the object has changed since it was read: {message}")]
    Changed {
        /// What the server says.
        message: String,
    },
    /// The server could not do it now, and did nothing: too many requests, not ready, or nobody listens.
    #[error("the API server cannot do it now: {message}")]
    Busy {
        /// How long the server wants us to wait, if it says so.
        retry_after: Option<Duration>,
        /// What the server says, or why it could not be asked.
        message: String,
    },
    /// It may have been done or not: no answer came, or the server had none from its own store.
    #[error("it is not known whether it was done: {message}")]
    Unknown {
        /// What is known.
        message: String,
    },
    /// We may not, or the server does not know who we are. Somebody has to change that, and then it works as it is.
    #[error("the API server forbids it: {message}")]
    Forbidden {
        /// What the server says.
        message: String,
    },
    /// It is refused whenever it is sent again as it is.
    #[error("the API server refuses it for good ({reason}): {message}")]
    Permanent {
        /// In one word.
        reason: Reason,
        /// What the server says.
        message: String,
    },
}

/// Why a write is refused for good, as events say it. The words are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Two rows of a list have the same key.
    DuplicateKey,
    /// A field that the installed definition does not have: it is older than this build.
    UnknownField,
    /// A value of another type than the definition says.
    WrongType,
    /// More than a request may hold, or more than etcd stores.
    TooLarge,
    /// A value that the definition, or a policy of the cluster, does not allow.
    Invalid,
    /// A request that the server does not understand.
    BadRequest,
}

/// What is permanent although it comes as an internal error, by what its text contains; the first one decides.
const INTERNAL_ERRORS: &[(&str, Reason)] = &[
    ("duplicate entries for key", Reason::DuplicateKey),
    ("field not declared in schema", Reason::UnknownField),
    // Of structured-merge-diff: `expected numeric (int or float), got string`, `expected list, got &{…}`.
    ("expected numeric", Reason::WrongType),
    ("expected string, got", Reason::WrongType),
    ("expected boolean, got", Reason::WrongType),
    ("expected list, got", Reason::WrongType),
    ("expected map, got", Reason::WrongType),
    ("request is too large", Reason::TooLarge),
    // All else that it finds in what was sent, such as `associative list with keys may not have non-map elements`.
    ("failed to create typed patch object", Reason::WrongType),
    // Of the server's own client of etcd: `trying to send message larger than max (… vs. 2097152)`.
    ("larger than max", Reason::TooLarge),
];

/// What etcd, or the way to it, says when it has no answer: it may have stored what was written.
const UNANSWERED: &[&str] = &[
    "timed out",
    "timeout",
    "deadline exceeded",
    "leader changed",
    "context canceled",
    "transport is closing",
    "connection reset",
    "error reading from server",
];

// === impl Trouble ===

impl Trouble {
    /// What the failure of a write, or of the read before it, means.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        let message = innermost(error);
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::Auth(_) => Self::Forbidden { message },
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
                Self::Permanent { reason: Reason::BadRequest, message }
            }
            kube::Error::Service(_) | kube::Error::HyperError(_) if never_sent(error) => {
                Self::Busy { retry_after: None, message }
            }
            _ => Self::Unknown { message },
        }
    }

    /// What an answer that is a failure means.
    #[must_use]
    pub fn of_status(status: &Status) -> Self {
        let message = if status.message.is_empty() { &status.reason } else { &status.message }.clone();
        match status.code {
            401 => Self::Forbidden { message },
            403 if causes(status).any(|(reason, _)| reason == "NamespaceTerminating") => Self::NamespaceTerminating,
            403 => Self::Forbidden { message },
            404 => not_found(status, message),
            // Also of a create that finds the name taken, and of a uid where there is no object at all.
            409 => Self::Changed { message },
            413 => Self::Permanent { reason: Reason::TooLarge, message },
            422 if causes(status).any(|(_, field)| field == "metadata.uid") => Self::Changed { message },
            422 => Self::Permanent { reason: Reason::Invalid, message },
            429 | 503 => Self::Busy { retry_after: retry_after(status), message },
            500.. => internal(status, message),
            _ => Self::Permanent { reason: Reason::BadRequest, message },
        }
    }
}

/// Answers of 404 are about the namespace, the object, or the kind.
fn not_found(status: &Status, message: String) -> Trouble {
    match details(status) {
        Some(details) if details.kind == "namespaces" => Trouble::NamespaceMissing,
        Some(details) if !details.name.is_empty() => Trouble::Changed { message },
        _ => Trouble::NotServed,
    }
}

fn internal(status: &Status, message: String) -> Trouble {
    if let Some((_, reason)) = INTERNAL_ERRORS.iter().find(|(text, _)| message.contains(text)) {
        return Trouble::Permanent { reason: *reason, message };
    }
    let lower = message.to_lowercase();
    if status.code == 504 || UNANSWERED.iter().any(|text| lower.contains(text)) {
        return Trouble::Unknown { message };
    }
    Trouble::Busy { retry_after: retry_after(status), message }
}

fn details(status: &Status) -> Option<&StatusDetails> {
    status.details.as_ref()
}

/// Reason and field of each cause.
fn causes(status: &Status) -> impl Iterator<Item = (&str, &str)> {
    let causes = details(status).map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().map(|cause| (cause.reason.as_str(), cause.field.as_str()))
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = details(status).map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

/// Whether the connection itself failed to be made, so that nothing was asked.
fn never_sent(error: &kube::Error) -> bool {
    let mut layer: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = layer {
        if error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect()) {
            return true;
        }
        layer = error.source();
    }
    false
}

// === impl Reason ===

impl Reason {
    /// The word, as ProjectionRefused carries it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DuplicateKey => "DuplicateKey",
            Self::UnknownField => "UnknownField",
            Self::WrongType => "WrongType",
            Self::TooLarge => "TooLarge",
            Self::Invalid => "Invalid",
            Self::BadRequest => "BadRequest",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> Status {
        Status::failure(message, reason).with_code(code)
    }

    #[track_caller]
    fn check(code: u16, reason: &str, message: &str, expected: fn(String) -> Trouble) {
        assert_eq!(Trouble::of_status(&status(code, reason, message)), expected(message.to_owned()));
    }

    fn busy(message: String) -> Trouble {
        Trouble::Busy { retry_after: None, message }
    }

    fn unknown(message: String) -> Trouble {
        Trouble::Unknown { message }
    }

    fn bad_request(message: String) -> Trouble {
        Trouble::Permanent { reason: Reason::BadRequest, message }
    }

    /// What a real server cannot be brought to say at will; the rest is in `tests/tests/kube_client`.
    #[test]
    fn answers_without_details_are_known_by_code_and_text() {
        check(429, "", "Too many requests, please try again later.", busy);
        check(503, "ServiceUnavailable", "the server is currently unable to handle the request", busy);
        check(500, "InternalError", "failed calling webhook \"a.example\": no endpoints available", busy);
        check(502, "", "Bad Gateway", busy);
        check(500, "", "etcdserver: request timed out", unknown);
        check(500, "", "etcdserver: leader changed", unknown);
        check(500, "", "context deadline exceeded", unknown);
        check(504, "Timeout", "Timeout: request did not complete within the allotted duration", unknown);
        check(400, "BadRequest", "the body of the request was in an unknown format", bad_request);
        check(415, "UnsupportedMediaType", "the body of the request was in an unknown format", bad_request);
        check(409, "Conflict", "Apply failed with 1 conflict", |message| Trouble::Changed { message });
        check(413, "RequestEntityTooLarge", "limit is 3145728", |message| Trouble::Permanent {
            reason: Reason::TooLarge,
            message,
        });
        check(403, "Forbidden", "exceeded quota: a", |message| Trouble::Forbidden { message });
        check(404, "NotFound", "404 page not found", |_| Trouble::NotServed);
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let details: StatusDetails = serde_json::from_str(r#"{"retryAfterSeconds": 3}"#).expect("it is one");
        let busy = Trouble::of_status(&status(503, "", "later").with_details(details));
        assert_eq!(busy, Trouble::Busy { retry_after: Some(Duration::from_secs(3)), message: "later".to_owned() });
    }
}
