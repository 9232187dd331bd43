//! What became of an event: folded, ignored for a named reason, or set aside because it is none.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the fold did with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It took part in the state.
    Folded,
    /// It did not, for this reason.
    Ignored(Reason),
}

/// Why an event was ignored. The checks come in this order, and the first that holds is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A type or a major version that this build does not know.
    Unsupported,
    /// A required field is missing, or a value is not of its type.
    Invalid,
    /// The writer said it before.
    Duplicate,
    /// The writer's lease term is over.
    StaleTerm,
    /// It is about another incarnation of the release.
    StaleIncarnation,
    /// The inventory has no such item.
    UnknownItem,
    /// It is about another object under the same name.
    StaleUid,
    /// It is about another render than the current one.
    StaleRender,
    /// The inventory has no such hook.
    UnknownHook,
    /// The hook has ended before.
    HookAlreadyFinished,
}

/// An event of a known type that breaks the rules of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {problem}")]
pub struct Invalid {
    /// Where, as a JSON pointer into the event.
    pub pointer: String,
    /// What is wrong there, and what would be right; at most 513 characters.
    pub problem: String,
}

/// Why an event can only be ignored, whatever the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A type or a major version that this build does not know.
    #[error("/type: {0:?} is not a type that this version of decklog knows")]
    Unsupported(String),
    /// The event breaks the rules of its type.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

// === impl Reason ===

impl Reason {
    /// The reason as timelines spell it, such as `stale-term`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Duplicate => "duplicate",
            Self::StaleTerm => "stale-term",
            Self::StaleIncarnation => "stale-incarnation",
            Self::UnknownItem => "unknown-item",
            Self::StaleUid => "stale-uid",
            Self::StaleRender => "stale-render",
            Self::UnknownHook => "unknown-hook",
            Self::HookAlreadyFinished => "hook-already-finished",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Outcome ===

impl Outcome {
    /// `folded` or `ignored`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Ignored(_) => "ignored",
        }
    }

    /// Why it was ignored; none if it was folded.
    #[must_use]
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Folded => None,
            Self::Ignored(reason) => Some(reason),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The reason that the fold would give.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unsupported(_) => Reason::Unsupported,
            Self::Invalid(_) => Reason::Invalid,
        }
    }
}

/// A problem quotes what stands in the event, and that may be a megabyte of one word.
const MAX_PROBLEM_CHARS: usize = 512;

impl Invalid {
    pub(crate) fn new(pointer: impl Into<String>, problem: impl Into<String>) -> Self {
        let mut problem = problem.into();
        if let Some((end, _)) = problem.char_indices().nth(MAX_PROBLEM_CHARS) {
            problem.truncate(end);
            problem.push('…');
        }
        Self { pointer: pointer.into(), problem }
    }
}
