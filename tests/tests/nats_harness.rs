//! The harness for NATS: servers keep what they stored, networks fail as asked, and nothing outlives its test.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use decklog_tests::nats::NatsServer;
use decklog_tests::nats::cluster::NatsCluster;
use decklog_tests::nats::proxy::{Direction, Proxy};
use decklog_tests::nats::python::{self, Script};
use decklog_tests::port::Port;
use decklog_tests::process::poll;

/// How long something may take that happens at once.
const SOON: Duration = Duration::from_secs(10);

/// How long something is waited for that must not happen.
const QUIET: Duration = Duration::from_millis(200);

/// Options of a connection: no `+OK` to each line.
const QUIETLY: &str = r#"{"verbose":false}"#;

/// Tells a child of ours where to write the port of the server that it starts.
const CHILD: &str = "DECKLOG_HARNESS_CHILD";

/// Makes a stream with so many copies, and publishes so many messages to it.
const PUBLISH: &str = r#"
import asyncio, nats, sys
async def main():
    client = await nats.connect(sys.argv[1].split(","))
    stream = client.jetstream()
    await stream.add_stream(name="kept", subjects=["kept"], num_replicas=int(sys.argv[2]))
    for number in range(int(sys.argv[3])):
        print((await stream.publish("kept", b"%d" % number)).seq)
    await client.close()
asyncio.run(main())
"#;

/// Prints the messages of that stream.
const READ: &str = r#"
import asyncio, nats, sys
async def main():
    client = await nats.connect(sys.argv[1].split(","))
    stream = client.jetstream()
    for sequence in range(1, (await stream.stream_info("kept")).state.messages + 1):
        print((await stream.get_msg("kept", sequence)).data.decode())
    await client.close()
asyncio.run(main())
"#;

/// A client that speaks the protocol itself, so that a test sees each line.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects; a server may be silent or say no.
    fn connect(port: u16, options: &str) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("somebody listens");
        let mut client = Self(BufReader::new(stream));
        client.send(&format!("CONNECT {options}\r\nPING"));
        client
    }

    fn send(&mut self, line: &str) {
        write!(self.0.get_mut(), "{line}\r\n").expect("the connection is open");
    }

    /// The next line but for INFO; nothing is the end of the connection, and an error is silence.
    fn line(&mut self, within: Duration) -> Result<String, ErrorKind> {
        self.0.get_mut().set_read_timeout(Some(within)).expect("a time can be set");
        let mut line = String::from("INFO");
        while line.starts_with("INFO") {
            line.clear();
            match self.0.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                Err(error) => return Err(error.kind()),
                Ok(_) => {}
            }
        }
        Ok(line.trim_end().to_owned())
    }

    #[track_caller]
    fn expect(&mut self, line: &str) {
        assert_eq!(self.line(SOON).as_deref(), Ok(line));
    }

    #[track_caller]
    fn expect_silence(&mut self) {
        assert_eq!(self.line(QUIET), Err(ErrorKind::WouldBlock));
    }
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[test]
fn a_killed_server_keeps_what_it_acknowledged() {
    let mut server = NatsServer::start();
    assert_eq!(python::stdout(PUBLISH, &[&server.url(), "1", "3"]), "1\n2\n3\n");
    let (pid, url) = (server.pid(), server.url());
    server.kill();
    assert!(!server.is_up() && !listens(server.port()));
    server.restart();
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    assert_eq!(python::stdout(READ, &[&url]), "0\n1\n2\n");
    server.stop();
    assert!(!listens(server.port()));
    assert!(server.log().contains("Server Exiting"), "{}", server.log());
}

#[test]
fn another_server_takes_over_port_and_data() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let first = NatsServer::builder().name("first").store(folder.path()).start();
    python::stdout(PUBLISH, &[&first.url(), "1", "1"]);
    let port = first.port();
    drop(first);
    let second = NatsServer::builder().name("second").store(folder.path()).port(port).start();
    assert_eq!(second.info()["server_name"], "second");
    assert_eq!(python::stdout(READ, &[&second.url()]), "0\n");
}

#[test]
#[should_panic(expected = "address already in use")]
fn a_port_that_is_asked_for_and_taken_is_an_error() {
    let (port, _listener) = Port::listen();
    let _ = NatsServer::builder().port(port.number()).start();
}

