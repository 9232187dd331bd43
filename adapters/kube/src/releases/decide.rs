//! What is to be done about a Release: every choice, from what the cluster and the log say of it.

use decklog_projections::inventory::{Deletion, Incarnation};
use kube::api::ObjectMeta;

/// The finalizer that holds a Release until its inventory is gone.
pub(crate) const FINALIZER: &str = "decklog.dev/inventory";

/// A Release, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Value of the shard label.
    pub(crate) shard: Option<String>,
    pub(crate) life: Life,
    pub(crate) finalizers: Vec<String>,
}

/// Whether somebody has deleted a Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Live,
    /// It goes when its last finalizer does.
    Ending,
}

/// The next thing to be done about a Release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, before something changes.
    Rest,
    /// Tell the log that it is there, with its shard.
    Track,
    /// Put our finalizer on.
    Hold,
    /// Tell the log that its deletion has begun.
    Announce,
    /// Take our finalizer off.
    LetGo,
}

/// Decides, for the projector of a shard, or of all shards.
///
/// Who may act is the projector of the shard that the log says, for that one applies: it keeps a Release until the
/// projector of the new shard says that it has it. Only what the log does not have goes by the label.
pub(crate) fn decide(seen: &Seen, known: &Incarnation, shard: Option<&str>) -> Step {
    let is_ours = |of: Option<&str>| shard.is_none() || of == shard;
    let is_labelled = is_ours(seen.shard.as_deref());
    match known {
        Incarnation::New if is_labelled => Step::Track,
        // One that was never held is nobody's business when it ends: it may be the deleted one itself, under a uid that
        // its events did not name, and would be there again.
        Incarnation::AfterDeleted if is_labelled && (seen.life == Life::Live || seen.is_held()) => Step::Track,
        Incarnation::Live { shard: told, .. } if is_labelled && *told != seen.shard => Step::Track,
        Incarnation::Live { shard: told, deletion, .. } if is_ours(told.as_deref()) => match (seen.life, deletion) {
            (Life::Ending, Deletion::NotBegun) => Step::Announce,
            (Life::Live, _) if !seen.is_held() => Step::Hold,
            (Life::Ending, Deletion::Begun) | (Life::Live, _) => Step::Rest,
        },
        Incarnation::Over { shard: told }
            if seen.life == Life::Ending && seen.is_held() && (is_labelled || is_ours(told.as_deref())) =>
        {
            Step::LetGo
        }
        _ => Step::Rest,
    }
}

// === impl Seen ===

impl Seen {
    /// Reads what the API server says; none of what it leaves without uid or version.
    pub(crate) fn of(metadata: &ObjectMeta, shard_label: &str) -> Option<Self> {
        let labels = metadata.labels.as_ref();
        Some(Self {
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
            shard: labels.and_then(|labels| labels.get(shard_label)).cloned(),
            life: if metadata.deletion_timestamp.is_some() { Life::Ending } else { Life::Live },
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
        })
    }

    /// Whether our finalizer is on it.
    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    /// Its finalizers with ours.
    pub(crate) fn held(&self) -> Vec<String> {
        [&self.finalizers[..], &[FINALIZER.to_owned()]].concat()
    }

    /// Its finalizers without ours.
    pub(crate) fn let_go(&self) -> Vec<String> {
        self.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(shard: Option<&str>, life: Life, finalizers: &[&str]) -> Seen {
        Seen {
            uid: "u1".to_owned(),
            resource_version: "7".to_owned(),
            shard: shard.map(str::to_owned),
            life,
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
        }
    }

    fn live(shard: Option<&str>, deletion: Deletion) -> Incarnation {
        Incarnation::Live { shard: shard.map(str::to_owned), deletion, tracked: None }
    }

    fn over(shard: Option<&str>) -> Incarnation {
        Incarnation::Over { shard: shard.map(str::to_owned) }
    }

    /// What projectors decide: the one of all shards, that of a, and that of b.
    #[track_caller]
    fn check(seen: &Seen, known: &Incarnation, expected: [Step; 3]) {
        assert_eq!([None, Some("a"), Some("b")].map(|shard| decide(seen, known, shard)), expected);
    }

    #[test]
    fn the_projector_of_the_label_tracks() {
        use Step::{Rest, Track};
        let bare = seen(None, Life::Live, &[]);
        let of_a = seen(Some("a"), Life::Live, &[]);
        for known in [Incarnation::New, Incarnation::AfterDeleted] {
            check(&bare, &known, [Track, Rest, Rest]);
            check(&of_a, &known, [Track, Track, Rest]);
        }
        let moved = seen(Some("b"), Life::Live, &[FINALIZER]);
        check(&moved, &live(Some("a"), Deletion::NotBegun), [Track, Rest, Track]);
        check(&moved, &live(None, Deletion::NotBegun), [Track, Rest, Track]);
        // Nobody is there to take it: who has it keeps it.
        let unlabelled = seen(None, Life::Live, &[FINALIZER]);
        check(&unlabelled, &live(Some("a"), Deletion::NotBegun), [Track, Rest, Rest]);
    }

    #[test]
    fn the_projector_of_the_log_holds_and_announces() {
        use Step::{Announce, Hold, Rest, Track};
        let known = live(Some("a"), Deletion::NotBegun);
        check(&seen(Some("a"), Life::Live, &["other"]), &known, [Hold, Hold, Rest]);
        check(&seen(Some("a"), Life::Live, &["other", FINALIZER]), &known, [Rest; 3]);
        check(&seen(Some("a"), Life::Ending, &[FINALIZER]), &known, [Announce, Announce, Rest]);
        check(&seen(Some("a"), Life::Ending, &["other"]), &known, [Announce, Announce, Rest]);
        check(&seen(Some("a"), Life::Ending, &["other"]), &live(Some("a"), Deletion::Begun), [Rest; 3]);
        check(&seen(None, Life::Ending, &[FINALIZER]), &known, [Track, Announce, Rest]);
    }

    #[test]
    fn what_is_over_is_let_go_by_who_had_it_or_has_the_label() {
        use Step::{LetGo, Rest};
        let ending = seen(Some("b"), Life::Ending, &["other", FINALIZER]);
        check(&ending, &Incarnation::Deleted, [Rest; 3]);
        check(&ending, &over(Some("a")), [LetGo; 3]);
        check(&seen(None, Life::Ending, &[FINALIZER]), &over(Some("a")), [LetGo, LetGo, Rest]);
        check(&seen(Some("b"), Life::Ending, &[FINALIZER]), &over(None), [LetGo, Rest, LetGo]);
        check(&seen(Some("a"), Life::Ending, &["other"]), &over(Some("a")), [Rest; 3]);
        check(&seen(Some("a"), Life::Live, &[FINALIZER]), &over(Some("a")), [Rest; 3]);
        assert_eq!(ending.let_go(), ["other"]);
    }

    #[test]
    fn a_stranger_on_its_way_out_does_not_open_a_deleted_name() {
        let stranger = seen(None, Life::Ending, &["other"]);
        assert_eq!(decide(&stranger, &Incarnation::AfterDeleted, None), Step::Rest);
        assert_eq!(decide(&stranger, &Incarnation::New, None), Step::Track);
        let held = seen(None, Life::Ending, &[FINALIZER]);
        assert_eq!(decide(&held, &Incarnation::AfterDeleted, None), Step::Track);
    }
}
