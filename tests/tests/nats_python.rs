//! The Python programs of the documentation, as they stand there: what they write is folded, and they read it all.

use decklog_tests::binary::{self, root};
use decklog_tests::nats::{NatsServer, api, python};
use decklog_tests::numbered::{id_of, lines};
use serde_json::Value;

/// The programs, in the order of the page.
fn programs() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("adapters/nats/README.md")).expect("the page is there");
    let blocks = page.split("```python\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// A writer that writes one event after the other, whatever became of the one before.
const THREE: &str = r#"
async def three(server):
    connection = await nats.connect(server)
    writer = Writer(connection, "python-writer")
    for length in (1, 3000, 1):
        data = {"item": {"group": "apps", "version": "v1", "kind": "K", "namespace": "shop", "name": "n" * length}, "renderRef": "r1"}
        print(await writer.say("shop", "checkout", "release-inventory", "ItemApplied", data))
    await connection.close()

asyncio.run(three(sys.argv[1]))
"#;

#[test]
fn the_writer_of_the_documentation_says_what_a_full_stream_refuses_and_goes_on() {
    let programs = programs();
    let (writer, _) = programs[0].split_once("if __name__").expect("it can be imported");
    let server = NatsServer::start();
    let servers = server.url();
    let mut config = api::init(&servers, 1).config;
    config["max_bytes"] = 2_000.into();
    api::order(&servers, "STREAM.UPDATE.DECKLOG", &config);
    let said = python::stdout(&format!("{writer}{THREE}"), &[&servers]);
    assert_eq!(said, "1\nrefused: maximum bytes exceeded\n2\n");
    let timeline = binary::stdout(["timeline", "--from", &servers, "-n", "shop", "checkout", "-o", "json"]);
    let entries: Vec<Value> = serde_json::from_str(&timeline).expect("timelines are JSON");
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry["outcome"] == "folded"), "{timeline}");
}

#[test]
fn the_writer_and_the_reader_of_the_documentation_work() {
    let [writer, reader] = &programs()[..] else { panic!("the page has a writer and a reader") };
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, lines(0..7)).expect("writable");
    binary::stdout(["emit", "--to", &servers, file.to_str().expect("paths are UTF-8")]);
    assert_eq!(python::stdout(writer, &[&servers]), "8\n", "it says the sequence");

    let timeline = binary::stdout(["timeline", "--from", &servers, "-n", "shop", "checkout", "-o", "json"]);
    let entries: Vec<Value> = serde_json::from_str(&timeline).expect("timelines are JSON");
    assert_eq!(entries.len(), 1, "{timeline}");
    assert_eq!((&entries[0]["outcome"], &entries[0]["sequence"]), (&"folded".into(), &8.into()), "{timeline}");
    let object = binary::stdout(["at", "--from", &servers, "-n", "shop", "checkout", "-o", "json"]);
    let object: Value = serde_json::from_str(&object).expect("objects are JSON");
    assert_eq!(object["inventory"][0]["renderRef"], "r1", "{object}");

    let read = python::stdout(reader, &[&servers, "3", "6"]);
    let read: Vec<_> = read.lines().collect();
    for (line, number) in read.iter().zip(2..7) {
        assert!(line.starts_with(&format!("{} {} ", number + 1, id_of(number))), "{line}");
    }
    assert_eq!(read.len(), 6);
    assert!(read[5].ends_with(" dev.decklog.ItemApplied.v1 shop/checkout"), "{}", read[5]);
}
