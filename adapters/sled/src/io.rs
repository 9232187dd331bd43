//! The one way to sled and to the file system: a panic of sled ends here, and a test can make any call fail.

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Makes one call of a log or a checkpoint store fail, for tests of what happens then.
///
/// Every call to sled and to a file counts, in the order in which they are made. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Faults(Option<Arc<Countdown>>);

/// On which side of its effect a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing has happened.
    Before,
    /// It has happened, and the caller is told that it has not.
    After,
}

#[derive(Debug)]
struct Countdown {
    /// Calls until one fails; 0 if none does.
    left: AtomicU64,
    moment: Moment,
    struck: AtomicBool,
}

/// Makes the calls, of which one may be set to fail.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    faults: Faults,
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}")]
pub(crate) struct IoError {
    attempt: &'static str,
    #[source]
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    File(#[from] std::io::Error),
    #[error("{}", of_sled(.0))]
    Sled(#[from] sled::Error),
    #[error("sled panicked: {0}")]
    Panic(String),
    #[error("a test made this call fail")]
    Injected,
}

// === impl Faults ===

impl Faults {
    /// No call fails.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// No call fails until [`Faults::start`].
    #[must_use]
    pub fn idle(moment: Moment) -> Self {
        Self(Some(Arc::new(Countdown { left: AtomicU64::new(0), moment, struck: AtomicBool::new(false) })))
    }

    /// The `call`-th call from here on fails, counted from 1.
    #[must_use]
    pub fn at(call: u64, moment: Moment) -> Self {
        let faults = Self::idle(moment);
        faults.start(call);
        faults
    }

    /// Lets the `call`-th call from here on fail.
    pub fn start(&self, call: u64) {
        if let Some(countdown) = &self.0 {
            countdown.left.store(call, Ordering::SeqCst);
        }
    }

    /// Whether a call has failed: a run in which none did has seen them all.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.0.as_ref().is_some_and(|countdown| countdown.struck.load(Ordering::SeqCst))
    }

    fn strikes(&self) -> Option<Moment> {
        let Countdown { left, moment, struck } = &**self.0.as_ref()?;
        let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left != Ok(1) {
            return None;
        }
        struck.store(true, Ordering::SeqCst);
        Some(*moment)
    }
}

// === impl Io ===

impl Io {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults }
    }

    /// Makes a call.
    pub(crate) fn call<T, E: Into<Problem>>(
        &self,
        attempt: &'static str,
        effect: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, IoError> {
        let failed = |problem| IoError { attempt, problem };
        let strikes = self.faults.strikes();
        if strikes == Some(Moment::Before) {
            return Err(failed(Problem::Injected));
        }
        // What the closure shares with us is sled, which is dropped after a panic, and files.
        let done = match catch_unwind(AssertUnwindSafe(effect)) {
            Ok(outcome) => outcome.map_err(|problem| failed(problem.into()))?,
            Err(panic) => return Err(failed(Problem::Panic(words(&*panic)))),
        };
        if strikes == Some(Moment::After) { Err(failed(Problem::Injected)) } else { Ok(done) }
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}

fn of_sled(error: &sled::Error) -> String {
    match error {
        sled::Error::Corruption { .. } => "sled finds its files damaged".to_owned(),
        sled::Error::Io(error) => error.to_string(),
        other => format!("sled says: {other}"),
    }
}

// === impl IoError ===

impl IoError {
    /// Whether this says that what is stored cannot be read any more, however often one tries.
    pub(crate) fn is_damage(&self) -> bool {
        match &self.problem {
            Problem::Panic(_) => true,
            Problem::File(error) | Problem::Sled(sled::Error::Io(error)) => {
                // A file that is shorter than sled remembers, or a value's own file that is gone.
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::NotFound)
            }
            Problem::Sled(_) => true,
            Problem::Injected => false,
        }
    }

    /// Whether sled found its files locked.
    pub(crate) fn is_locked(&self) -> bool {
        // sled 0.34.7 has no variant for it: src/config.rs, try_lock.
        let Problem::Sled(sled::Error::Io(error)) = &self.problem else { return false };
        error.kind() == ErrorKind::Other && error.to_string().starts_with("could not acquire lock")
    }

    /// The error and its cause in one line, for where it becomes part of a sentence.
    pub(crate) fn words(&self) -> String {
        format!("{self}: {}", self.problem)
    }
}