#[test]
fn configuration_is_taken_in() {
    let user = |name: &str| format!("authorization {{ users: [{{ user: {name}, password: secret }}] }}");
    let mut server =
        NatsServer::builder().conf("max_payload: 1KB").conf(&user("ann")).limits("max_file_store: 1MB").start();
    assert_eq!(server.info()["max_payload"], 1024);
    assert!(server.monitor("/jsz").contains(r#""max_storage": 1048576"#), "{}", server.monitor("/jsz"));
    let port = server.port();
    let check = |name: &str, answer: &str| {
        let options = format!(r#"{{"verbose":false,"user":"{name}","pass":"secret"}}"#);
        Client::connect(port, &options).expect(answer);
    };
    check("ann", "PONG");
    check("bob", "-ERR 'Authorization Violation'");
    server.reload(&user("bob"));
    check("bob", "PONG");
    check("ann", "-ERR 'Authorization Violation'");
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let server = NatsServer::start();
    let mut client = Client::connect(server.port(), QUIETLY);
    client.expect("PONG");
    server.pause();
    client.send("PING");
    client.expect_silence();
    server.resume();
    client.expect("PONG");
}

/// Runs itself as the process that is killed.
#[test]
fn a_server_dies_with_the_process_that_started_it() {
    if let Some(file) = env::var_os(CHILD) {
        be_killed(Path::new(&file));
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("port");
    let mut child = Command::new(env::current_exe().expect("tests are a file"))
        .args(["--exact", "a_server_dies_with_the_process_that_started_it"])
        .env(CHILD, &file)
        // It cannot tidy up.
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("a test can be started");
    let port = poll(SOON, || fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse().ok());
    let listened = port.is_some_and(listens);
    child.kill().expect("the process is ours");
    child.wait().expect("the process is ours");
    assert!(listened, "the server of the child does not listen: {port:?}");
    let gone = poll(SOON, || port.filter(|port| !listens(*port)));
    assert_eq!(gone, port, "the server outlives the process that started it");
}

/// Starts a server, tells its port, and waits for the end.
fn be_killed(file: &Path) -> ! {
    let server = NatsServer::start();
    fs::write(file, format!("{}\n", server.port())).expect("the folder is there");
    loop {
        thread::park();
    }
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let started = thread::spawn(NatsServer::start).join();
    let server = started.expect("a server starts in any thread");
    thread::sleep(QUIET);
    Client::connect(server.port(), QUIETLY).expect("PONG");
}

#[test]
fn a_cluster_replaces_its_leader() {
    let mut cluster = NatsCluster::start(3);
    assert_eq!(python::stdout(PUBLISH, &[&cluster.url(), "3", "2"]), "1\n2\n");
    let leader = poll(SOON, || cluster.leader_of("kept")).expect("the stream has a leader");
    cluster.kill(leader);
    let next = poll(SOON * 3, || cluster.leader_of("kept").filter(|next| *next != leader));
    assert!(next.is_some(), "no other leads");
    assert_eq!(python::stdout(READ, &[&cluster.url()]), "0\n1\n");
    cluster.restart(leader);
    assert!(cluster.servers().iter().all(NatsServer::is_up));
    let leader = cluster.leader().expect("the cluster has a leader");
    assert!(cluster.servers()[leader].monitor("/jsz").contains(r#""cluster_size": 3"#));
}

#[test]
fn a_proxy_cuts_and_refuses() {
    let server = NatsServer::start();
    let proxy = Proxy::to(server.port());
    let connect = || Client::connect(proxy.port(), QUIETLY);
    let mut client = connect();
    client.expect("PONG");
    assert_eq!(proxy.connections(), 1);
    proxy.cut();
    client.expect("");
    connect().expect("PONG");
    proxy.refuse();
    let mut refused = String::new();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy listens");
    assert_eq!(stream.read_to_string(&mut refused).ok(), Some(0));
    proxy.heal();
    connect().expect("PONG");
    let port = proxy.port();
    drop(proxy);
    assert!(!listens(port));
}

#[test]
fn a_proxy_loses_acknowledgements() {
    let server = NatsServer::start();
    let proxy = Proxy::to(server.port());
    python::stdout(PUBLISH, &[&proxy.url(), "1", "1"]);
    let mut client = Client::connect(proxy.port(), QUIETLY);
    client.send("SUB ack 1\r\nPING");
    client.expect("PONG");
    client.expect("PONG");
    proxy.stall(Direction::FromServer);
    client.send("PUB kept ack 4\r\nlost");
    let stored = poll(SOON, || Some(python::stdout(READ, &[&server.url()])).filter(|kept| kept == "0\nlost\n"));
    assert!(stored.is_some(), "what is published is not stored");
    client.expect_silence();
    assert!(proxy.lost() > 0);
    proxy.heal();
    // The acknowledgement is lost for ever, and so is the connection.
    client.expect("");
    Client::connect(proxy.port(), QUIETLY).expect("PONG");
}

#[test]
fn a_proxy_holds_bytes_back() {
    let server = NatsServer::start();
    let proxy = Proxy::to(server.port());
    let mut client = Client::connect(proxy.port(), QUIETLY);
    client.expect("PONG");
    for direction in [Direction::ToServer, Direction::FromServer] {
        proxy.hold(direction);
        client.send("PING");
        client.expect_silence();
        proxy.heal();
        client.expect("PONG");
    }
    assert_eq!(proxy.lost(), 0);
}

#[test]
fn the_old_server_is_old() {
    let server = NatsServer::start_2_9();
    let info = server.info();
    assert!(info["version"].as_str().is_some_and(|version| version.starts_with("2.9.")), "{info}");
    assert_eq!(info["jetstream"], true);
}

#[test]
fn a_server_can_be_without_jetstream() {
    let server = NatsServer::builder().without_jetstream().start();
    assert_eq!(server.info()["jetstream"], serde_json::Value::Null);
}

#[test]
fn a_script_talks_while_it_runs() {
    let server = NatsServer::start();
    let subscriber = r#"
import asyncio, msgpack, nats, sys
async def main():
    client = await nats.connect(sys.argv[1])
    subscription = await client.subscribe("said")
    await client.flush()
    print("ready")
    print(msgpack.unpackb((await subscription.next_msg(30)).data))
    await client.publish("said", input().encode())
    print((await subscription.next_msg(30)).data.decode())
    await asyncio.Event().wait()
asyncio.run(main())
"#;
    let mut script = Script::spawn(subscriber, &[&server.url()]);
    assert_eq!(script.line(SOON * 3), "ready");
    let mut client = Client::connect(server.port(), QUIETLY);
    client.send("PUB said 1\r\n\u{7}");
    assert_eq!(script.line(SOON), "7");
    script.say("heard");
    assert_eq!(script.line(SOON), "heard");
    assert_eq!(script.stderr(), "");
    script.kill();
    assert_eq!(python::run("import sys; sys.exit(3)", &[]).status.code(), Some(3));
}
