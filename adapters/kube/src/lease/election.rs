//! One try to hold a Lease: what its record says, and what is written to it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as Record, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use super::{Identity, LeaseName, Timing};

/// Our part in the election.
pub(super) struct Election {
    records: Api<Record>,
    namespace: String,
    name: String,
    identity: Identity,
    timing: Timing,
    seen: Option<Seen>,
    /// The highest `leaseTransitions` ever seen: also a Lease that was deleted is not begun anew.
    highest: i32,
}

/// The record as it was last read or written.
struct Seen {
    record: Record,
    /// When what it says was first seen.
    since: Instant,
}

/// What became of a try.
pub(super) enum Attempted {
    /// We hold it.
    Held {
        /// When we must have renewed it.
        until: Instant,
        /// Above 0.
        term: u64,
    },
    /// We do not: somebody else does, or was faster.
    HeldBy(Option<String>),
}

// === impl Election ===

impl Election {
    pub(super) fn new(client: Client, namespace: &str, name: &LeaseName, identity: Identity, timing: Timing) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_string());
        let records = Api::namespaced(client, &namespace);
        Self { records, namespace, name, identity, timing, seen: None, highest: 0 }
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    pub(super) fn identity(&self) -> &str {
        self.identity.as_str()
    }

    /// The Lease, for logs.
    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Tries to hold the Lease, or to go on holding it.
    ///
    /// It may be dropped while it waits: what was then written or not is read back by the next one.
    pub(super) async fn attempt(&mut self) -> kube::Result<Attempted> {
        // A holder has seen the record: to renew it is one request.
        if let Some(record) = self.own().cloned() {
            match self.renew(record).await {
                Err(error) if is_outdated(&error) => {}
                renewed => return renewed,
            }
        }
        let is_there = self.read().await?;
        match (&self.seen, is_there) {
            (Some(seen), Presence::There) if self.is_ours(&seen.record) => self.renew(seen.record.clone()).await,
            (Some(seen), _) if self.is_held(seen) => Ok(Attempted::HeldBy(holder(&seen.record).map(str::to_owned))),
            (Some(seen), Presence::There) => self.take(seen.record.clone()).await,
            (_, _) => self.create().await,
        }
        .or_else(|error| if is_outdated(&error) { Ok(Attempted::HeldBy(None)) } else { Err(error) })
    }

    /// Gives the Lease back if we hold it.
    pub(super) async fn release(&mut self) -> kube::Result<()> {
        self.read().await?;
        let Some(mut record) = self.own().cloned() else {
            return Ok(());
        };
        let (spec, now) = (record.spec.get_or_insert_default(), MicroTime(Timestamp::now()));
        spec.holder_identity = Some(String::new());
        // As client-go does it: nobody has to wait for a holder that there is not.
        spec.lease_duration_seconds = Some(1);
        (spec.acquire_time, spec.renew_time) = (Some(now.clone()), Some(now));
        match self.records.replace(&self.name, &PostParams::default(), &record).await {
            Err(error) if !is_outdated(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The record in which we are the holder, if it was there when it was last looked for.
    fn own(&self) -> Option<&Record> {
        self.seen.as_ref().map(|seen| &seen.record).filter(|record| self.is_ours(record))
    }

    fn is_ours(&self, record: &Record) -> bool {
        holder(record) == Some(self.identity.as_str())
    }

    /// Whether somebody else is to be waited for, also if the record was deleted since: that ends nobody's time.
    fn is_held(&self, seen: &Seen) -> bool {
        let seconds = seen.record.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.timing.duration, Duration::from_secs);
        let is_other = holder(&seen.record).is_some_and(|holder| holder != self.identity.as_str());
        is_other && Instant::now() < seen.since + duration
    }

    async fn read(&mut self) -> kube::Result<Presence> {
        match self.records.get_opt(&self.name).await? {
            Some(record) => {
                self.see(record);
                Ok(Presence::There)
            }
            None => Ok(Presence::Gone),
        }
    }

    /// Notes a record, and the moment if it says something new. It was written before that moment, so that it never
    /// runs out too early here.
    fn see(&mut self, record: Record) {
        self.highest = self.highest.max(transitions(&record));
        let since = match &self.seen {
            Some(seen) if seen.record.spec == record.spec => seen.since,
            _ => Instant::now(),
        };
        self.seen = Some(Seen { record, since });
    }

    async fn renew(&mut self, mut record: Record) -> kube::Result<Attempted> {
        let spec = record.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        spec.lease_duration_seconds = Some(self.seconds());
        self.write(record).await
    }

    async fn take(&mut self, mut record: Record) -> kube::Result<Attempted> {
        let taken = self.taken();
        let spec = record.spec.get_or_insert_default();
        *spec = LeaseSpec { preferred_holder: spec.preferred_holder.take(), strategy: spec.strategy.take(), ..taken };
        self.write(record).await
    }

    async fn create(&mut self) -> kube::Result<Attempted> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let record = Record { metadata, spec: Some(self.taken()) };
        self.write(record).await
    }

    /// What the record says of a new holder.
    fn taken(&self) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.as_str().to_owned()),
            lease_duration_seconds: Some(self.seconds()),
            lease_transitions: Some(self.highest.saturating_add(1)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }

    /// Writes a record with us as the holder: over the one that it was made from, else as a new one. We hold the Lease
    /// from before it was asked, for nobody else can have seen the record earlier.
    async fn write(&mut self, record: Record) -> kube::Result<Attempted> {
        let (start, params) = (Instant::now(), PostParams::default());
        let record = match record.metadata.resource_version {
            Some(_) => self.records.replace(&self.name, &params, &record).await?,
            None => self.records.create(&params, &record).await?,
        };
        let term = u64::try_from(transitions(&record)).unwrap_or_default().max(1);
        self.see(record);
        Ok(Attempted::Held { until: start + self.timing.renew_deadline, term })
    }

    /// The duration as the record has it.
    fn seconds(&self) -> i32 {
        let duration = self.timing.duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("lease", &self.shown())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Whether the record was found.
#[derive(Clone, Copy)]
enum Presence {
    There,
    Gone,
}

fn holder(record: &Record) -> Option<&str> {
    let holder = record.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.filter(|holder| !holder.is_empty())
}

fn transitions(record: &Record) -> i32 {
    record.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default()
}

/// Whether the record is another one than was written over, or is gone, or there already.
fn is_outdated(error: &kube::Error) -> bool {
    use crate::answer::Trouble;
    matches!(Trouble::of(error), Trouble::Changed { .. })
}
