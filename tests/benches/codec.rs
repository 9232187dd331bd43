//! The codec against serde at its fastest: an event written and read, and in reading checked against the rules of its type.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use decklog_schemas::{Draft, Envelope, Event, ReleaseKey, Seconds};

use decklog_tests::pairs::{Bench, Clock, Figure, timed};
use decklog_tests::peer::PeerEvent;
use decklog_tests::workload::{Shape, Workload};

const LIMIT: Duration = Duration::from_secs(120);

/// How many different events there are: so few that they stay in a cache.
const EVENTS: usize = 1_000;

fn main() -> ExitCode {
    decklog_tests::pairs::run(LIMIT, |bench| {
        let records = Workload::new(Shape { releases: 10, items: 20, run: 1 }).records(EVENTS);
        let events: Vec<_> = records.iter().map(|record| record.bytes.into_owned()).collect();
        encode(bench, &events);
        decode(bench, &events);
    })
}

/// The peer's struct has time and subject as text already.
fn encode(bench: &mut Bench, events: &[Vec<u8>]) {
    let repeats = bench.pick(500, 2);
    let peers: Vec<_> = events.iter().map(|bytes| PeerEvent::read(bytes)).collect();
    let releases: Vec<_> = peers.iter().map(|peer| release(peer.subject)).collect();
    let drafts: Vec<_> = events.iter().zip(&releases).map(|(bytes, release)| draft(bytes, release)).collect();
    let mut buffer = Vec::with_capacity(1024);
    for ((draft, peer), bytes) in drafts.iter().zip(&peers).zip(events) {
        for write in [write as fn(&mut Vec<u8>, &Draft<'_>, &PeerEvent<'_>), write_peer] {
            buffer.clear();
            write(&mut buffer, draft, peer);
            assert!(buffer == *bytes, "both write the same event");
        }
    }
    let size = events.iter().map(Vec::len).sum::<usize>() / events.len();
    let run = |write: fn(&mut Vec<u8>, &Draft<'_>, &PeerEvent<'_>), buffer: &mut Vec<u8>| {
        let work = || {
            for _ in 0..repeats {
                for (draft, peer) in drafts.iter().zip(&peers) {
                    buffer.clear();
                    write(buffer, black_box(draft), black_box(peer));
                    black_box(&buffer);
                }
            }
        };
        timed(work).1
    };
    let name = format!("encode an event of {size} bytes, against `write_named` into a reused Vec");
    let figure = Figure { name: &name, events: events.len() * repeats, bounds: Some([0.8, 1.0]), clock: Clock::Cpu };
    let mut other = buffer.clone();
    bench.compare(figure, || run(write_peer, &mut buffer), || run(write, &mut other));
}

fn write(buffer: &mut Vec<u8>, draft: &Draft<'_>, _: &PeerEvent<'_>) {
    draft.write_msgpack(buffer);
}

fn write_peer(buffer: &mut Vec<u8>, _: &Draft<'_>, peer: &PeerEvent<'_>) {
    rmp_serde::encode::write_named(buffer, peer).expect("a struct of texts and numbers is written");
}

fn decode(bench: &mut Bench, events: &[Vec<u8>]) {
    let repeats = bench.pick(500, 2);
    let run = |read: fn(&[u8])| {
        let work = || {
            for bytes in (0..repeats).flat_map(|_| events) {
                read(black_box(bytes));
            }
        };
        timed(work).1
    };
    let figure = Figure {
        name: "decode and validate an event, against `from_slice` into a borrowed struct",
        events: events.len() * repeats,
        bounds: Some([0.9, 2.0]),
        clock: Clock::Cpu,
    };
    let peer = |bytes: &[u8]| {
        black_box(PeerEvent::read(bytes));
    };
    bench.compare(figure, || run(peer), || run(|bytes| drop(black_box(event(bytes)))));
}

fn event(bytes: &[u8]) -> Event<'_> {
    Envelope::decode(bytes).expect("it is an event").validate().expect("it is valid")
}

fn draft<'a>(bytes: &'a [u8], release: &'a ReleaseKey) -> Draft<'a> {
    let event = event(bytes);
    let peer = PeerEvent::read(bytes);
    Draft {
        id: peer.id,
        source: peer.source,
        release: Some(release),
        time: Seconds::parse_timestamp(peer.time).expect("it is a time"),
        release_uid: None,
        writer_seq: event.writer_seq,
        term: None,
        correlation_id: None,
        trace_parent: None,
        body: event.body,
    }
}

fn release(subject: &str) -> ReleaseKey {
    let (namespace, name) = subject.split_once('/').expect("it names a release");
    ReleaseKey::new("default", namespace, name)
}
