//! The answer of `/metrics`: what adapters have registered, as text.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// OpenMetrics 1.0, which Prometheus reads from 2.5 on.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Collectors are asked at this moment.
pub(crate) fn scrape(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "Metrics cannot be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "a metric cannot be written\n").into_response()
        }
    }
}
