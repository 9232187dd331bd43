//! A plan as requests and diffs for people, as JSON and as YAML.

use std::fmt::Write as _;

use anyhow::Error;
use decklog_projections::plan::{Action, Identity, Owner, Precondition, StampError};
use decklog_schemas::{ReleaseKey, Sequence};
use serde_json::{Value, json};
use similar::TextDiff;

use super::Planned;
use crate::args::Format;
use crate::output::{self, Tone, harmless, tinted};
use crate::yaml;

/// Of which log and which cluster a plan is.
pub(super) struct Place<'a> {
    pub(super) log: &'a Identity,
    pub(super) tail: Option<Sequence>,
    pub(super) cluster: &'a str,
    pub(super) server: &'a str,
}

/// How many unchanged lines a diff shows around what changes.
const CONTEXT: usize = 3;

pub(super) fn render(
    planned: &[Planned],
    refusals: &[(ReleaseKey, StampError)],
    place: &Place<'_>,
    format: Format,
) -> Result<String, Error> {
    match format {
        Format::Table => text(planned, refusals),
        Format::Json => output::json(&document(planned, refusals, place)),
        Format::Yaml => yaml::to_string(&document(planned, refusals, place)),
    }
}

/// How many inventories would be created, changed, deleted and refused.
pub(super) fn summary(planned: &[Planned]) -> String {
    if planned.is_empty() {
        return "The cluster is in line with the log: a projector would send nothing.".to_owned();
    }
    let word = |planned: &Planned| planned.requests.as_ref().map_or("refuse", |requests| kind(requests));
    let counts = ["create", "apply", "repair", "delete", "refuse"].map(|verb| {
        let count = planned.iter().filter(|planned| word(planned) == verb).count();
        (count > 0).then(|| format!("{} {count}", if verb == "apply" { "change" } else { verb }))
    });
    let counts: Vec<_> = counts.into_iter().flatten().collect();
    format!("Nothing was sent. Of the inventories, a projector would {}.", counts.join(", "))
}

/// What a plan does, in one word: that of its first request that changes more than owners.
fn kind(requests: &[Action]) -> &'static str {
    let words = requests.iter().map(word);
    words.clone().find(|word| *word != "repair").unwrap_or("repair")
}

fn word(action: &Action) -> &'static str {
    match action {
        Action::Apply { precondition: Precondition::Absent, .. } => "create",
        Action::Apply { .. } => "apply",
        Action::Repair { .. } => "repair",
        Action::Delete { .. } => "delete",
    }
}

fn text(planned: &[Planned], refusals: &[(ReleaseKey, StampError)]) -> Result<String, Error> {
    let mut text = String::new();
    for (key, error) in refusals {
        writeln!(text, "{}: {}", name(key), tinted(&harmless(&error.to_string()), Tone::Bad))?;
    }
    for planned in planned {
        if !text.is_empty() {
            text.push('\n');
        }
        let release = name(&planned.key);
        match &planned.requests {
            Ok(requests) => {
                let plural = if requests.len() == 1 { "" } else { "s" };
                let waits = if planned.waits { ", once its namespace exists" } else { "" };
                writeln!(text, "{release}: {} request{plural}{waits}", requests.len())?;
                for (number, action) in (1..).zip(requests) {
                    writeln!(text, "  {number}. {}", harmless(&request(action)))?;
                }
            }
            Err(refusal) => {
                let refusal = harmless(&refusal.to_string());
                writeln!(text, "{release}: {}: {refusal}", tinted("refused", Tone::Bad))?;
                continue;
            }
        }
        text.push_str(&diff(planned, &release)?);
    }
    Ok(text)
}

fn name(key: &ReleaseKey) -> String {
    harmless(&format!("{}/{}", key.namespace, key.name))
}

fn request(action: &Action) -> String {
    match action {
        Action::Apply { manager, .. } => format!("{} as {manager}", word(action)),
        Action::Repair { taken, .. } if taken.is_empty() => {
            "repair managedFields, in which owners are missing".to_owned()
        }
        Action::Repair { taken, .. } => {
            let taken: Vec<_> = taken.iter().map(Owner::to_string).collect();
            format!("repair managedFields, taking over {}", taken.join("; "))
        }
        Action::Delete { uid } => format!("delete, if its uid is {uid}"),
    }
}

fn diff(planned: &Planned, release: &str) -> Result<String, Error> {
    let yaml = |value: &Value| if value.is_null() { Ok(String::new()) } else { yaml::to_string(value) };
    let (before, after) = (yaml(&planned.before)?, yaml(&planned.after)?);
    let diff = TextDiff::from_lines(&before, &after);
    let (old, new) = (format!("{release} in the cluster"), format!("{release} in the log at {}", planned.sequence));
    let unified = diff.unified_diff().context_radius(CONTEXT).header(&old, &new).to_string();
    let mut text = String::new();
    for line in unified.lines() {
        let harmless = harmless(line);
        let line = match line.as_bytes().first() {
            Some(b'+') => tinted(&harmless, Tone::Good),
            Some(b'-') => tinted(&harmless, Tone::Bad),
            Some(b'@') => tinted(&harmless, Tone::Dim),
            _ => harmless,
        };
        writeln!(text, "{line}")?;
    }
    Ok(text)
}

fn document(planned: &[Planned], refusals: &[(ReleaseKey, StampError)], place: &Place<'_>) -> Value {
    let log = match place.log {
        Identity::Known(log) => Some(log),
        Identity::Unknown => None,
    };
    let refusal = |(key, error): &(ReleaseKey, StampError)| json!({ "namespace": key.namespace, "release": key.name, "reason": error.to_string() });
    json!({
        "log": log,
        "sequence": place.tail,
        "cluster": place.cluster,
        "server": place.server,
        "doNotFit": refusals.iter().map(refusal).collect::<Vec<_>>(),
        "releases": planned.iter().map(release).collect::<Vec<_>>(),
    })
}

fn release(planned: &Planned) -> Value {
    let requests = planned.requests.as_ref().map(Vec::as_slice).unwrap_or_default();
    json!({
        "namespace": planned.key.namespace,
        "release": planned.key.name,
        "sequence": planned.sequence,
        "refused": planned.requests.as_ref().err().map(ToString::to_string),
        "waitsForNamespace": planned.waits,
        "requests": requests.iter().map(request_document).collect::<Vec<_>>(),
        "before": planned.before,
        "after": planned.after,
    })
}

fn request_document(action: &Action) -> Value {
    let owner = |owner: &Owner| json!({ "field": owner.field, "manager": owner.manager, "operation": owner.operation });
    match action {
        Action::Apply { manager, body, .. } => {
            json!({ "action": word(action), "manager": manager.name(), "body": body })
        }
        Action::Repair { taken, .. } => {
            json!({ "action": word(action), "takenOver": taken.iter().map(owner).collect::<Vec<_>>() })
        }
        Action::Delete { uid } => json!({ "action": word(action), "uid": uid }),
    }
}
