//! The handlers of quarantine: what no fold can use, as a list, and one by one with its bytes.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use decklog_engine::log::Log;
use decklog_engine::log::Scope;
use decklog_engine::replay::{Until, record_at, replay};
use decklog_engine::service::Handle;
use decklog_projections::inventory::Inventories;
use decklog_projections::quarantine::{Inspection, Quarantine};
use decklog_schemas::Sequence;
use decklog_schemas::answer::{Inspected, QuarantineList};

use super::Asked;
use crate::failure::Failure;
use crate::query::{NoQuery, QuarantineQuery};

pub(crate) async fn list<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    query: Asked<QuarantineQuery>,
) -> Result<Json<QuarantineList>, Failure> {
    let Query(query) = query?;
    let (since, until) = query.read()?;
    let mut quarantine = Quarantine::since(since);
    replay(&**handle.log(), &Scope::All, until, &mut quarantine).await?;
    Ok(Json(quarantine.into_list()))
}

/// What is not in quarantine is 404, and the body says what is there instead.
pub(crate) async fn one<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    path: Result<Path<String>, PathRejection>,
    query: Asked<NoQuery>,
) -> Result<Response, Failure> {
    query?;
    let Path(text) = path.map_err(|rejection| Failure::bad_request(rejection.body_text()))?;
    let sequence = text.parse().ok().and_then(Sequence::new).ok_or_else(|| {
        Failure::bad_request(format!("path: {text:?} is no sequence")).hint("ask for /v1/quarantine/1234")
    })?;
    let inspected = inspect(&**handle.log(), sequence).await?;
    let status = match inspected {
        Inspected::Quarantined(_) => StatusCode::OK,
        Inspected::Understood { .. } | Inspected::Absent { .. } => StatusCode::NOT_FOUND,
    };
    Ok((status, Json(inspected)).into_response())
}

async fn inspect<L: Log>(log: &L, sequence: Sequence) -> Result<Inspected, Failure> {
    let (found, tail) = record_at(log, sequence).await?;
    let Some(record) = found else { return Ok(Inspected::Absent { tail }) };
    let mut inspection = Inspection::of(record);
    if let Some(scope) = inspection.scope() {
        replay(log, &scope, Until::Tail, &mut inspection).await?;
    }
    Ok(inspection.into_answer())
}
