//! The client: order, connections, and what it says when the server is not there.

use std::sync::Arc;

use decklog_engine::ingest::Check;
use decklog_engine::log::{Log, Scope, Wait};
use decklog_http::client::{Client, ClientError, ConnectError};
use decklog_projections::inventory::Selection;
use decklog_schemas::answer::EmitStatus;
use decklog_schemas::{MAX_EVENT_BYTES, ReleaseKey, Sequence};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::events::{self, invalid, msgpack};
use crate::served::{Gate, Served};

#[tokio::test]
async fn mixed_events_keep_their_order_and_their_bytes() {
    let served = Served::start().await;
    let client = served.client().await;
    let spread = String::from_utf8(events::json("4", "shop/d")).unwrap().replace(',', ",\n");
    let sent = [
        events::json("1", "shop/a"),
        msgpack("2", "shop/b"),
        msgpack("3", "shop/c"),
        spread.into_bytes(),
        b"not an event".to_vec(),
        invalid("5", "shop/e"),
        vec![b' '; MAX_EVENT_BYTES + 1],
        b"\x80\x80".to_vec(),
        [&events::json("6", "shop/f")[..], b"\r"].concat(),
        events::json("7", "shop/g"),
        msgpack("1", "shop/a"),
        Vec::new(),
    ];
    let answers = client.append(&sent, Check::Valid).await.unwrap();
    use EmitStatus::{Duplicate, Refused, Stored};
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    let expect =
        [Stored, Stored, Stored, Stored, Refused, Refused, Refused, Refused, Stored, Stored, Duplicate, Refused];
    assert_eq!(statuses, expect);
    let without_words = answers.iter().filter(|answer| answer.status == Refused && answer.error.is_none());
    assert_eq!(without_words.count(), 0, "{answers:?}");
    let stored: Vec<_> = sent.into_iter().zip(expect).filter(|(_, status)| *status == Stored).collect();
    let stored: Vec<_> = stored.into_iter().map(|(event, _)| event).collect();
    assert_eq!(served.stored().await, stored);
}

#[tokio::test]
async fn unchecked_events_go_through_the_client() {
    let served = Served::start().await;
    let client = served.client().await;
    let event = [invalid("1", "shop/checkout")];
    assert_eq!(client.append(&event, Check::Valid).await.unwrap()[0].status, EmitStatus::Refused);
    assert_eq!(client.append(&event, Check::AsIs).await.unwrap()[0].status, EmitStatus::Stored);
    assert!(client.append(&[], Check::Valid).await.unwrap().is_empty());
}

