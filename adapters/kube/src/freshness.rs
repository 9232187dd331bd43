//! Which of two sightings of an object is the newer one. Their versions are numbers that grow, and begin anew, lower, with
//! a store that was put back to a backup: every watch then begins with a list, which counts more than what was known.

/// When something was seen: at which version, and how many lists had begun by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    resource_version: String,
    lists: u64,
}

/// How far a watch is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many lists have begun.
    lists: u64,
    /// The newest version that the last list has shown, or the watch after it.
    newest: Option<u64>,
}

impl Progress {
    /// A list of all objects begins.
    pub(crate) fn begin_list(&mut self) {
        self.lists += 1;
        self.newest = None;
    }

    /// The watch has shown something of a version: what was changed earlier it has shown before, or shows in the same list.
    pub(crate) fn reach(&mut self, resource_version: &str) {
        self.newest = self.newest.max(number(resource_version));
    }

    /// Something is seen now.
    pub(crate) fn sighting(&self, resource_version: &str) -> Sighting {
        Sighting { resource_version: resource_version.to_owned(), lists: self.lists }
    }

    /// Notes that something is seen again. Returns whether it is news.
    pub(crate) fn renew(&self, known: &mut Sighting, resource_version: &str) -> bool {
        let is_from_before = std::mem::replace(&mut known.lists, self.lists) < self.lists;
        if known.resource_version == resource_version || !is_from_before && known.is_after(resource_version) {
            return false;
        }
        known.resource_version = resource_version.to_owned();
        true
    }

    /// Whether the list has shown everything but this.
    pub(crate) fn has_missed(&self, known: &Sighting) -> bool {
        known.lists < self.lists
    }

    /// Whether the watch was there already. What is not known now, and was there at such a version, has gone since,
    /// however late an answer says that it is there.
    pub(crate) fn has_passed(&self, resource_version: &str) -> bool {
        number(resource_version).is_some_and(|version| self.newest >= Some(version))
    }
}

impl Sighting {
    /// Whether it is newer than another one of the same list. Of what is no number nothing is known.
    pub(crate) fn is_after(&self, resource_version: &str) -> bool {
        match (number(&self.resource_version), number(resource_version)) {
            (Some(known), Some(other)) => known > other,
            _ => false,
        }
    }
}

fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_one_is_news() {
        let progress = Progress::default();
        let mut known = progress.sighting("9");
        assert!(!progress.renew(&mut known, "9") && !progress.renew(&mut known, "8"));
        assert!(progress.renew(&mut known, "10") && known == progress.sighting("10"));
        assert!(progress.renew(&mut known, "?") && progress.renew(&mut known, "7"), "of what is no number, the last");
    }

    #[test]
    fn a_list_counts_more_than_what_was_before_it() {
        let mut progress = Progress::default();
        let mut known = progress.sighting("90");
        progress.begin_list();
        assert!(progress.has_missed(&known));
        assert!(progress.renew(&mut known, "40") && !progress.has_missed(&known));
        assert!(!progress.renew(&mut known, "39"));
        progress.begin_list();
        assert!(!progress.renew(&mut known, "40") && !progress.has_missed(&known), "the same, and still there");
    }

    #[test]
    fn what_the_watch_has_passed_is_old() {
        let mut progress = Progress::default();
        assert!(!progress.has_passed("7"));
        progress.reach("9");
        progress.reach("8");
        assert!(progress.has_passed("9") && !progress.has_passed("10") && !progress.has_passed("?"));
        progress.begin_list();
        assert!(!progress.has_passed("9"), "versions may have begun anew");
    }
}
