//! Rules 9 to 12: what reading returns.

use std::pin::pin;
use std::time::Duration;

use decklog_schemas::Sequence;
use tokio::time::timeout;

use super::LogFixture;
use super::drafts::{
    Drafts, append_one, assert_same, behind, deployment, end, identity, read, read_all, sequences, store,
    store_in_calls, stored, subject,
};
use crate::log::{Log, READ_BYTES, READ_RECORDS, Scope, Wait};

/// Time enough for a read that must not return to return.
const A_WHILE: Duration = Duration::from_millis(30);

/// As many records as roll over whatever a log is divided into.
const MANY: usize = 20_000;

pub(super) async fn rule_9_reading_on_returns_everything_once(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let events = Drafts::of("everything").many(MANY, 50);
    let places = store_in_calls(&log, events.clone()).await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
    drop(log);
    let log = fixture.open().await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
}

pub(super) async fn rule_9_a_batch_is_bounded(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("bounds");
    let release = drafts.release("a");
    store_in_calls(&log, drafts.many(READ_RECORDS + 100, 3)).await;
    let largest = 200_000;
    for _ in 0..3 {
        let mut large = vec![drafts.about(&release); 10];
        for (event, number) in large.iter_mut().zip(0..) {
            event.id = format!("{}-{number}", event.id);
            event.bytes = vec![b'{'; largest];
        }
        store(&log, large).await;
    }
    for scope in [Scope::All, Scope::Release(release)] {
        let mut next = Sequence::FIRST;
        loop {
            let batch = read(&log, next, &scope).await;
            assert!(batch.records.len() <= READ_RECORDS, "{} records at once", batch.records.len());
            let most = READ_BYTES + largest + 1_024;
            assert!(batch.records.size() <= most, "{} bytes at once", batch.records.size());
            next = batch.next;
            if Some(next) > batch.tail {
                break;
            }
        }
    }
}

pub(super) async fn rule_9_a_scope_has_its_own_records_and_no_others(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("scope");
    let releases = ["app", "app2", "app.2", "ap"].map(|name| drafts.release(name));
    let mut own = vec![(Vec::new(), Vec::new()); releases.len()];
    for round in 0..100 {
        for (release, (events, _)) in releases.iter().zip(&mut own) {
            let domain = if round % 2 == 0 { "release.SyncStarted" } else { "hook-status.HookRunning" };
            events.push(drafts.under(subject(release, domain)));
        }
        let round: Vec<_> = own.iter().filter_map(|(events, _)| events.last().cloned()).collect();
        for (place, (_, places)) in store(&log, round).await.into_iter().zip(&mut own) {
            places.push(place);
        }
    }
    for (release, (events, places)) in releases.into_iter().zip(&own) {
        let records = read_all(&log, Sequence::FIRST, &Scope::Release(release)).await;
        assert_same(&records, events, places);
    }
    let unknown = Scope::Release(drafts.release("nobody"));
    let batch = read(&log, Sequence::FIRST, &unknown).await;
    assert!(batch.records.is_empty() && Some(batch.next) > batch.tail, "a release without records is read to the end");
}

pub(super) async fn rule_9_a_scope_is_read_from_any_place(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("anywhere");
    // One release in every seventh place, over all that the log is divided into.
    let events = drafts.many(MANY, 7);
    let places = store_in_calls(&log, events).await;
    let scope = Scope::Release(drafts.release("release-3"));
    let own: Vec<_> = places.iter().copied().skip(3).step_by(7).collect();
    let tail = places.last().copied();
    for from in places.iter().copied().step_by(1_501).chain(tail).chain(own.last().copied()) {
        let expected: Vec<_> = own.iter().copied().filter(|place| *place >= from).collect();
        let records = read_all(&log, from, &scope).await;
        assert_eq!(sequences(&records), expected, "from {from} on");
    }
}

pub(super) async fn rule_9_deployments_are_of_no_release(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("deployments");
    let release = drafts.release("app");
    let events = vec![drafts.about(&release), drafts.under(deployment("eu", "team", "app")), drafts.about(&release)];
    let places = store(&log, events.clone()).await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
    let own = read_all(&log, Sequence::FIRST, &Scope::Release(release)).await;
    assert_eq!(sequences(&own), [places[0], places[2]]);
}

