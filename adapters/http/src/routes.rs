//! The handlers: a request to the engine and back.

pub(crate) mod quarantine;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use decklog_engine::ingest::ingest;
use decklog_engine::log::{Log, Scope, Wait};
use decklog_engine::replay::{Until, replay};
use decklog_engine::service::Handle;
use decklog_projections::inventory::{Inventories, Selection};
use decklog_projections::timeline::Timeline;
use decklog_schemas::Sequence;
use decklog_schemas::answer::{EmitAnswer, EmitStatus, TimelineEntry, View};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;

use crate::content::Content;
use crate::failure::Failure;
use crate::query::{EventsQuery, NoQuery, ReleasesQuery, TimelineQuery};
use crate::status::Status;

/// The largest body that is taken.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

const ROUTES: &str = "POST /v1/events, GET /v1/releases, GET /v1/timeline, GET /v1/quarantine, \
    GET /v1/quarantine/SEQUENCE, GET /v1/status, GET /healthz";

/// A query string, or what is wrong with it.
type Asked<T> = Result<Query<T>, QueryRejection>;

pub(crate) async fn append<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    query: Asked<EventsQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let Query(query) = query?;
    let content = Content::of(&headers)?;
    let events = content.split(&read(body).await?)?;
    let answers = ingest(&handle, events, query.check()).await?;
    Ok((status_of(&answers), Json(answers)).into_response())
}

pub(crate) async fn releases<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    query: Asked<ReleasesQuery>,
) -> Result<Json<View>, Failure> {
    let Query(query) = query?;
    let (selection, until) = query.read()?;
    if until == Until::Tail {
        let view = handle.ask(move |inventories| inventories.view(&selection));
        return Ok(Json(view.await?));
    }
    let scope = match &selection {
        Selection::Release(key) => Scope::Release(key.clone()),
        Selection::All { .. } | Selection::Namespace { .. } => Scope::All,
    };
    let mut inventories = Inventories::default();
    let replayed = replay(&**handle.log(), &scope, until, &mut inventories).await?;
    let mut view = inventories.view(&selection);
    view.sequence = replayed.last;
    Ok(Json(view))
}

pub(crate) async fn timeline<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    query: Asked<TimelineQuery>,
) -> Result<Json<Vec<TimelineEntry>>, Failure> {
    let Query(query) = query?;
    let (key, since, until) = query.read()?;
    let mut timeline = Timeline::since(match since {
        Some(Until::Time(moment)) => moment,
        Some(Until::Sequence(_) | Until::Tail) | None => jiff::Timestamp::MIN,
    });
    replay(&**handle.log(), &Scope::Release(key), until, &mut timeline).await?;
    let mut entries = timeline.into_entries();
    if let Some(Until::Sequence(first)) = since {
        entries.retain(|entry| entry.sequence >= first);
    }
    Ok(Json(entries))
}

pub(crate) async fn status<L: Log>(
    State(handle): State<Handle<L, Inventories>>,
    query: Asked<NoQuery>,
) -> Result<Json<Status>, Failure> {
    query?;
    let (sequence, releases) =
        handle.ask(|inventories: &mut Inventories| (inventories.sequence(), inventories.count())).await?;
    // Nothing of the records is wanted, only what comes along with them.
    let behind = Sequence::after(sequence);
    let batch = handle.log().read(behind, &Scope::All, Wait::No).await?;
    Ok(Json(Status {
        log: batch.log.to_string(),
        sequence,
        tail: batch.tail,
        releases,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
    }))
}

pub(crate) async fn healthz(query: Asked<NoQuery>) -> Result<&'static str, Failure> {
    query?;
    Ok("ok")
}

pub(crate) async fn not_found(uri: Uri) -> Failure {
    let error = format!("there is nothing at {}", uri.path());
    Failure::new(StatusCode::NOT_FOUND, error).hint(format!("the routes are {ROUTES}"))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let error = format!("{} does not take {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, error).hint(format!("the routes are {ROUTES}"))
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    let too_large = || {
        let error = format!("the body has more than {MAX_BODY_BYTES} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error).hint("send the events in several requests")
    };
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Failure::bad_request(format!("the body did not arrive: {error}"))),
    }
}

/// An event that may be stored or not is to be sent again, which says more than that another was refused.
fn status_of(answers: &[EmitAnswer]) -> StatusCode {
    let any = |statuses: &[EmitStatus]| answers.iter().any(|answer| statuses.contains(&answer.status));
    if any(&[EmitStatus::Unknown]) {
        StatusCode::SERVICE_UNAVAILABLE
    } else if any(&[EmitStatus::Refused, EmitStatus::Conflict]) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    }
}
