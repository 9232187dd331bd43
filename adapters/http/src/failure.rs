//! What a request gets that is not answered: a status, what is wrong, and what would be right.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use decklog_engine::ingest::IngestError;
use decklog_engine::log::ReadError;
use decklog_engine::replay::BadMoment;
use decklog_engine::service::Stopped;
use serde::{Deserialize, Serialize};

/// A request that is not answered.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: FailureBody,
}

/// The body of every answer that is neither a result nor a list of answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FailureBody {
    /// What is wrong.
    pub(crate) error: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let error = error.into();
        let body = FailureBody { error, hint: None };
        Self { status, body }
    }

    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// An error of the server's own, which is written to its log too.
    fn of_server(status: StatusCode, error: &dyn std::error::Error) -> Self {
        let error = chain(error);
        tracing::warn!(%error, "Request cannot be answered");
        Self::new(status, error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<IngestError> for Failure {
    fn from(error: IngestError) -> Self {
        Self::of_server(StatusCode::SERVICE_UNAVAILABLE, &error).hint("send the same events again, with the same ids")
    }
}

impl From<Stopped> for Failure {
    fn from(error: Stopped) -> Self {
        Self::of_server(StatusCode::SERVICE_UNAVAILABLE, &error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let status = match error {
            ReadError::Unavailable(_) | ReadError::Missing { .. } | ReadError::Denied(_) | ReadError::Refused(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ReadError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::of_server(status, &error)
    }
}

impl From<BadMoment> for Failure {
    fn from(error: BadMoment) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let known = text.strip_prefix("Failed to deserialize query string: ");
        Self::bad_request(format!("query: {}", known.unwrap_or(&text)))
    }
}

/// The error with all of its sources, from the outermost in.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