pub(super) async fn rule_10_at_the_tail_there_is_nothing(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let batch = read(&log, Sequence::FIRST, &Scope::All).await;
    assert_eq!((batch.tail, batch.next, batch.records.len()), (None, Sequence::FIRST, 0), "an empty log");
    let mut drafts = Drafts::of("tail");
    let places = store(&log, drafts.many(3, 1)).await;
    let tail = places[2];
    for from in [tail.next(), behind(tail, 50)] {
        let batch = read(&log, from, &Scope::All).await;
        assert!(batch.records.is_empty(), "there is a record from {from} on");
        assert_eq!((batch.tail, batch.next), (Some(tail), from));
    }
}

pub(super) async fn rule_10_a_reader_may_wait_for_more(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("waiting");
    let mut next = end(&log).await;
    for _ in 0..3 {
        let mut waiting = pin!(log.read(next, &Scope::All, Wait::ForMore));
        let early = timeout(A_WHILE, &mut waiting).await;
        assert!(early.is_err(), "a read returned, and there is nothing: {early:?}");
        let place = stored(&append_one(&log, drafts.about(&drafts.release("a"))).await);
        let batch = waiting.await.expect("the log can be read");
        assert_eq!(batch.records.last_sequence(), Some(place));
        next = batch.next;
    }
    // With something there, it does not wait.
    let batch = log.read(Sequence::FIRST, &Scope::All, Wait::ForMore).await.expect("the log can be read");
    assert_eq!(batch.records.len(), 3);
}

pub(super) async fn rule_10_a_scope_waits_for_its_own(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("patience");
    let (own, other) = (drafts.release("own"), drafts.release("other"));
    stored(&append_one(&log, drafts.about(&own)).await);
    let next = end(&log).await;
    let scope = Scope::Release(own.clone());
    let mut waiting = pin!(log.read(next, &scope, Wait::ForMore));
    for _ in 0..3 {
        let early = timeout(A_WHILE, &mut waiting).await;
        assert!(early.is_err(), "a read returned without a record of its release: {early:?}");
        stored(&append_one(&log, drafts.about(&other)).await);
    }
    let event = drafts.about(&own);
    let place = stored(&append_one(&log, event.clone()).await);
    let batch = waiting.await.expect("the log can be read");
    let records: Vec<_> = batch.records.iter().map(decklog_schemas::Record::into_static).collect();
    assert_same(&records, &[event], &[place]);
}

pub(super) async fn rule_10_a_waiting_read_may_be_dropped(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("dropped");
    let first = end(&log).await;
    let mut places = Vec::new();
    for round in 0..60 {
        let from = if round % 2 == 0 { Sequence::after(places.last().copied()) } else { first };
        let given_up = timeout(Duration::from_micros(50 * round), log.read(from, &Scope::All, Wait::ForMore));
        let appended = append_one(&log, drafts.about(&drafts.release("a")));
        // Both at once: the read is given up before, while or after the record comes.
        let (_, answer) = tokio::join!(given_up, appended);
        places.push(stored(&answer));
    }
    assert_eq!(sequences(&read_all(&log, first, &Scope::All).await), places);
}

pub(super) async fn rule_11_nothing_is_passed_over(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("gapless");
    let places = store_in_calls(&log, drafts.many(MANY, 30)).await;
    let tail = places.last().copied();
    for from in places.iter().copied().step_by(613).chain(tail) {
        let batch = read(&log, from, &Scope::All).await;
        let records: Vec<_> = batch.records.iter().map(|record| record.sequence.get()).collect();
        let expected: Vec<_> = (from.get()..batch.next.get()).collect();
        assert_eq!(records, expected, "a batch is every record from {from} to before {}", batch.next);
    }
}

pub(super) async fn rule_12_a_log_keeps_its_identity(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("identity");
    let id = identity(&log).await;
    assert!(!id.name.is_empty() && !id.incarnation.is_empty(), "{id:?} names nothing");
    store(&log, drafts.many(2, 1)).await;
    let scope = Scope::Release(drafts.release("release-0"));
    assert_eq!(read(&log, Sequence::FIRST, &scope).await.log, id);
    drop(log);
    let log = fixture.open().await;
    assert_eq!(identity(&log).await, id);
}

pub(super) async fn rule_12_two_logs_are_never_one(mut fixture: impl LogFixture, mut other: impl LogFixture) {
    let (log, other) = (fixture.open().await, other.open().await);
    assert_ne!(identity(&log).await, identity(&other).await);
}
