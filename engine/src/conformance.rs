//! The conformance suites: the rules of the log and of the checkpoint store as tests, for every implementation.
//!
//! Each test is named for the rule that it is about. A suite runs all of them and panics at the end with the names of
//! those that failed; each failure has printed its own panic by then. What the rules say of the death of a process and
//! of damage on a disk can only be tested where processes and disks are: beside the implementation.

mod appending;
mod checkpoints;
mod concurrency;
mod drafts;
mod reading;

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::checkpoint::CheckpointStore;
use crate::log::Log;

/// The data of one log, to be opened and dropped and opened again.
pub trait LogFixture: Send + 'static {
    /// The log that is tested.
    type Log: Log;

    /// Opens the log: a new and empty one at the first call, later the same one with what it has. The log of the call
    /// before is dropped by then.
    fn open(&mut self) -> impl Future<Output = Self::Log> + Send;
}

/// The data of one checkpoint store, to be opened again and again.
pub trait CheckpointFixture: Send + 'static {
    /// The store that is tested.
    type Store: CheckpointStore;

    /// Opens the store: a new and empty one at the first call, later the same one with what it has, after the store
    /// of the call before was dropped.
    fn open(&mut self) -> impl Future<Output = &mut Self::Store> + Send;
}

/// How long one test may take: a log that never answers fails, and the tests behind it run.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs every test of the log's rules, each on a fixture of its own.
///
/// # Panics
/// A rule is broken.
pub async fn log_suite<F: LogFixture>(make: impl Fn() -> F) {
    let mut suite = Suite::default();
    macro_rules! run {
        ($($module:ident :: $rule:ident),* $(,)?) => {
            $( suite.run(stringify!($rule), $module::$rule(make())).await; )*
        };
    }
    run![
        appending::rule_1_sequences_count_from_one,
        appending::rule_1_no_number_is_used_twice,
        appending::rule_2_the_events_of_a_call_keep_their_order,
        appending::rule_2_what_is_not_stored_takes_no_number,
        appending::rule_3_recorded_times_never_go_back,
        appending::rule_4_what_was_acknowledged_is_there_after_opening_again,
        appending::rule_5_an_id_is_found_again,
        appending::rule_5_an_id_is_found_again_in_its_own_call,
        appending::rule_5_an_id_is_found_again_after_opening_again,
        appending::rule_5_an_id_is_found_again_at_the_end_of_the_window,
        appending::rule_5_a_retry_is_never_a_conflict,
        appending::rule_6_the_tail_of_the_release_must_be_the_expected_one,
        appending::rule_6_the_tail_counts_what_is_before_it_in_the_call,
        appending::rule_6_the_tail_is_the_releases_and_no_one_elses,
        appending::rule_6_the_tail_is_known_after_opening_again,
        appending::rule_6_the_tail_is_known_however_much_follows,
        appending::rule_7_events_may_be_sent_again_as_a_whole,
        appending::rule_8_bytes_come_back_as_they_are,
        appending::rule_8_subjects_come_back_as_they_are,
        reading::rule_9_reading_on_returns_everything_once,
        reading::rule_9_a_batch_is_bounded,
        reading::rule_9_a_scope_has_its_own_records_and_no_others,
        reading::rule_9_a_scope_is_read_from_any_place,
        reading::rule_9_deployments_are_of_no_release,
        reading::rule_10_at_the_tail_there_is_nothing,
        reading::rule_10_a_reader_may_wait_for_more,
        reading::rule_10_a_scope_waits_for_its_own,
        reading::rule_10_a_waiting_read_may_be_dropped,
        reading::rule_11_nothing_is_passed_over,
        reading::rule_12_a_log_keeps_its_identity,
        concurrency::rule_1_concurrent_appenders_share_the_numbers,
        concurrency::rule_6_one_of_many_wins,
        concurrency::rule_9_a_tailing_reader_misses_nothing,
        concurrency::rule_9_a_scope_is_read_while_the_log_grows,
        concurrency::rule_10_every_waiting_reader_is_woken,
    ];
    suite.run("rule_12_two_logs_are_never_one", reading::rule_12_two_logs_are_never_one(make(), make())).await;
    suite.settle("log");
}

/// Runs every test of the checkpoint store's rules, each on a fixture of its own.
///
/// # Panics
/// A rule is broken.
pub async fn checkpoint_suite<F: CheckpointFixture>(make: impl Fn() -> F) {
    let mut suite = Suite::default();
    macro_rules! run {
        ($($rule:ident),* $(,)?) => {
            $( suite.run(stringify!($rule), checkpoints::$rule(make())).await; )*
        };
    }
    run![
        rule_1_a_checkpoint_is_of_one_save,
        rule_2_changes_leave_the_rest_as_it_is,
        rule_2_all_leaves_nothing_else,
        rule_2_the_last_change_of_a_key_counts,
        rule_3_a_new_store_is_empty,
        rule_3_what_was_saved_is_loaded,
        rule_3_entries_are_of_any_size,
        rule_3_keys_are_any_bytes_and_come_in_order,
        rule_3_many_saves_leave_the_last,
        rule_4_a_save_that_was_given_up_leaves_a_whole_checkpoint,
    ];
    suite.settle("checkpoint store");
}

#[derive(Default)]
struct Suite {
    failed: Vec<String>,
}

impl Suite {
    async fn run(&mut self, rule: &str, test: impl Future<Output = ()> + Send + 'static) {
        // A task of its own, so that a panic ends this test and no other.
        let mut task = JoinSet::new();
        task.spawn(timeout(LIMIT, test));
        match task.join_next().await {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(_))) => self.failed.push(format!("{rule} (no end after {LIMIT:?})")),
            Some(Err(_)) | None => self.failed.push(rule.to_owned()),
        }
    }

    fn settle(self, what: &str) {
        let Self { failed } = self;
        assert!(failed.is_empty(), "the {what} breaks its rules: {failed:#?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::MemoryCheckpoints;
    use crate::memory::MemoryLog;

    struct InMemory(MemoryLog);

    impl LogFixture for InMemory {
        type Log = MemoryLog;

        async fn open(&mut self) -> MemoryLog {
            self.0.clone()
        }
    }

    impl CheckpointFixture for MemoryCheckpoints {
        type Store = Self;

        async fn open(&mut self) -> &mut Self {
            self
        }
    }

    #[tokio::test]
    async fn the_memory_log_keeps_the_rules() {
        log_suite(|| InMemory(MemoryLog::new())).await;
    }

    #[tokio::test]
    async fn the_memory_checkpoints_keep_the_rules() {
        checkpoint_suite(MemoryCheckpoints::default).await;
    }

    #[tokio::test]
    #[should_panic(expected = "rule_0")]
    async fn a_broken_rule_is_named() {
        let mut suite = Suite::default();
        suite.run("rule_0", async { panic!("broken on purpose") }).await;
        suite.settle("log");
    }
}