#[tokio::test]
async fn more_events_than_fit_into_one_request_keep_their_order() {
    let served = Served::start().await;
    let client = served.client().await;
    let event = |number: usize| match number % 3 {
        0 => msgpack(&number.to_string(), "shop/checkout"),
        _ => events::json(&number.to_string(), "shop/checkout"),
    };
    let mut sent: Vec<_> = (0..5_000).map(event).collect();
    sent.extend((5_000..15_000).map(|number| msgpack(&number.to_string(), "shop/checkout")));
    let answers = client.append(&sent, Check::Valid).await.unwrap();
    let sequences: Vec<_> = answers.iter().map(|answer| answer.sequence.unwrap().get()).collect();
    assert_eq!(sequences, (1..=15_000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_append_at_once() {
    let served = Served::start().await;
    let shared = Arc::new(served.client().await);
    let mut appending = JoinSet::new();
    for writer in 0..100 {
        let (socket, shared) = (served.socket.clone(), Arc::clone(&shared));
        appending.spawn(async move {
            let own = Client::connect(&socket).await.unwrap();
            let client = if writer % 2 == 0 { &*shared } else { &own };
            let release = format!("shop/release-{writer}");
            for call in 0..10 {
                let id = |event| format!("{writer}-{call}-{event}");
                let events = [events::json(&id(1), &release), msgpack(&id(2), &release)];
                let answers = client.append(&events, Check::Valid).await.unwrap();
                assert!(answers.iter().all(|answer| answer.status == EmitStatus::Stored), "{answers:?}");
            }
        });
    }
    while let Some(ended) = appending.join_next().await {
        ended.unwrap();
    }
    assert_eq!(served.stored().await.len(), 2_000);
    let all = served.client().await.view(&Selection::All { cluster: None }, None).await.unwrap();
    assert_eq!((all.releases.len(), all.sequence), (100, Sequence::new(2_000)));
    for writer in 0..100 {
        let key = ReleaseKey::new("default", "shop", &format!("release-{writer}"));
        let own = served.log.read(Sequence::FIRST, &Scope::Release(key), Wait::No).await.unwrap();
        let ids = own.records.iter().map(|record| {
            let envelope = decklog_schemas::Envelope::decode(&record.bytes).unwrap();
            envelope.id().unwrap().to_owned()
        });
        let sent = (0..10).flat_map(|call| [1, 2].map(|event| format!("{writer}-{call}-{event}")));
        assert_eq!(ids.collect::<Vec<_>>(), sent.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn nobody_listens_where_there_is_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("decklog.sock");
    let refused = Client::connect(&socket).await.unwrap_err();
    assert!(matches!(&refused, ConnectError::NobodyListens { socket: at } if *at == socket), "{refused:?}");
    drop(UnixListener::bind(&socket).unwrap());
    let stale = Client::connect(&socket).await.unwrap_err();
    assert!(matches!(stale, ConnectError::NobodyListens { .. }), "{stale:?}");
    let nowhere = Client::connect(&folder.path().join("none/decklog.sock")).await.unwrap_err();
    assert!(matches!(nowhere, ConnectError::NobodyListens { .. }), "{nowhere:?}");
    let inside_a_file = folder.path().join("file");
    std::fs::write(&inside_a_file, "").unwrap();
    let other = Client::connect(&inside_a_file.join("decklog.sock")).await.unwrap_err();
    assert!(matches!(other, ConnectError::Failed { .. }), "{other:?}");
}

#[tokio::test]
async fn a_client_outlives_its_server() {
    let mut served = Served::start().await;
    let client = served.client().await;
    let event = [events::json("1", "shop/checkout")];
    client.append(&event, Check::Valid).await.unwrap();
    served.server.stop().await.unwrap();
    let gone = client.append(&event, Check::Valid).await.unwrap_err();
    assert!(matches!(gone, ClientError::NotReachable(_)), "{gone:?}");
    let socket = served.socket.clone();
    let _next = Served::start_at(socket, tempfile::tempdir().unwrap()).await;
    let answers = client.append(&event, Check::Valid).await.unwrap();
    assert_eq!(answers[0].status, EmitStatus::Stored);
    assert_eq!(client.status().await.unwrap().tail, Some(Sequence::FIRST));
}

/// The server is there, then another one, and nobody has told the client.
#[tokio::test]
async fn an_idle_connection_that_was_closed_is_replaced() {
    let mut served = Served::start().await;
    let client = served.client().await;
    client.status().await.unwrap();
    served.server.stop().await.unwrap();
    let _next = Served::start_at(served.socket.clone(), tempfile::tempdir().unwrap()).await;
    assert_eq!(client.status().await.unwrap().tail, None);
}

#[tokio::test]
async fn a_call_that_is_given_up_harms_no_other() {
    let served = Served::start().await;
    let client = served.client().await;
    served.gate.send_replace(Gate::Closed);
    let first = [events::json("1", "shop/checkout")];
    tokio::select! {
        answered = client.append(&first, Check::Valid) => panic!("{answered:?}"),
        () = served.stores(1) => {}
    }
    served.gate.send_replace(Gate::Open);
    let second = [events::json("2", "shop/checkout")];
    let answers = client.append(&second, Check::Valid).await.unwrap();
    assert_eq!(answers[0].id.as_deref(), Some("2"));
    assert_eq!(client.append(&first, Check::Valid).await.unwrap()[0].status, EmitStatus::Duplicate);
}

#[tokio::test]
async fn what_the_server_refuses_is_told() {
    let mut served = Served::start().await;
    let client = served.client().await;
    let nameless = Selection::Namespace { cluster: "default".to_owned(), namespace: String::new() };
    match client.view(&nameless, None).await {
        Err(ClientError::Refused { status: 400, message }) => {
            assert_eq!(message, "query: namespace is empty; give namespace a value, or leave it out");
        }
        other => panic!("{other:?}"),
    }
    let endless = ReleaseKey::new("default", "shop", &"x".repeat(100_000));
    let refused = client.timeline(&endless, None, None).await.unwrap_err();
    assert!(matches!(refused, ClientError::Refused { status: 414, .. }), "{refused:?}");
    served.engine.stop().await;
    match client.append(&[events::json("1", "shop/checkout")], Check::Valid).await {
        Err(ClientError::Unavailable { message }) => {
            assert!(message.starts_with("the engine has stopped"), "{message}")
        }
        other => panic!("{other:?}"),
    }
}
