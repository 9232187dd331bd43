//! Rules 1 to 8: what is appended, and what is answered.

use std::time::Duration;

use decklog_schemas::{MAX_EVENT_BYTES, ReleaseKey, Sequence};
use tokio::time::sleep;

use super::LogFixture;
use super::drafts::{
    Drafts, append, append_one, assert_same, behind, deployment, end, read_all, store, store_in_calls, stored, subject,
};
use crate::log::{Appended, DEDUPE_WINDOW, ExpectedTail, NewEvent, Scope};

pub(super) async fn rule_1_sequences_count_from_one(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("counting");
    let mut places = store(&log, drafts.many(3, 2)).await;
    places.extend(store(&log, drafts.many(2, 1)).await);
    let numbers: Vec<_> = places.iter().map(|place| place.get()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

pub(super) async fn rule_1_no_number_is_used_twice(mut fixture: impl LogFixture) {
    let mut drafts = Drafts::of("numbers");
    let mut last = None;
    for _ in 0..5 {
        let log = fixture.open().await;
        let first = Sequence::after(last);
        let places = store(&log, drafts.many(3, 1)).await;
        assert_eq!(places, [first, behind(first, 1), behind(first, 2)]);
        last = places.last().copied();
    }
}

pub(super) async fn rule_2_the_events_of_a_call_keep_their_order(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let events = Drafts::of("order").many(500, 7);
    let places = store(&log, events.clone()).await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
}

pub(super) async fn rule_2_what_is_not_stored_takes_no_number(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("mixed");
    let release = drafts.release("a");
    let first = drafts.about(&release);
    let place = stored(&append_one(&log, first.clone()).await);

    let mut large = drafts.about(&release);
    large.bytes = vec![b'{'; MAX_EVENT_BYTES + 1];
    let mut late = drafts.about(&release);
    late.expected = ExpectedTail::Empty;
    let (before, after) = (drafts.about(&release), drafts.about(&release));
    let nothing = append(&log, Vec::new()).await;
    assert!(nothing.is_empty(), "no event, no answer");
    let answers = append(&log, vec![before, large, late, first, after]).await;
    let sequence = behind(place, 1);
    assert_eq!(answers[0], Appended::Stored { sequence });
    assert!(matches!(&answers[1], Appended::Refused { reason } if !reason.is_empty()), "{:?}", answers[1]);
    assert_eq!(answers[2], Appended::Conflict { tail: Some(sequence) });
    assert_eq!(answers[3], Appended::Duplicate { sequence: place });
    assert_eq!(answers[4], Appended::Stored { sequence: behind(place, 2) });
    assert_eq!(read_all(&log, Sequence::FIRST, &Scope::All).await.len(), 3);
}

pub(super) async fn rule_3_recorded_times_never_go_back(mut fixture: impl LogFixture) {
    let mut drafts = Drafts::of("clock");
    for _ in 0..3 {
        let log = fixture.open().await;
        for _ in 0..3 {
            store(&log, drafts.many(4, 2)).await;
            sleep(Duration::from_millis(3)).await;
        }
    }
    let log = fixture.open().await;
    let records = read_all(&log, Sequence::FIRST, &Scope::All).await;
    assert!(records.is_sorted_by_key(|record| record.recorded), "a recorded time goes back");
    let span = records[35].recorded.duration_since(records[0].recorded);
    assert!(span.as_millis() >= 20, "the clock stands still: {span:?}");
}

pub(super) async fn rule_4_what_was_acknowledged_is_there_after_opening_again(mut fixture: impl LogFixture) {
    let mut drafts = Drafts::of("reopened");
    let (mut events, mut places) = (Vec::new(), Vec::new());
    for count in [1, 10, 700] {
        let log = fixture.open().await;
        let some = drafts.many(count, 3);
        places.extend(store(&log, some.clone()).await);
        events.extend(some);
        drop(log);
        let log = fixture.open().await;
        assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
    }
}

pub(super) async fn rule_5_an_id_is_found_again(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("again");
    let event = drafts.about(&drafts.release("a"));
    let sequence = stored(&append_one(&log, event.clone()).await);
    store(&log, drafts.many(10, 2)).await;
    assert_eq!(append_one(&log, event.clone()).await, Appended::Duplicate { sequence });

    // Equal ids are one event, whatever else differs.
    let other = NewEvent { bytes: b"{}".to_vec(), ..event.clone() };
    assert_eq!(append_one(&log, other).await, Appended::Duplicate { sequence });
    let elsewhere = NewEvent { subject: subject(&drafts.release("b"), "release.SyncStarted"), ..event };
    assert_eq!(append_one(&log, elsewhere).await, Appended::Duplicate { sequence });
    assert_eq!(read_all(&log, Sequence::FIRST, &Scope::All).await.len(), 11, "nothing was stored again");
}

pub(super) async fn rule_5_an_id_is_found_again_in_its_own_call(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("twice");
    let (first, second) = (drafts.about(&drafts.release("a")), drafts.about(&drafts.release("a")));
    let answers = append(&log, vec![first.clone(), second, first.clone(), first]).await;
    let sequence = stored(&answers[0]);
    assert_eq!(answers[1], Appended::Stored { sequence: sequence.next() });
    assert_eq!(answers[2..], [Appended::Duplicate { sequence }, Appended::Duplicate { sequence }]);
}

pub(super) async fn rule_5_an_id_is_found_again_after_opening_again(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut events = Drafts::of("known").many(40, 3);
    // The id need not stand in the bytes, nor be a UUID.
    events[7].bytes = b"no id in here".to_vec();
    events[8].id = "an id, with \"quotes\" and \u{e4}\u{f6}".to_owned();
    let places = store(&log, events.clone()).await;
    drop(log);
    let log = fixture.open().await;
    let known: Vec<_> = places.iter().map(|&sequence| Appended::Duplicate { sequence }).collect();
    assert_eq!(append(&log, events).await, known);
}

pub(super) async fn rule_5_an_id_is_found_again_at_the_end_of_the_window(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("window");
    let oldest = drafts.about(&drafts.release("a"));
    let sequence = stored(&append_one(&log, oldest.clone()).await);
    store_in_calls(&log, drafts.many(DEDUPE_WINDOW - 1, 100)).await;
    assert_eq!(append_one(&log, oldest.clone()).await, Appended::Duplicate { sequence });
    drop(log);
    let log = fixture.open().await;
    assert_eq!(append_one(&log, oldest).await, Appended::Duplicate { sequence });
}

pub(super) async fn rule_5_a_retry_is_never_a_conflict(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("retry");
    let release = drafts.release("a");
    let mut event = drafts.about(&release);
    event.expected = ExpectedTail::Empty;
    let sequence = stored(&append_one(&log, event.clone()).await);
    assert_eq!(append_one(&log, event.clone()).await, Appended::Duplicate { sequence });
    event.expected = ExpectedTail::At(behind(sequence, 9));
    assert_eq!(append_one(&log, event).await, Appended::Duplicate { sequence });
}

pub(super) async fn rule_6_the_tail_of_the_release_must_be_the_expected_one(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("expected");
    let release = drafts.release("a");
    let nowhere = behind(end(&log).await, 99);
    let mut expecting = |expected| NewEvent { expected, ..drafts.about(&release) };

    let early = append_one(&log, expecting(ExpectedTail::At(nowhere))).await;
    assert_eq!(early, Appended::Conflict { tail: None });
    let first = stored(&append_one(&log, expecting(ExpectedTail::Empty)).await);
    let tail = Some(first);
    assert_eq!(append_one(&log, expecting(ExpectedTail::Empty)).await, Appended::Conflict { tail });
    assert_eq!(append_one(&log, expecting(ExpectedTail::At(nowhere))).await, Appended::Conflict { tail });
    let second = stored(&append_one(&log, expecting(ExpectedTail::At(first))).await);
    let tail = Some(second);
    assert_eq!(append_one(&log, expecting(ExpectedTail::At(first))).await, Appended::Conflict { tail });
    let third = stored(&append_one(&log, expecting(ExpectedTail::Any)).await);
    assert_eq!(stored(&append_one(&log, expecting(ExpectedTail::At(third))).await), third.next());
}

pub(super) async fn rule_6_the_tail_counts_what_is_before_it_in_the_call(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("chained");
    let release = drafts.release("a");
    let first = end(&log).await;
    let expected =
        [ExpectedTail::Empty, ExpectedTail::At(first), ExpectedTail::At(first), ExpectedTail::At(behind(first, 1))];
    let events = expected.map(|expected| NewEvent { expected, ..drafts.about(&release) });
    let answers = append(&log, events.to_vec()).await;
    let tail = Some(behind(first, 1));
    assert_eq!(stored(&answers[0]), first);
    assert_eq!(stored(&answers[1]), behind(first, 1));
    assert_eq!(answers[2], Appended::Conflict { tail });
    assert_eq!(stored(&answers[3]), behind(first, 2));
}

pub(super) async fn rule_6_the_tail_is_the_releases_and_no_one_elses(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("others");
    let release = drafts.release("app");
    let tail = stored(&append_one(&log, drafts.about(&release)).await);
    // Other releases, of which one has a name that begins in the same way, and a deployment.
    let namesakes = [ReleaseKey::new("other", "others", "app"), drafts.release("app2"), drafts.release("app.2")];
    let mut others: Vec<_> = namesakes.iter().map(|other| drafts.about(other)).collect();
    others.push(drafts.under(deployment("eu", "others", "app")));
    store(&log, others).await;
    let event = NewEvent { expected: ExpectedTail::At(tail), ..drafts.about(&release) };
    let tail = stored(&append_one(&log, event).await);

    // All domains of a release are one release.
    let health = drafts.under(subject(&release, "health-inventory.HealthAssessed"));
    let health = NewEvent { expected: ExpectedTail::At(tail), ..health };
    let tail = Some(stored(&append_one(&log, health).await));
    let late = NewEvent { expected: ExpectedTail::Empty, ..drafts.about(&release) };
    assert_eq!(append_one(&log, late).await, Appended::Conflict { tail });
    // The cluster, the namespace and the name are three tokens, not one text.
    let shifted = ReleaseKey::new("conformance", "others.app", "app");
    let event = NewEvent { expected: ExpectedTail::Empty, ..drafts.about(&shifted) };
    stored(&append_one(&log, event).await);
}

pub(super) async fn rule_6_the_tail_is_known_after_opening_again(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("remembered");
    let (old, never) = (drafts.release("old"), drafts.release("never"));
    let first = stored(&append_one(&log, drafts.about(&old)).await);
    store_in_calls(&log, drafts.many(20_000, 40)).await;
    drop(log);
    let log = fixture.open().await;
    let tail = Some(first);
    let wrong = NewEvent { expected: ExpectedTail::Empty, ..drafts.about(&old) };
    assert_eq!(append_one(&log, wrong).await, Appended::Conflict { tail });
    let right = NewEvent { expected: ExpectedTail::At(first), ..drafts.about(&old) };
    let tail = Some(stored(&append_one(&log, right).await));
    let late = NewEvent { expected: ExpectedTail::At(first), ..drafts.about(&old) };
    assert_eq!(append_one(&log, late).await, Appended::Conflict { tail });
    let new = NewEvent { expected: ExpectedTail::Empty, ..drafts.about(&never) };
    stored(&append_one(&log, new).await);
}

pub(super) async fn rule_6_the_tail_is_known_however_much_follows(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("followed");
    let release = drafts.release("a");
    // Asked for before it has a record.
    let early = NewEvent { expected: ExpectedTail::At(behind(end(&log).await, 99)), ..drafts.about(&release) };
    assert_eq!(append_one(&log, early).await, Appended::Conflict { tail: None });
    for _ in 0..2 {
        let tail = Some(stored(&append_one(&log, drafts.about(&release)).await));
        store_in_calls(&log, drafts.many(20_000, 40)).await;
        let late = NewEvent { expected: ExpectedTail::Empty, ..drafts.about(&release) };
        assert_eq!(append_one(&log, late).await, Appended::Conflict { tail });
    }
}

pub(super) async fn rule_7_events_may_be_sent_again_as_a_whole(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("resent");
    let mut events = drafts.many(6, 2);
    let half = store(&log, events[..3].to_vec()).await;
    events.rotate_left(1);
    // What is known is a duplicate, what is not is stored, in whatever order they come.
    let answers = append(&log, events).await;
    let next = half[2].next();
    let duplicates = [half[1], half[2]].map(|sequence| Appended::Duplicate { sequence });
    assert_eq!(answers[..2], duplicates);
    assert_eq!(answers[2..5].iter().map(stored).collect::<Vec<_>>(), [next, behind(next, 1), behind(next, 2)]);
    assert_eq!(answers[5], Appended::Duplicate { sequence: half[0] });
}

pub(super) async fn rule_8_bytes_come_back_as_they_are(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("bytes");
    let all: Vec<u8> = (0..=255).collect();
    let noise = |size: usize| (0_u32..).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).take(size).collect();
    let bodies: [Vec<u8>; 9] = [
        all,
        b"{ \"spaced\" : 1 }\n".to_vec(),
        vec![0],
        vec![0x80],
        noise(6_000),
        noise(70_000),
        noise(300_000),
        noise(900_000),
        b"{}".to_vec(),
    ];
    let draft = |bytes| NewEvent { bytes, ..drafts.about(&drafts.release("a")) };
    let events: Vec<_> = bodies.map(draft).into_iter().collect();
    let places = store(&log, events.clone()).await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
    drop(log);
    let log = fixture.open().await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
}

pub(super) async fn rule_8_subjects_come_back_as_they_are(mut fixture: impl LogFixture) {
    let log = fixture.open().await;
    let mut drafts = Drafts::of("subjects");
    let long = "n".repeat(200);
    let names = ["plain", "with.dots", "", "a b", "*", ">", "%", "%2E", "\u{e4}/\u{f6}\\", "\n", "=", &long];
    let mut events: Vec<_> = names.iter().map(|name| drafts.about(&drafts.release(name))).collect();
    events.push(drafts.under(subject(&drafts.release("x"), "unsupported.dev%2Eexample%2EOther%2Ev9")));
    events.push(drafts.under(deployment("eu west", "a/b", "deploy *")));
    events.push(drafts.under(deployment("", "", "")));
    let places = store(&log, events.clone()).await;
    assert_same(&read_all(&log, Sequence::FIRST, &Scope::All).await, &events, &places);
    for ((name, event), place) in names.iter().zip(&events).zip(&places) {
        let scope = Scope::Release(drafts.release(name));
        let records = read_all(&log, Sequence::FIRST, &scope).await;
        assert_same(&records, std::slice::from_ref(event), std::slice::from_ref(place));
    }
}
