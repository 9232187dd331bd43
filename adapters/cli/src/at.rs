//! `decklog at`: the state of releases, now or at a moment.

use std::fmt::Write as _;

use anyhow::Error;
use decklog_engine::replay::Until;
use decklog_projections::inventory::Selection;
use decklog_schemas::answer::{ReleaseView, View};
use decklog_schemas::data::Health;
use decklog_schemas::inventory::{
    CLUSTER_ANNOTATION, HookState, InventoryHook, InventoryItem, ReleaseInventory, SHARD_LABEL,
};
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey, Seconds, Sequence};
use serde_json::json;

use crate::args::{AtArgs, Format};
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::output::{self, Cell, Table, Tone};
use crate::source::Source;
use crate::yaml;

pub(crate) async fn run(args: AtArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let address = config.log(args.log.from.clone())?;
    let asked = config.cluster(args.cluster);
    let cluster = asked.clone().unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
    let selection = match (args.namespace, args.release) {
        (Some(namespace), Some(release)) => Selection::Release(ReleaseKey::new(&cluster, &namespace, &release)),
        (Some(namespace), None) => Selection::Namespace { cluster, namespace },
        (None, _) if args.all_namespaces => Selection::All { cluster: asked },
        (None, _) => return Err(Failure::usage("name the namespace with -n NAMESPACE, or ask for all with -A")),
    };
    let mut source = Source::open(&address, &args.log.nats).await?;
    let until = source.resolve(args.at)?;
    let view = source.view(selection.clone(), until).await?;
    if let Some(Until::Sequence(asked)) = until
        && Some(asked) > view.sequence.max(source.last())
    {
        let tail = view.sequence.max(source.last()).map_or(0, Sequence::get);
        output::complain(&format!("warning: the log ends at sequence {tail}, before {asked}"));
    }
    if view.releases.is_empty() {
        output::complain(&nothing(&selection, &view, until));
        // A program reads a list without items; of one release that is not there, there is nothing to be read.
        if format != Format::Table && !matches!(selection, Selection::Release(_)) {
            output::print(&render(&view, &selection, format)?)?;
        }
        return Ok(Answer::Nothing);
    }
    for release in &view.releases {
        warn_of_incomplete(release);
    }
    output::print(&render(&view, &selection, format)?)?;
    Ok(Answer::Yes)
}

/// The view as text; `demo` prints the same.
pub(crate) fn render(view: &View, selection: &Selection, format: Format) -> Result<String, Error> {
    let is_one = matches!(selection, Selection::Release(_));
    match (format, view.releases.as_slice()) {
        (Format::Table, [release]) if is_one => one(view, release),
        (Format::Table, _) => list(view),
        (Format::Json, [release]) if is_one => output::json(&object(release)),
        (Format::Yaml, [release]) if is_one => yaml::to_string(&object(release)),
        (Format::Json, releases) => output::json(&list_object(releases)),
        (Format::Yaml, releases) => yaml::to_string(&list_object(releases)),
    }
}

/// The object as it is printed: one that is not of the default cluster says which one it is of.
fn object(release: &ReleaseView) -> ReleaseInventory {
    let mut object = release.object.clone();
    if release.cluster != DEFAULT_CLUSTER {
        object.metadata.annotations.insert(CLUSTER_ANNOTATION.to_owned(), release.cluster.clone());
    }
    object
}

