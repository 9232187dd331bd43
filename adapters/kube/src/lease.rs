//! Who may write to the cluster: one holder of a Kubernetes Lease at a time, as client-go elects its leaders.

mod election;
mod name;
mod term;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use crate::answer::Trouble;
use election::{Attempted, Election};
pub use name::{InvalidLeaseName, LeaseName};
pub(crate) use term::Term;

/// How much longer than its period a wait may be, as a factor: those who stand by do not all ask at once.
const JITTER: f64 = 1.2;

/// Takes part in the election until it is stopped. It needs the rights get, create and update on leases in the
/// namespace.
///
/// Time is measured by the monotonic clock of this machine, and clocks of two machines are never compared: a Lease has
/// run out when its record has not changed for its duration since we last saw it change. That clock stands still
/// while a machine sleeps; who may be put to sleep needs more than a Lease before a write, such as the
/// resourceVersion of what is written.
#[derive(Debug)]
pub struct Lease {
    election: Election,
    leadership: watch::Sender<Leadership>,
    /// What was last logged as wrong.
    complaint: Option<Trouble>,
}

/// Whether we are the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Somebody else is, or nobody.
    Standby {
        /// The identity of the holder, if there is one and it is known.
        holder: Option<String>,
    },
    /// We are, up to a moment: see [`may_write`](Self::may_write).
    Leading {
        /// When it ends unless the Lease is renewed before: so early that nobody else can hold it by then.
        until: Instant,
        /// Above 0, and higher for each new holder, as long as the Lease is not deleted while nobody runs. It is the
        /// record's `leaseTransitions`.
        term: u64,
    },
}

/// How one takes part; unique for each start of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

/// How often the Lease is renewed, and when it has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    duration: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// Times with which two could hold the Lease at once, or nobody for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease lasts {duration:?}, its renewal {renew_deadline:?} and a pause {retry:?}: the first is longer than the \
     second, and that is longer than {JITTER} times the third"
)]
pub struct InvalidTiming {
    /// How long others wait for the holder.
    pub duration: Duration,
    /// How long the holder tries to renew.
    pub renew_deadline: Duration,
    /// The pause between two tries.
    pub retry: Duration,
}

// === impl Leadership ===

impl Leadership {
    /// Whether a write that is sent at this moment is ours to send. Ask before each one: a process that was paused
    /// finds out here.
    #[must_use]
    pub fn may_write(&self, now: Instant) -> bool {
        matches!(self, Self::Leading { until, .. } if now < *until)
    }

    /// The term, if we lead at this moment.
    #[must_use]
    pub fn term(&self, now: Instant) -> Option<u64> {
        match self {
            Self::Leading { until, term } if now < *until => Some(*term),
            _ => None,
        }
    }
}

// === impl Identity ===

impl Identity {
    /// One for this start of a process, which begins with a name that people know, such as that of the Pod.
    #[must_use]
    pub fn unique(name: &str) -> Self {
        Self(format!("{name}_{}", Uuid::now_v7()))
    }

    /// As it stands in the record, `holderIdentity`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl Timing ===

impl Timing {
    /// What Kubernetes' own components use: 15 s, 10 s and 2 s.
    pub const OF_KUBERNETES: Self = Self {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    /// How long others wait for a holder that is silent (in the record in whole seconds, rounded up), how long a holder
    /// stays one without a renewal, and the pause between two tries.
    ///
    /// # Errors
    /// If the first is not longer than the second, or that not longer than 1.2 times the third.
    pub fn new(duration: Duration, renew_deadline: Duration, retry: Duration) -> Result<Self, InvalidTiming> {
        let is_safe = duration > renew_deadline && renew_deadline > retry.mul_f64(JITTER) && !retry.is_zero();
        let timing = Self { duration, renew_deadline, retry };
        if is_safe { Ok(timing) } else { Err(InvalidTiming { duration, renew_deadline, retry }) }
    }

    /// The pause before those who stand by look again.
    fn jittered(self) -> Duration {
        // Whoever makes a `RandomState` gets other keys.
        let random = RandomState::new().hash_one(()) >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let fraction = random as f64 / (1_u64 << 53) as f64;
        self.retry.mul_f64(fraction.mul_add(JITTER, 1.0))
    }

    /// How long one try may take: two of them fit into the time to renew.
    fn attempt_limit(self) -> Duration {
        self.renew_deadline / 2
    }
}

// === impl Lease ===

impl Lease {
    /// A part in the election of the holder of a Lease; nothing is asked before [`run`](Self::run). The client is
    /// [`Cluster::lease_client`](crate::Cluster::lease_client), which no rate holds back.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &LeaseName, identity: Identity, timing: Timing) -> Self {
        let (leadership, _) = watch::channel(Leadership::Standby { holder: None });
        Self { election: Election::new(client, namespace, name, identity, timing), leadership, complaint: None }
    }

