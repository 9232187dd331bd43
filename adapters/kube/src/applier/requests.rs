//! Actions as requests: sent as they are planned, and never without their precondition.

use decklog_engine::log::Log;
use decklog_projections::plan::{Action, FieldManager, Observed, Precondition};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions};
use kube::core::{Request, request};
use serde_json::{Value, json};

use super::pass::Pass;
use crate::answer::Trouble;
use crate::object::url;

/// The resourceVersion of an object that is to be created. An apply with a version creates what is missing, whatever
/// the version is, and is refused where there is an object of another one, also by force. No object ever has this one:
/// it is etcd's revision before its first write.
const ABSENT: &str = "1";

impl<L: Log> Pass<L> {
    /// Carries out an action on an object as it was observed, or as the action before has left it. Returns what is there
    /// then.
    pub(super) async fn execute(
        &self,
        action: &Action,
        observed: Option<&Observed>,
    ) -> Result<Option<Observed>, Trouble> {
        match action {
            Action::Apply { manager, body, precondition } => {
                let mut body = body.clone();
                guard(&mut body["metadata"], *precondition, observed)?;
                self.patch(*manager, &Patch::Apply(body)).await
            }
            Action::Repair { managed_fields, precondition, taken } => {
                let mut metadata = json!({ "managedFields": managed_fields });
                guard(&mut metadata, *precondition, observed)?;
                let patch = Patch::Merge(json!({ "metadata": metadata }));
                let repaired = self.patch(FieldManager::ReleaseInventory, &patch).await?;
                for owner in taken {
                    tracing::warn!(release = %self.key, field = owner.field, manager = owner.manager, operation = owner.operation, "Field of ours was written by somebody else and was taken back");
                    self.shared.metrics.took(owner);
                }
                Ok(repaired)
            }
            Action::Delete { uid } => self.delete(uid, observed).await,
        }
    }

    /// Asks what is there.
    pub(super) async fn ask(&self) -> Result<Option<Observed>, Trouble> {
        match self.send(Request::new(url(&self.key)).get(&self.key.name, &GetParams::default())).await {
            Ok(text) => self.take(text),
            // That the object is gone is one answer of 404, and that its kind is not served another one.
            Err(Trouble::Changed { .. }) => {
                self.shared.cache().know_gone(&self.key);
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn patch(&self, manager: FieldManager, patch: &Patch<Value>) -> Result<Option<Observed>, Trouble> {
        let params = PatchParams { field_manager: Some(manager.name().to_owned()), ..PatchParams::default() };
        let params = if matches!(patch, Patch::Apply(_)) { params.force() } else { params };
        let request = Request::new(url(&self.key)).patch(&self.key.name, &params, patch);
        let answer = self.send(request.map(|request| request.map(printable))).await;
        self.shared.metrics.applied(manager, answer.as_ref().err());
        self.take(answer?)
    }

    /// Sends a request in the term of the pass. If that ends before the answer comes, nobody knows what became of it.
    async fn send(&self, request: Result<http::Request<Vec<u8>>, request::Error>) -> Result<String, Trouble> {
        let request = request.map_err(|error| Trouble::of(&kube::Error::BuildRequest(error)))?;
        match self.term.within(self.shared.client.request_text(request)).await {
            Ok(answer) => answer.map_err(|error| Trouble::of(&error)),
            Err(over) => Err(Trouble::Unknown { message: over.to_string() }),
        }
    }

    /// Deletes what was observed, and not what another projector may have made of it since.
    async fn delete(&self, uid: &str, observed: Option<&Observed>) -> Result<Option<Observed>, Trouble> {
        let resource_version = observed.map(|observed| observed.resource_version().to_owned());
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.send(Request::new(url(&self.key)).delete(&self.key.name, &params)).await?;
        // Somebody's finalizer may keep it for a while.
        self.ask().await
    }

    /// Takes note of an answer.
    fn take(&self, text: String) -> Result<Option<Observed>, Trouble> {
        let Self { shared, key, .. } = self;
        let unknown = |message| Trouble::Unknown { message };
        let value = serde_json::from_str(&text).map_err(|error| unknown(error.to_string()))?;
        let observed =
            Observed::read(value, &shared.options.shard_label).map_err(|error| unknown(error.to_string()))?;
        if !observed.is_called(&key.namespace, &key.name) {
            return Err(unknown("the answer is about another object".to_owned()));
        }
        shared.cache().know(key, observed.resource_version(), text.into_bytes());
        Ok(Some(observed))
    }
}

/// The same JSON for a server that reads it as YAML, which takes some characters in no text unless they are escaped, and
/// others for the end of a line.
fn printable(json: Vec<u8>) -> Vec<u8> {
    let needs_escape =
        |letter| matches!(letter, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    match str::from_utf8(&json) {
        Ok(text) if text.contains(needs_escape) => {
            let mut escaped = String::with_capacity(text.len());
            for letter in text.chars() {
                if needs_escape(letter) {
                    escaped += &format!("\\u{:04x}", u32::from(letter));
                } else {
                    escaped.push(letter);
                }
            }
            escaped.into_bytes()
        }
        _ => json,
    }
}

/// Puts into the metadata what makes a request conditional.
fn guard(metadata: &mut Value, precondition: Precondition, observed: Option<&Observed>) -> Result<(), Trouble> {
    match (precondition, observed) {
        (Precondition::Absent, _) => {
            metadata["resourceVersion"] = json!(ABSENT);
            Ok(())
        }
        (Precondition::AsObserved | Precondition::AsAnswered, Some(observed)) => {
            metadata["uid"] = json!(observed.uid());
            metadata["resourceVersion"] = json!(observed.resource_version());
            Ok(())
        }
        // The action before has found nothing, so that nothing can follow it.
        (Precondition::AsObserved | Precondition::AsAnswered, None) => {
            Err(Trouble::Changed { message: "the object is gone".to_owned() })
        }
    }
}
