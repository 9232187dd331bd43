//! What the projector itself says in the log: of objects that are gone or refused, and of Releases.

use decklog_engine::ingest::{Check, append_to};
use decklog_engine::log::Log;
use decklog_engine::service::Handle;
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{FieldManager, Wanted};
use decklog_schemas::answer::{EmitAnswer, EmitStatus};
use decklog_schemas::data::{InventoryDeleted, ProjectionRefused, ReleaseDeleting, ReleaseTracked};
use decklog_schemas::{Body, Draft, ReleaseKey, Sequence};
use uuid::Uuid;

/// Appends the projector's own events. Their ids come from what they say: said twice, they are one event.
pub(crate) struct Teller<L> {
    handle: Handle<L, Inventories>,
    /// Identity of the log.
    id: String,
    source: String,
}

impl<L: Log> Teller<L> {
    /// Tells the log of this identity, which the engine behind the handle folds.
    pub(crate) fn new(handle: Handle<L, Inventories>, id: String) -> Self {
        Self { handle, id, source: format!("/projector/{}", Uuid::now_v7()) }
    }

    /// The object of a deleted release is gone.
    pub(crate) async fn inventory_deleted(&self, key: &ReleaseKey, standing: &Standing) -> Result<(), String> {
        let occasion = standing.sequence.to_string();
        let body = Body::InventoryDeleted(InventoryDeleted {});
        self.append(key, standing.uid.as_deref(), &occasion, body).await.map(drop)
    }

    /// The cluster will not take what the log says of a release.
    pub(crate) async fn projection_refused(
        &self,
        key: &ReleaseKey,
        standing: &Standing,
        manager: FieldManager,
        reason: &str,
        message: &str,
    ) -> Result<(), String> {
        let event =
            ProjectionRefused { field_manager: manager.name().into(), reason: reason.into(), message: message.into() };
        // By what is refused, and not by where the log is: who starts again has nothing new to say.
        let wanted = match &standing.wanted {
            Wanted::Object(object) => Uuid::new_v5(&Uuid::NAMESPACE_OID, &object.canonical()),
            Wanted::Gone | Wanted::Nothing => Uuid::nil(),
        };
        let occasion = format!("{wanted} {reason}");
        self.append(key, standing.uid.as_deref(), &occasion, Body::ProjectionRefused(event)).await.map(drop)
    }

    /// The cluster has a Release, with this shard label, as of this version of it. The log said otherwise the last time
    /// that it was tracked.
    pub(crate) async fn release_tracked(
        &self,
        release: &ReleaseKey,
        (uid, resource_version): (&str, &str),
        shard: Option<&str>,
        last: Option<Sequence>,
    ) -> Result<Sequence, String> {
        let body = Body::ReleaseTracked(ReleaseTracked { shard: shard.map(Into::into) });
        let last = last.map_or(0, Sequence::get);
        self.append(release, Some(uid), &format!("{uid} {resource_version} {last}"), body).await
    }

    /// The deletion of a Release has begun.
    pub(crate) async fn release_deleting(&self, release: &ReleaseKey, uid: &str) -> Result<Sequence, String> {
        self.append(release, Some(uid), uid, Body::ReleaseDeleting(ReleaseDeleting {})).await
    }

    /// Appends an event of which there is one for each occasion.
    async fn append(
        &self,
        release: &ReleaseKey,
        uid: Option<&str>,
        occasion: &str,
        body: Body<'_>,
    ) -> Result<Sequence, String> {
        let name = format!("{} {release} {} {occasion}", self.id, body.event_type().wire());
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string();
        let draft = Draft {
            id: &id,
            source: &self.source,
            release: Some(release),
            time: jiff::Timestamp::now(),
            release_uid: uid,
            writer_seq: None,
            // A lease that was made anew begins to count anew, and what it says must not be taken for old.
            term: None,
            correlation_id: None,
            trace_parent: None,
            body,
        };
        let mut bytes = Vec::new();
        draft.write_msgpack(&mut bytes);
        let answers = append_to(&self.handle, vec![bytes], Check::Valid).await.map_err(|error| error.to_string())?;
        match answers.into_iter().next().unwrap_or_default() {
            EmitAnswer { status: EmitStatus::Stored | EmitStatus::Duplicate, sequence: Some(sequence), .. } => {
                Ok(sequence)
            }
            answer => {
                let why = answer.error.unwrap_or_default();
                Err(format!("the log does not take the event {}: {why}", draft.body.event_type()))
            }
        }
    }
}
