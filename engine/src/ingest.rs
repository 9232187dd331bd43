//! Ingest: events as they arrive, to what became of each; the way in for every writer that is not the log's own client.

use decklog_schemas::answer::{EmitAnswer, EmitStatus, OutcomeWord};
use decklog_schemas::{Envelope, Outcome, subject};

use crate::log::{AppendError, Appended, ExpectedTail, Log, NewEvent};
use crate::projection::Projection;
use crate::service::{Handle, Stopped, Verdict};

/// Whether events that the fold could only ignore are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// An event that is `invalid` or `unsupported` is refused.
    Valid,
    /// Whatever names its release is appended as it is.
    AsIs,
}

/// Events could not be taken at all.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The log did not take them, or nobody knows whether it did.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// They are stored, and the engine stopped before it folded them.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Appends events and waits until they are folded; one answer for each, in order. A refused one stops nothing else.
///
/// # Errors
/// The log failed or the engine stopped. The same events may be sent again: equal ids are one event.
pub async fn ingest<L: Log, P: Projection>(
    handle: &Handle<L, P>,
    events: Vec<Vec<u8>>,
    check: Check,
) -> Result<Vec<EmitAnswer>, IngestError> {
    let mut answers = append_to(handle, events, check).await?;
    let sequences: Vec<_> = answers.iter().filter_map(|answer| answer.sequence).collect();
    let Some(last) = sequences.iter().max() else { return Ok(answers) };
    handle.reach(*last).await?;
    let verdicts = handle.verdicts(sequences).await?;
    let folded = answers.iter_mut().filter(|answer| answer.sequence.is_some());
    for (answer, verdict) in folded.zip(verdicts) {
        tell(answer, verdict);
    }
    Ok(answers)
}

/// Appends events to the log of a service, without waiting until they are folded; one answer for each, in order. A log
/// that has failed ends the service.
///
/// # Errors
/// The log failed. The same events may be sent again: equal ids are one event.
pub async fn append_to<L: Log, P: Projection>(
    handle: &Handle<L, P>,
    events: Vec<Vec<u8>>,
    check: Check,
) -> Result<Vec<EmitAnswer>, AppendError> {
    let appended = append(&**handle.log(), events, check).await;
    if let Err(AppendError::Failed(why)) = &appended {
        // If the service has ended before, it has said why.
        let _ = handle.log_failed(why.to_string()).await;
    }
    appended
}

/// Appends events to a log that somebody else folds; one answer for each, in order. A refused one stops nothing else.
///
/// # Errors
/// The log failed. The same events may be sent again: equal ids are one event.
pub async fn append<L: Log>(log: &L, events: Vec<Vec<u8>>, check: Check) -> Result<Vec<EmitAnswer>, AppendError> {
    let mut answers = Vec::with_capacity(events.len());
    let (mut accepted, mut places) = (Vec::new(), Vec::new());
    for bytes in events {
        match prepare(bytes, check) {
            Ok(event) => {
                places.push((answers.len(), event.id.clone()));
                accepted.push(event);
                answers.push(EmitAnswer::default());
            }
            Err(refused) => answers.push(refused),
        }
    }
    if accepted.is_empty() {
        return Ok(answers);
    }
    let appended = log.append(accepted).await?;
    for ((place, id), appended) in places.into_iter().zip(appended) {
        answers[place] = answer(id, appended);
    }
    Ok(answers)
}

/// The event with its place, or why it is refused.
fn prepare(bytes: Vec<u8>, check: Check) -> Result<NewEvent, EmitAnswer> {
    let envelope = Envelope::decode(&bytes).map_err(|error| refused(None, error.to_string()))?;
    let id = envelope.id().filter(|id| !id.is_empty()).map(str::to_owned);
    let subject = subject::place(&envelope).map_err(|error| refused(id.clone(), error.to_string()))?;
    if check == Check::Valid {
        envelope.validate().map_err(|refusal| refused(id.clone(), refusal.to_string()))?;
    }
    let Some(id) = id else { return Err(refused(None, "/id: is required".to_owned())) };
    Ok(NewEvent { id, subject, bytes, expected: ExpectedTail::Any })
}

fn refused(id: Option<String>, error: String) -> EmitAnswer {
    EmitAnswer { id, error: Some(error), ..EmitAnswer::default() }
}

fn answer(id: String, appended: Appended) -> EmitAnswer {
    let (status, sequence, error) = match appended {
        Appended::Stored { sequence } => (EmitStatus::Stored, Some(sequence), None),
        Appended::Duplicate { sequence } => (EmitStatus::Duplicate, Some(sequence), None),
        Appended::Conflict { tail: Some(tail) } => {
            (EmitStatus::Conflict, None, Some(format!("the release is at {tail}")))
        }
        Appended::Conflict { tail: None } => (EmitStatus::Conflict, None, Some("the release has no record".to_owned())),
        Appended::Refused { reason } => (EmitStatus::Refused, None, Some(reason)),
        Appended::Unknown { reason } => (EmitStatus::Unknown, None, Some(reason)),
    };
    EmitAnswer { id: Some(id), status, sequence, error, ..EmitAnswer::default() }
}

/// Adds what the fold did with the event.
fn tell(answer: &mut EmitAnswer, verdict: Option<Verdict>) {
    match verdict {
        None => {}
        Some(Ok(Outcome::Folded)) => answer.outcome = Some(OutcomeWord::Folded),
        Some(Ok(Outcome::Ignored(reason))) => {
            answer.outcome = Some(OutcomeWord::Ignored);
            answer.reason = Some(reason);
        }
        Some(Err(quarantined)) => {
            answer.outcome = Some(OutcomeWord::Quarantined);
            answer.error = Some(quarantined.to_string());
        }
    }
}