/// What kubectl prints for several objects.
fn list_object(releases: &[ReleaseView]) -> serde_json::Value {
    let items: Vec<_> = releases.iter().map(object).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn nothing(selection: &Selection, view: &View, until: Option<Until>) -> String {
    let what = match selection {
        Selection::Release(key) => format!("of release {key}"),
        Selection::Namespace { cluster, namespace } => format!("in namespace {namespace} of cluster {cluster}"),
        Selection::All { cluster: Some(cluster) } => format!("in cluster {cluster}"),
        Selection::All { cluster: None } => "in any cluster".to_owned(),
    };
    match view.sequence {
        Some(sequence) => format!("There is no inventory {what} at sequence {sequence}."),
        None => match until {
            Some(until) => format!("There is no inventory {what}: nothing was recorded up to {until}."),
            None => format!("There is no inventory {what}: the log is empty."),
        },
    }
}

fn warn_of_incomplete(release: &ReleaseView) {
    if let Some(sequence) = release.incomplete {
        let metadata = &release.object.metadata;
        output::complain(&format!(
            "warning: {}/{} may be incomplete: the event at {sequence} is of a type that this version of decklog does not \
             know; `decklog timeline -n {0} {1}` shows it",
            metadata.namespace, metadata.name
        ));
    }
}

fn one(view: &View, release: &ReleaseView) -> Result<String, Error> {
    let metadata = &release.object.metadata;
    let mut text = format!("Release:   {}/{}\n", metadata.namespace, metadata.name);
    writeln!(text, "Cluster:   {}", release.cluster)?;
    if let Some(shard) = metadata.labels.get(SHARD_LABEL) {
        writeln!(text, "Shard:     {shard}")?;
    }
    writeln!(text, "Events:    folded up to sequence {}", release.sequence)?;
    writeln!(text, "Digest:    sha256:{}\n", view.digest)?;
    let fields = &release.object.fields;
    let by = |pointer: String| release.provenance.get(&pointer).map_or_else(String::new, ToString::to_string);
    if !fields.inventory.is_empty() {
        let mut table = Table::new(&[
            "WAVE",
            "KIND",
            "NAMESPACE",
            "NAME",
            "RENDER",
            "STATE",
            "ASSESSED",
            "SINCE",
            "SEQ",
            "MESSAGE",
        ]);
        for (at, item) in in_waves(&fields.inventory) {
            let (applied, assessed) = (by(format!("/inventory/{at}/renderRef")), by(format!("/inventory/{at}/state")));
            table.row(item_cells(item, if assessed.is_empty() { applied } else { format!("{applied},{assessed}") }));
        }
        text.push_str(&table.render()?);
    }
    if !fields.hooks.is_empty() {
        if !fields.inventory.is_empty() {
            text.push('\n');
        }
        let mut table =
            Table::new(&["PHASE", "HOOK", "WORKLOAD", "RENDER", "STATE", "CREATED", "FINISHED", "SEQ", "MESSAGE"]);
        for (at, hook) in fields.hooks.iter().enumerate() {
            table.row(hook_cells(hook, by(format!("/hooks/{at}/state"))));
        }
        text.push_str(&table.render()?);
    }
    Ok(text)
}

/// The rows as they were rolled out: by wave, then as the object has them.
fn in_waves(items: &[InventoryItem]) -> Vec<(usize, &InventoryItem)> {
    let mut rows: Vec<_> = items.iter().enumerate().collect();
    rows.sort_by_key(|(_, item)| item.wave);
    rows
}

fn item_cells(item: &InventoryItem, sequences: String) -> Vec<Cell> {
    let own = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_behind = item.assessed_render_ref.is_some() && item.assessed_render_ref != item.render_ref;
    let assessed = own(&item.assessed_render_ref);
    vec![
        item.wave.map_or_else(String::new, |wave| wave.to_string()).into(),
        item.kind.clone().into(),
        item.namespace.clone().into(),
        item.name.clone().into(),
        own(&item.render_ref).into(),
        match item.state {
            Some(state) => Cell::tinted(state.as_str(), tone_of_health(state)),
            None => Cell::tinted("-", Tone::Dim),
        },
        if is_behind { Cell::tinted(&assessed, Tone::Waiting) } else { assessed.into() },
        time(item.first_unhealthy).into(),
        sequences.into(),
        own(&item.message).into(),
    ]
}

fn hook_cells(hook: &InventoryHook, sequence: String) -> Vec<Cell> {
    vec![
        hook.phase.as_str().into(),
        hook.name.clone().into(),
        format!("{}/{}", hook.kind, hook.workload_name).into(),
        hook.render_ref.clone().into(),
        hook.state.map_or_else(|| "".into(), |state| Cell::tinted(&format!("{state:?}"), tone_of_hook(state))),
        time(hook.created_at).into(),
        time(hook.finished_at).into(),
        sequence.into(),
        hook.message.clone().unwrap_or_default().into(),
    ]
}

fn list(view: &View) -> Result<String, Error> {
    let mut table = Table::new(&["CLUSTER", "NAMESPACE", "RELEASE", "SHARD", "ITEMS", "HEALTHY", "HOOKS", "SEQ"]);
    for release in &view.releases {
        let (metadata, fields) = (&release.object.metadata, &release.object.fields);
        let healthy = fields.inventory.iter().filter(|item| item.state == Some(Health::Healthy)).count();
        table.row([
            release.cluster.clone().into(),
            metadata.namespace.clone().into(),
            metadata.name.clone().into(),
            metadata.labels.get(SHARD_LABEL).cloned().unwrap_or_default().into(),
            fields.inventory.len().to_string().into(),
            format!("{healthy}/{}", fields.inventory.len()).into(),
            fields.hooks.len().to_string().into(),
            release.sequence.to_string().into(),
        ]);
    }
    let sequence = view.sequence.map_or(0, decklog_schemas::Sequence::get);
    Ok(format!("{}\nAt sequence {sequence}, digest sha256:{}\n", table.render()?, view.digest))
}

fn time(time: Option<Seconds>) -> String {
    time.map_or_else(String::new, |time| time.to_string())
}

fn tone_of_health(state: Health) -> Tone {
    match state {
        Health::Healthy => Tone::Good,
        Health::Progressing | Health::Unknown => Tone::Waiting,
        Health::Degraded => Tone::Bad,
    }
}

fn tone_of_hook(state: HookState) -> Tone {
    match state {
        HookState::Succeeded => Tone::Good,
        HookState::Running => Tone::Waiting,
        HookState::Failed | HookState::TimedOut => Tone::Bad,
        HookState::Skipped => Tone::Dim,
    }
}
