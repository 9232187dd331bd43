//! `decklog project --dry-run`: the requests that a projector would send, and none of them sent.

mod print;

use std::collections::BTreeMap;

use anyhow::Error;
use decklog_engine::log::{Log, Scope};
use decklog_engine::service::Handle;
use decklog_kube::applier::Options;
use decklog_kube::{Cluster, Look, Part};
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{Action, Desired, Identity, OtherLog, Refusal, StampError, Wanted, plan};
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey, Sequence};
use serde_json::{Map, Value, json};

use crate::args::{Format, ProjectArgs};
use crate::clusters;
use crate::config::{Config, variable};
use crate::exit::{Answer, Failure};
use crate::output;
use crate::source::Source;
use crate::verify::{Objects, look, marks, objects};

/// What is planned, as a projector would.
struct Planning<'a> {
    log: &'a Identity,
    tail: Option<Sequence>,
    standings: &'a BTreeMap<ReleaseKey, Standing>,
    objects: &'a Objects,
    cluster: &'a str,
    shard: Option<&'a str>,
    shard_label: &'a str,
    other: OtherLog,
}

/// What would become of one release.
struct Planned {
    key: ReleaseKey,
    /// The last event of the release.
    sequence: Sequence,
    /// What would be sent, or why nothing may be.
    requests: Result<Vec<Action>, Refusal>,
    /// Whether it is to be made in a namespace that does not exist.
    waits: bool,
    /// What the fold decides of the object, as it is and as it would be; null where there is none.
    before: Value,
    after: Value,
}

pub(super) async fn run(args: ProjectArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let source = Source::open(&config.log(args.log.from)?, &args.log.nats).await?;
    let look = look(args.access).await?;
    let apply = args.apply;
    let cluster = config.cluster(apply.cluster).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
    let shard = apply.shard.or_else(|| variable("DECKLOG_SHARD"));
    // The cluster first: what the log has then is at least what the cluster was made from.
    let objects = objects(&look, &Part::All, &apply.shard_label).await?;
    let log = source.identity().await?;
    let recalled = source.recall(&Scope::All, &marks(&log, &cluster, &objects)).await?;
    if let Some(remark) = clusters::of_others(recalled.standings.keys(), &cluster) {
        output::complain(&remark);
    }
    let planning = Planning {
        log: &log,
        tail: recalled.tail,
        standings: &recalled.standings,
        objects: &objects,
        cluster: &cluster,
        shard: shard.as_deref(),
        shard_label: &apply.shard_label,
        other: other(&log, apply.adopt_log),
    };
    let place = print::Place { log: &log, tail: recalled.tail, cluster: &cluster, server: look.server() };
    let refusals = planning.refusals();
    if !refusals.is_empty() {
        output::print(&print::render(&[], &refusals, &place, format)?)?;
        return Err(Failure::diverged(way_out(&refusals)));
    }
    let mut planned = planning.all();
    mark_waiting(&look, &mut planned).await;
    output::print(&print::render(&planned, &[], &place, format)?)?;
    output::complain(&print::summary(&planned));
    Ok(if planned.is_empty() { Answer::Yes } else { Answer::Different })
}

/// Finds out what would wait for its namespace.
async fn mark_waiting(look: &Look, planned: &mut [Planned]) {
    let made = |planned: &&mut Planned| planned.before.is_null() && planned.requests.is_ok();
    let mut known = BTreeMap::new();
    for planned in planned.iter_mut().filter(made) {
        let namespace = planned.key.namespace.to_string();
        planned.waits = match known.get(&namespace) {
            Some(is_lacking) => *is_lacking,
            None => {
                let is_lacking = look.lacks_namespace(&namespace).await;
                known.insert(namespace, is_lacking);
                is_lacking
            }
        };
    }
}

/// A file does not know which log it is of, so that no stamp contradicts it.
fn other(log: &Identity, adopt_log: bool) -> OtherLog {
    match log {
        Identity::Known(_) if !adopt_log => OtherLog::Refuse,
        Identity::Known(_) => OtherLog::Adopt,
        Identity::Unknown => OtherLog::Indistinct,
    }
}

