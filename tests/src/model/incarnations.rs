//! Which incarnations of the release there were before an event, and which events belong to the live one.

use super::{History, contradict, reading::uid};

/// One life of the release, from the event that opened it.
struct Incarnation<'a> {
    first: usize,
    uid: Option<&'a str>,
    life: Life,
}

#[derive(PartialEq)]
enum Life {
    Live,
    Over,
}

impl History {
    /// Whether event `n` is about an incarnation that is gone, or is not the live one.
    pub(super) fn is_of_a_stale_incarnation(&self, n: usize) -> bool {
        let known = self.incarnations_before(n);
        let own = uid(self.event(n), "releaseuid");
        let is_gone = |past: &Incarnation<'_>| past.life == Life::Over && past.uid == own;
        if own.is_some() && known.iter().any(is_gone) {
            return true;
        }
        match known.last() {
            None => false,
            Some(last) if last.life == Life::Over => own.is_none(),
            Some(live) => self.name(n) != "ReleaseTracked" && contradict(live.uid, own),
        }
    }

    /// The events before `n` that belong to the incarnation that is live before `n`.
    pub(super) fn find_the_live_one(&self, n: usize) -> Vec<usize> {
        match self.incarnations_before(n).last() {
            Some(last) if last.life == Life::Live => {
                (last.first..n).filter(|&i| self.belongs_to_an_incarnation(i)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The folded ones among them.
    pub(super) fn folded(&self, n: usize) -> impl DoubleEndedIterator<Item = usize> {
        let of_the_live_one = self.of_the_live_one[n].iter().copied();
        of_the_live_one.filter(|&i| self.outcomes[i].is_none())
    }

    /// Every incarnation that the events before `n` opened, oldest first.
    fn incarnations_before(&self, n: usize) -> Vec<Incarnation<'_>> {
        let mut known: Vec<Incarnation<'_>> = Vec::new();
        for i in (0..n).filter(|&i| self.belongs_to_an_incarnation(i)) {
            let own = uid(self.event(i), "releaseuid");
            match known.last_mut() {
                Some(live) if live.life == Life::Live && !contradict(live.uid, own) => {
                    live.uid = live.uid.or(own);
                }
                ended => {
                    if let Some(ended) = ended {
                        ended.life = Life::Over;
                    }
                    known.push(Incarnation { first: i, uid: own, life: Life::Live });
                }
            }
            if let Some(last) = known.last_mut().filter(|_| self.name(i) == "ReleaseDeleted") {
                last.life = Life::Over;
            }
        }
        known
    }
}
