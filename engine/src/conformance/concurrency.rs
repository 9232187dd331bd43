//! Rules 1, 6, 9 and 10 with many at work on one log.

use std::sync::Arc;
use std::time::Duration;

use decklog_schemas::{Record, Sequence};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::LogFixture;
use super::drafts::{Drafts, append_one, assert_same, end, read_all, sequences, store, stored};
use crate::log::{Appended, ExpectedTail, Log, NewEvent, Scope, Wait};

/// The appenders' own tests, one each, so that their ids differ.
const APPENDERS: [&str; 6] = ["appender-1", "appender-2", "appender-3", "appender-4", "appender-5", "appender-6"];

pub(super) async fn rule_1_concurrent_appenders_share_the_numbers(mut fixture: impl LogFixture) {
    let log = Arc::new(fixture.open().await);
    let first = end(&*log).await;
    let mut tasks = JoinSet::new();
    for name in APPENDERS {
        tasks.spawn(append_in_rounds(Arc::clone(&log), name, 40));
    }
    let mut written: Vec<(Sequence, NewEvent)> = tasks.join_all().await.into_iter().flatten().collect();
    written.sort_by_key(|(place, _)| *place);
    let (places, events): (Vec<_>, Vec<_>) = written.into_iter().unzip();
    let numbers: Vec<_> = places.iter().map(|place| place.get()).collect();
    let expected: Vec<_> = (first.get()..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "every number was given to one event");
    assert_same(&read_all(&*log, first, &Scope::All).await, &events, &places);
}

pub(super) async fn rule_6_one_of_many_wins(mut fixture: impl LogFixture) {
    let log = Arc::new(fixture.open().await);
    let release = Drafts::of("race").release("a");
    let mut expected = ExpectedTail::Empty;
    for _ in 0..10 {
        let mut tasks = JoinSet::new();
        for (number, name) in APPENDERS.into_iter().enumerate() {
            let (log, draft) = (Arc::clone(&log), Drafts::of(name).about(&release));
            let id = format!("{}-{number}-{expected:?}", draft.id);
            tasks.spawn(async move { append_one(&*log, NewEvent { id, expected, ..draft }).await });
        }
        let answers = tasks.join_all().await;
        let winners: Vec<_> = answers.iter().filter(|answer| matches!(answer, Appended::Stored { .. })).collect();
        let [winner] = winners[..] else { panic!("one of them wins, not {answers:?}") };
        let tail = Some(stored(winner));
        let losers = answers.iter().filter(|answer| **answer == Appended::Conflict { tail }).count();
        assert_eq!(losers, APPENDERS.len() - 1, "the others are told the new tail: {answers:?}");
        expected = ExpectedTail::At(stored(winner));
    }
}

pub(super) async fn rule_9_a_tailing_reader_misses_nothing(mut fixture: impl LogFixture) {
    let log = Arc::new(fixture.open().await);
    let first = end(&*log).await;
    let rounds = 40;
    let total: usize = APPENDERS.len() * (1..=rounds).sum::<usize>();
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        readers.spawn(tail(Arc::clone(&log), first, Scope::All, total));
    }
    let mut appenders = JoinSet::new();
    for name in APPENDERS {
        appenders.spawn(append_in_rounds(Arc::clone(&log), name, rounds));
    }
    let mut written: Vec<_> = appenders.join_all().await.into_iter().flatten().collect();
    written.sort_by_key(|(place, _)| *place);
    let (places, events): (Vec<_>, Vec<_>) = written.into_iter().unzip();
    for records in readers.join_all().await {
        assert_same(&records, &events, &places);
    }
}

pub(super) async fn rule_9_a_scope_is_read_while_the_log_grows(mut fixture: impl LogFixture) {
    let log = Arc::new(fixture.open().await);
    let first = end(&*log).await;
    let (calls, each, releases) = (25, 800, 8);
    let own = calls * each / releases;
    let drafts = Drafts::of("growing");
    let mut readers = JoinSet::new();
    for number in [0, 5] {
        let scope = Scope::Release(drafts.release(&format!("release-{number}")));
        readers.spawn(tail(Arc::clone(&log), first, scope, own));
    }
    let mut drafts = drafts;
    let mut places = Vec::new();
    for _ in 0..calls {
        places.extend(store(&*log, drafts.many(each, releases)).await);
    }
    let mut seen = readers.join_all().await;
    seen.sort_by_key(|records| records.first().map(|record| record.sequence));
    for (records, number) in seen.iter().zip([0, 5]) {
        let expected: Vec<_> = places.iter().copied().skip(number).step_by(releases).collect();
        assert_eq!(sequences(records), expected);
    }
}

pub(super) async fn rule_10_every_waiting_reader_is_woken(mut fixture: impl LogFixture) {
    let log = Arc::new(fixture.open().await);
    let first = end(&*log).await;
    let mut drafts = Drafts::of("woken");
    let release = drafts.release("a");
    let mut readers = JoinSet::new();
    for number in 0..20 {
        let scope = if number % 2 == 0 { Scope::All } else { Scope::Release(release.clone()) };
        readers.spawn(tail(Arc::clone(&log), first, scope, 1));
    }
    sleep(Duration::from_millis(20)).await;
    let place = stored(&append_one(&*log, drafts.about(&release)).await);
    for records in readers.join_all().await {
        assert_eq!(sequences(&records), [place]);
    }
}

/// Appends a call of one event, then one of two, and so on; returns the events with their places.
async fn append_in_rounds<L: Log>(log: Arc<L>, name: &'static str, rounds: usize) -> Vec<(Sequence, NewEvent)> {
    let mut drafts = Drafts::of(name);
    let mut written = Vec::new();
    for count in 1..=rounds {
        let events = drafts.many(count, 3);
        let places = store(&*log, events.clone()).await;
        written.extend(places.into_iter().zip(events));
    }
    written
}

/// Reads on, waiting for more, until it has so many records.
async fn tail<L: Log>(log: Arc<L>, first: Sequence, scope: Scope, count: usize) -> Vec<Record<'static>> {
    let (mut next, mut records) = (first, Vec::new());
    while records.len() < count {
        let batch = log.read(next, &scope, Wait::ForMore).await.expect("the log can be read");
        assert!(!batch.records.is_empty() && batch.next > next, "a read that waits returns a record and goes on");
        records.extend(batch.records.iter().map(Record::into_static));
        next = batch.next;
    }
    records
}
