//! Ingest: events as they arrive, to what became of each; the way in for every writer that is not the log's own client.

use decklog_schemas::answer::{EmitAnswer, EmitStatus, OutcomeWord};
use decklog_schemas::{Envelope, Outcome, Sequence, subject};

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
    let mut answers = Vec::with_capacity(events.len());
    let (mut accepted, mut places) = (Vec::new(), Vec::new());
    for bytes in events {
        let (event, answer) = match prepare(bytes, check) {
            Ok(event) => (Some(event), EmitAnswer { status: EmitStatus::Unknown, ..EmitAnswer::default() }),
            Err(refused) => (None, refused),
        };
        if let Some(event) = event {
            places.push(answers.len());
            accepted.push(event);
        }
        answers.push(answer);
    }
    if accepted.is_empty() {
        return Ok(answers);
    }
    let ids: Vec<_> = accepted.iter().map(|event| event.id.clone()).collect();
    let appended = match handle.log().append(accepted).await {
        Ok(appended) => appended,
        Err(error) => {
            if let AppendError::Failed(why) = &error {
                // If the service has ended before, it has said why.
                let _ = handle.log_failed(why.to_string()).await;
            }
            return Err(error.into());
        }
    };
    let sequences: Vec<_> = appended.iter().filter_map(sequence_of).collect();
    let mut verdicts = Vec::new();
    if let Some(last) = sequences.iter().max() {
        handle.reach(*last).await?;
        verdicts = handle.verdicts(sequences).await?;
    }
    let mut verdicts = verdicts.into_iter();
    for ((place, id), appended) in places.into_iter().zip(ids).zip(appended) {
        let verdict = sequence_of(&appended).and_then(|_| verdicts.next()).flatten();
        answers[place] = answer(id, appended, verdict);
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

fn sequence_of(appended: &Appended) -> Option<Sequence> {
    match appended {
        Appended::Stored { sequence } | Appended::Duplicate { sequence } => Some(*sequence),
        Appended::Conflict { .. } | Appended::Refused { .. } | Appended::Unknown { .. } => None,
    }
}

fn answer(id: String, appended: Appended, verdict: Option<Verdict>) -> EmitAnswer {
    let sequence = sequence_of(&appended);
    let (status, error) = match appended {
        Appended::Stored { .. } => (EmitStatus::Stored, None),
        Appended::Duplicate { .. } => (EmitStatus::Duplicate, None),
        Appended::Conflict { tail: Some(tail) } => (EmitStatus::Conflict, Some(format!("the release is at {tail}"))),
        Appended::Conflict { tail: None } => (EmitStatus::Conflict, Some("the release has no record".to_owned())),
        Appended::Refused { reason } => (EmitStatus::Refused, Some(reason)),
        Appended::Unknown { reason } => (EmitStatus::Unknown, Some(reason)),
    };
    let (outcome, reason, quarantined) = match verdict {
        None => (None, None, None),
        Some(Ok(Outcome::Folded)) => (Some(OutcomeWord::Folded), None, None),
        Some(Ok(Outcome::Ignored(reason))) => (Some(OutcomeWord::Ignored), Some(reason), None),
        Some(Err(quarantined)) => (Some(OutcomeWord::Quarantined), None, Some(quarantined.to_string())),
    };
    EmitAnswer { id: Some(id), status, sequence, outcome, reason, error: error.or(quarantined) }
}
