//! `decklog verify`: what the log says beside what the cluster has. It has nothing with which it could write to a cluster.

mod print;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Error;
use decklog_engine::log::Scope;
use decklog_kube::{Look, LookError, Part, Selector};
use decklog_projections::plan::{
    Comparison, Desired, Identity, Observed, OtherLog, Past, Refusal, Told, Verdict, Wanted, compare, plan,
};
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey, Sequence};

use crate::args::{AccessArgs, VerifyArgs};
use crate::clusters;
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::output;
use crate::source::{Marks, Recalled, Source};

/// Objects of a cluster, by namespace and name.
pub(crate) type Objects = BTreeMap<(String, String), Observed>;

/// What was compared.
struct Report {
    log: Identity,
    tail: Option<Sequence>,
    cluster: String,
    server: String,
    releases: Vec<Compared>,
}

/// One release of a report.
struct Compared {
    key: ReleaseKey,
    comparison: Comparison,
    /// The last event of the release; none if the log does not know it.
    last: Option<Sequence>,
    /// How many of its events the cluster does not show.
    behind: u64,
    /// How many items and hooks the log says there are.
    rows: (usize, usize),
    /// Why no cluster takes what the log says, if so.
    refusal: Option<Refusal>,
}

pub(crate) async fn run(args: VerifyArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let cluster = config.cluster(args.cluster).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
    let part = match (args.namespace, args.release) {
        (Some(namespace), Some(name)) => Part::One { namespace, name },
        (Some(namespace), None) => Part::Namespace(namespace),
        (None, _) if args.all_namespaces => Part::All,
        (None, _) => return Err(Failure::usage("name the namespace with -n NAMESPACE, or ask for all with -A")),
    };
    let source = Source::open(&config.log(args.log.from)?, &args.log.nats).await?;
    let look = look(args.access).await?;
    // The cluster first: what the log has then is at least what the cluster was made from.
    let objects = objects(&look, &part, &args.shard_label).await?;
    let log = source.identity().await?;
    let marks = marks(&log, &cluster, &objects);
    let recalled = source.recall(&scope(&cluster, &part), &marks).await?;
    if let Some(remark) = clusters::of_others(recalled.standings.keys(), &cluster) {
        output::complain(&remark);
    }
    let chosen = Chosen { part: &part, selector: args.selector.as_ref(), cluster: &cluster };
    let releases = compared(&log, &recalled, &objects, &chosen, &args.shard_label);
    let report = Report { log, tail: recalled.tail, cluster, server: look.server().to_owned(), releases };
    if report.releases.is_empty() {
        output::complain(&format!(
            "Neither the log nor the cluster at {} has an inventory of what was asked for.",
            report.server
        ));
        if matches!(part, Part::One { .. }) {
            return Ok(Answer::Nothing);
        }
    }
    output::print(&print::render(&report, format)?)?;
    let is_equal = |release: &Compared| release.comparison.verdict == Verdict::Equal;
    Ok(if report.releases.iter().all(is_equal) { Answer::Yes } else { Answer::Different })
}

/// A cluster to look at.
pub(crate) async fn look(access: AccessArgs) -> Result<Look, Error> {
    Look::connect(&crate::access::access(access)?).await.map_err(|error| Failure::usage(error.to_string()))
}

/// What is in a cluster.
pub(crate) async fn objects(look: &Look, part: &Part, shard_label: &str) -> Result<Objects, Error> {
    let listed = look.inventories(part, shard_label).await;
    listed.map_err(|error| match error {
        LookError::Forbidden { .. } => Failure::unreachable(format!(
            "{error}; it needs the verb list on releaseinventories of core.convoy.kumodo.io"
        )),
        error => error.into(),
    })
}

/// The places in a log from which the objects were made.
pub(crate) fn marks(log: &Identity, cluster: &str, objects: &Objects) -> Marks {
    let mut marks = Marks::new();
    for ((namespace, name), observed) in objects {
        let own = observed.stamps().filter(|stamp| log.is(&stamp.log));
        let sequences: BTreeSet<_> = own.map(|stamp| stamp.sequence).collect();
        if !sequences.is_empty() {
            marks.insert(ReleaseKey::new(cluster, namespace, name), sequences);
        }
    }
    marks
}

fn scope(cluster: &str, part: &Part) -> Scope {
    match part {
        Part::All | Part::Namespace(_) => Scope::All,
        Part::One { namespace, name } => Scope::Release(ReleaseKey::new(cluster, namespace, name)),
    }
}

/// Which releases are compared.
struct Chosen<'a> {
    part: &'a Part,
    selector: Option<&'a Selector>,
    cluster: &'a str,
}

fn compared(
    log: &Identity,
    recalled: &Recalled,
    objects: &Objects,
    chosen: &Chosen<'_>,
    shard_label: &str,
) -> Vec<Compared> {
    let name = match log {
        Identity::Known(name) => name.as_str(),
        Identity::Unknown => "",
    };
    let in_log = recalled.standings.keys().filter(|key| chosen.holds(key)).cloned();
    let in_cluster = objects.keys().map(|(namespace, name)| ReleaseKey::new(chosen.cluster, namespace, name));
    let keys: BTreeSet<ReleaseKey> = in_log.chain(in_cluster).collect();
    let (none, mut releases) = (Past::new(), Vec::new());
    for key in keys {
        let standing = recalled.standings.get(&key);
        let desired = standing.map(|standing| Desired::of(standing, name, shard_label));
        let observed = objects.get(&(key.namespace.to_string(), key.name.to_string()));
        if !chosen.selects(desired.as_ref(), observed) {
            continue;
        }
        let past = recalled.past.get(&key).unwrap_or(&none);
        let told = Told { log, tail: recalled.tail, desired: desired.as_ref(), past, shard_label };
        let Some(comparison) = compare(&told, observed) else { continue };
        let counted = |mark| recalled.behind.get(&(key.clone(), mark)).copied();
        let behind = comparison.behind_since().and_then(counted).unwrap_or_default();
        let rows = match desired.as_ref().map(|desired| &desired.object) {
            Some(Wanted::Object(object)) => (object.fields.inventory.len(), object.fields.hooks.len()),
            _ => (0, 0),
        };
        let refusal = desired.as_ref().and_then(|desired| plan(desired, observed, OtherLog::Indistinct).err());
        let refusal = refusal.filter(|refusal| !matches!(refusal, Refusal::Stamp(_)));
        let last = standing.map(|standing| standing.sequence);
        releases.push(Compared { key, comparison, last, behind, rows, refusal });
    }
    releases
}

impl Chosen<'_> {
    fn holds(&self, key: &ReleaseKey) -> bool {
        *key.cluster == *self.cluster
            && match self.part {
                Part::All => true,
                Part::Namespace(namespace) => **namespace == *key.namespace,
                Part::One { namespace, name } => **namespace == *key.namespace && **name == *key.name,
            }
    }

    /// Labels count on both sides: what has lost its label has to be found as well.
    fn selects(&self, desired: Option<&Desired>, observed: Option<&Observed>) -> bool {
        let Some(selector) = self.selector else { return true };
        let wanted = match desired.map(|desired| &desired.object) {
            Some(Wanted::Object(object)) => selector.matches(&object.metadata.labels),
            _ => false,
        };
        let labels = |observed: &Observed| {
            let labels = observed.object()["metadata"]["labels"].as_object().into_iter().flatten();
            labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        wanted || observed.is_some_and(|observed| selector.matches(&labels(observed)))
    }
}
