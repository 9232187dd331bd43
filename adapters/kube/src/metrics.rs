//! What the applier counts, by the names under which it is scraped.

use decklog_projections::plan::{FieldManager, LIMIT_BYTES, Owner, WARN_BYTES};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::answer::Trouble;

/// Counters of the applier, cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    passes: Counter,
    marks: Counter,
    applies: Family<Apply, Counter>,
    refusals: Family<Refused, Counter>,
    taken: Family<Taken, Counter>,
    put_back: Family<PutBack, Counter>,
    failing: Family<Failing, Gauge>,
    forecasts: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Apply {
    manager: &'static str,
    answer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    manager: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Taken {
    /// The list or the map that the field is in.
    field: String,
    manager: String,
    operation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PutBack {
    was: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failing {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            passes: Counter::default(),
            marks: Counter::default(),
            applies: Family::default(),
            refusals: Family::default(),
            taken: Family::default(),
            put_back: Family::default(),
            failing: Family::default(),
            // Up to what a cluster stores of one object.
            forecasts: Histogram::new([4_096.0, 16_384.0, 65_536.0, 262_144.0, WARN_BYTES as f64, LIMIT_BYTES as f64]),
        }
    }
}

impl Metrics {
    /// Registers what is counted.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("decklog");
        registry.register("apply_passes", "Passes over one release", self.passes.clone());
        registry.register(
            "apply_marks",
            "Changes of one release that asked for a pass; several of them may be met by one",
            self.marks.clone(),
        );
        registry.register("applies", "Requests to the API server that write, by their answer", self.applies.clone());
        registry.register("projection_refusals", "Inventories that the cluster does not take", self.refusals.clone());
        registry.register(
            "forecast_bytes",
            "Sizes that inventories will have in the cluster, one a pass",
            self.forecasts.clone(),
        );
        registry.register(
            "fields_taken_over",
            "Fields of ours that somebody else had written, by that manager",
            self.taken.clone(),
        );
        registry.register(
            "inventories_put_back",
            "Inventories that somebody else had changed or deleted, without a change in the log",
            self.put_back.clone(),
        );
        registry.register(
            "failing",
            "Objects that could not be brought in line with the log, and are tried again",
            self.failing.clone(),
        );
    }

    /// How many objects of a kind fail, as of now.
    pub(crate) fn failing(&self, kind: &'static str) -> Gauge {
        self.failing.get_or_create_owned(&Failing { kind })
    }

    pub(crate) fn put_back(&self, was: &'static str) {
        self.put_back.get_or_create(&PutBack { was }).inc();
    }

    pub(crate) fn forecast(&self, bytes: usize) {
        self.forecasts.observe(bytes as f64);
    }

    pub(crate) fn passed(&self) {
        self.passes.inc();
    }

    pub(crate) fn marked(&self, releases: usize) {
        self.marks.inc_by(releases as u64);
    }

    pub(crate) fn applied(&self, manager: FieldManager, trouble: Option<&Trouble>) {
        let answer = trouble.map_or("Applied", word);
        self.applies.get_or_create(&Apply { manager: manager.name(), answer }).inc();
    }

    pub(crate) fn refused(&self, manager: FieldManager, reason: &str) {
        self.refusals.get_or_create(&Refused { manager: manager.name(), reason: reason.to_owned() }).inc();
    }

    pub(crate) fn took(&self, owner: &Owner) {
        let field = owner.field.split_once('[').map_or(&*owner.field, |(list, _)| list);
        let taken =
            Taken { field: field.to_owned(), manager: owner.manager.clone(), operation: owner.operation.clone() };
        self.taken.get_or_create(&taken).inc();
    }
}

fn word(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::NamespaceMissing => "NamespaceMissing",
        Trouble::NamespaceTerminating => "NamespaceTerminating",
        Trouble::NotServed => "NotServed",
        Trouble::Changed { .. } => "Changed",
        Trouble::Busy { .. } => "Busy",
        Trouble::Unknown { .. } => "Unknown",
        Trouble::Forbidden { .. } => "Forbidden",
        Trouble::Permanent { reason, .. } => reason.as_str(),
    }
}