/// Shows what becomes of objects of other logs that are about to be taken over, if there are any.
pub(super) async fn announce<L: Log>(
    cluster: &Cluster,
    handle: &Handle<L, Inventories>,
    log: &str,
    options: &Options,
) -> Result<(), Error> {
    if options.other == OtherLog::Refuse {
        return Ok(());
    }
    let look = cluster.look();
    let mut objects = objects(&look, &Part::All, &options.shard_label).await?;
    objects.retain(|_, observed| {
        let is_ours = options.shard.is_none() || observed.shard() == options.shard.as_deref();
        is_ours && observed.stamps().any(|stamp| stamp.log != log)
    });
    if objects.is_empty() {
        return Ok(());
    }
    let of = options.cluster.clone();
    let keys: Vec<_> = objects.keys().map(|(namespace, name)| ReleaseKey::new(&of, namespace, name)).collect();
    let ask = move |inventories: &mut Inventories| {
        let standing = |key: ReleaseKey| inventories.standing(&key).map(|standing| (key, standing));
        (keys.into_iter().filter_map(standing).collect::<BTreeMap<_, _>>(), inventories.sequence())
    };
    let (standings, tail) = handle.ask(ask).await?;
    let log = Identity::Known(log.to_owned());
    let planning = Planning {
        log: &log,
        tail,
        standings: &standings,
        objects: &objects,
        cluster: &options.cluster,
        shard: options.shard.as_deref(),
        shard_label: &options.shard_label,
        other: options.other,
    };
    let planned = planning.all();
    let place = print::Place { log: &log, tail, cluster: &options.cluster, server: look.server() };
    let text = print::render(&planned, &[], &place, Format::Table)?;
    let kept = objects.len() - planned.len();
    output::complain(&format!(
        "Objects that were made from another log: {} are about to change, {kept} stay as they are\n{text}",
        planned.len(),
    ));
    Ok(())
}

/// Why a projector would not begin, and what to do.
fn way_out(refusals: &[(ReleaseKey, StampError)]) -> String {
    let is_other = |(_, error): &(ReleaseKey, StampError)| matches!(error, StampError::OtherLog { .. });
    let count = refusals.len();
    if refusals.iter().any(is_other) {
        format!(
            "a projector would refuse, for {count} objects in the cluster do not fit to the log; name the log that they were \
             made from, or, if its events were moved into this one, add --adopt-log to see what it would change"
        )
    } else {
        format!(
            "a projector would refuse, for {count} objects in the cluster were made from more of the log than there is: \
             records are gone from it; put the whole log back"
        )
    }
}

// === impl Planning ===

impl Planning<'_> {
    /// Objects of which a projector of this shard would say that this log is another one, or has lost what it had.
    fn refusals(&self) -> Vec<(ReleaseKey, StampError)> {
        let mut refusals = Vec::new();
        for ((namespace, name), observed) in self.objects {
            if self.shard.is_some() && observed.shard() != self.shard {
                continue;
            }
            let refused = observed.stamps().find_map(|stamp| stamp.check(self.name(), self.tail, self.other).err());
            refusals.extend(refused.map(|error| (ReleaseKey::new(self.cluster, namespace, name), error)));
        }
        refusals
    }

    /// What would become of the releases that are not in line with the log.
    fn all(&self) -> Vec<Planned> {
        let ours = self.standings.iter().filter(|(key, standing)| {
            *key.cluster == *self.cluster && (self.shard.is_none() || standing.shard.as_deref() == self.shard)
        });
        let planned = ours.map(|(key, standing)| self.of(key, standing));
        planned.filter(|planned| planned.requests.as_ref().map_or(true, |requests| !requests.is_empty())).collect()
    }

    fn of(&self, key: &ReleaseKey, standing: &Standing) -> Planned {
        let desired = Desired::of(standing, self.name(), self.shard_label);
        let observed = self.objects.get(&(key.namespace.to_string(), key.name.to_string()));
        let after = match &desired.object {
            Wanted::Object(object) => decided(&json!(object), self.shard_label),
            Wanted::Gone | Wanted::Nothing => Value::Null,
        };
        Planned {
            key: key.clone(),
            sequence: standing.sequence,
            requests: plan(&desired, observed, self.other),
            waits: false,
            before: observed.map_or(Value::Null, |observed| decided(observed.object(), self.shard_label)),
            after,
        }
    }

    /// What stamps call the log.
    fn name(&self) -> &str {
        match self.log {
            Identity::Known(name) => name,
            Identity::Unknown => "",
        }
    }
}

/// The part of an object that the fold decides, rows in order.
fn decided(object: &Value, shard_label: &str) -> Value {
    let mut decided = Map::new();
    if let Some(shard) = object["metadata"]["labels"].get(shard_label) {
        decided.insert("labels".to_owned(), json!({ shard_label: shard }));
    }
    for (list, keys) in
        [("inventory", ["group", "kind", "namespace", "name"].as_slice()), ("hooks", &["phase", "name"])]
    {
        let mut rows = object[list].as_array().cloned().unwrap_or_default();
        let key = |row: &Value| keys.iter().map(|name| row[*name].as_str().map(str::to_owned)).collect::<Vec<_>>();
        rows.sort_by_cached_key(key);
        if !rows.is_empty() {
            decided.insert(list.to_owned(), rows.into());
        }
    }
    Value::Object(decided)
}