    /// Whether we lead, now and later; it changes at each renewal.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Takes part until `stop` is there, and then gives the Lease back, so that somebody else has it with the next
    /// look, within 4.4 s. Whoever writes has stopped before.
    ///
    /// Nothing ends it but `stop`: what is wrong is logged once, and tried again. If it is dropped instead, the Lease
    /// runs out.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let pause = tokio::select! {
                biased;
                () = &mut stop => break,
                pause = self.step() => pause,
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.rest(pause) => {}
            }
        }
        self.release().await;
    }

    /// One try, and how long to rest after it.
    async fn step(&mut self) -> Duration {
        let timing = self.election.timing();
        let attempt = timeout(timing.attempt_limit(), self.election.attempt());
        let attempted = tokio::select! {
            attempted = attempt => attempted,
            () = expire(&self.leadership) => return Duration::ZERO,
        };
        match attempted {
            Ok(Ok(Attempted::Held { until, term })) => {
                self.is_well();
                self.show(Leadership::Leading { until, term });
                timing.retry
            }
            Ok(Ok(Attempted::HeldBy(holder))) => {
                self.is_well();
                self.show(Leadership::Standby { holder });
                timing.jittered()
            }
            Ok(Err(error)) => {
                self.complain(Trouble::of(&error));
                timing.retry
            }
            Err(_) => {
                let message = format!("no answer within {:?}", timing.attempt_limit());
                self.complain(Trouble::Unknown { message });
                timing.retry
            }
        }
    }

    async fn rest(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = expire(&self.leadership) => {}
        }
    }

    /// Stops leading here first, and then for the others.
    async fn release(mut self) {
        let last = self.leadership.send_replace(Leadership::Standby { holder: None });
        if matches!(last, Leadership::Leading { .. }) {
            tracing::info!(lease = %self.election.shown(), "Gives the Lease back");
        }
        let limit = self.election.timing().attempt_limit();
        match timeout(limit, self.election.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.complain(Trouble::of(&error)),
            Err(_) => self.complain(Trouble::Unknown { message: format!("no answer within {limit:?}") }),
        }
    }

    fn show(&self, next: Leadership) {
        let lease = self.election.shown();
        let last = self.leadership.send_replace(next.clone());
        match (last, next) {
            (Leadership::Standby { .. }, Leadership::Leading { term, .. }) => {
                tracing::info!(%lease, term, "Holds the Lease");
            }
            (Leadership::Leading { .. }, Leadership::Standby { holder }) => {
                tracing::warn!(%lease, holder, "Does not hold the Lease any more");
            }
            (Leadership::Standby { holder: last }, Leadership::Standby { holder }) if last != holder => {
                tracing::info!(%lease, holder, "Stands by");
            }
            _ => {}
        }
    }

    /// Says what is wrong, once, and what to do where somebody has to do something.
    fn complain(&mut self, trouble: Trouble) {
        let lease = self.election.shown();
        let is_new = self.complaint.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&trouble));
        let identity = self.election.identity();
        match &trouble {
            _ if !is_new => tracing::debug!(%lease, error = %trouble, "Cannot get the Lease"),
            Trouble::NamespaceMissing => {
                tracing::warn!(%lease, error = %trouble, "Cannot get the Lease: create its namespace");
            }
            Trouble::Forbidden { .. } => tracing::warn!(
                %lease, identity, error = %trouble,
                "Cannot get the Lease: allow get, create and update on leases of coordination.k8s.io in its namespace"
            ),
            _ => tracing::warn!(%lease, error = %trouble, "Cannot get the Lease, and tries again"),
        }
        self.complaint = Some(trouble);
    }

    fn is_well(&mut self) {
        if self.complaint.take().is_some() {
            tracing::info!(lease = %self.election.shown(), "Reaches the Lease again");
        }
    }
}

/// Waits until our time is over, and says so; for ever if we do not lead.
async fn expire(leadership: &watch::Sender<Leadership>) {
    let until = match &*leadership.borrow() {
        Leadership::Leading { until, .. } => Some(*until),
        Leadership::Standby { .. } => None,
    };
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
    leadership.send_replace(Leadership::Standby { holder: None });
    tracing::warn!("The Lease could not be renewed in time, and is not held any more");
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn times_with_which_two_could_hold_it_are_refused() {
        let usual = Timing::OF_KUBERNETES;
        assert_eq!(Timing::new(usual.duration, usual.renew_deadline, usual.retry), Ok(usual));
        for (duration, renew_deadline, retry) in [(10, 10, 1), (10, 11, 1), (15, 10, 9), (15, 10, 0)] {
            let timing = Timing::new(millis(duration), millis(renew_deadline), millis(retry));
            assert!(timing.is_err(), "{duration} {renew_deadline} {retry}");
        }
    }

    #[test]
    fn those_who_stand_by_do_not_look_at_once() {
        let pauses: Vec<_> = (0..100).map(|_| Timing::OF_KUBERNETES.jittered()).collect();
        assert!(pauses.iter().all(|pause| (millis(2000)..=millis(4400)).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause < millis(2600)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause > millis(3800)), "{pauses:?}");
    }

    #[test]
    fn nobody_writes_after_the_end() {
        let now = Instant::now();
        let leading = Leadership::Leading { until: now + millis(1), term: 7 };
        assert!(leading.may_write(now) && leading.term(now) == Some(7));
        assert!(!leading.may_write(now + millis(1)) && leading.term(now + millis(1)).is_none());
        assert!(!Leadership::Standby { holder: Some("somebody".to_owned()) }.may_write(now));
    }
}
