//! `decklog stream info`: what the stream holds, how it differs from what it should be, and what a login may do.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Error;
use decklog_nats::permissions::{Ability, May, User};
use decklog_nats::stream::{Remedy, differences};
use decklog_nats::{ApiError, Connection, JetStreamLog, StreamInfo};
use decklog_sled::{PeekError, SledCheckpoints};
use serde::Serialize;
use serde_json::{Value, json};

use super::on_nats;
use crate::args::{Format, StreamInfoArgs};
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::folder::CHECKPOINT;
use crate::nats::NatsLog;
use crate::output::{self, Cell, Table, Tone};
use crate::yaml;

/// What is told, as JSON and YAML have it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    server: Server,
    /// None if this login may not ask for it, or it is not there.
    stream: Option<Stream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
    /// None if this login may not even ask who it is.
    login: Option<LoginReport>,
}

#[derive(Serialize)]
struct Server {
    address: String,
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stream {
    name: String,
    created: String,
    messages: u64,
    bytes: u64,
    first: Option<End>,
    last: Option<End>,
    replicas: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    /// Each of the other replicas, with what is wrong with it, if anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peers: Vec<Peer>,
    differences: Vec<Difference>,
}

/// An end of the stream. The first one of an empty stream is none; the last one stays when records are gone.
#[derive(Serialize)]
struct End {
    sequence: u64,
    recorded: String,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    state: &'static str,
}

#[derive(Serialize)]
struct Difference {
    field: &'static str,
    is: Value,
    wanted: Value,
    /// What comes of it.
    remedy: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    folder: String,
    #[serde(flatten)]
    state: CheckpointState,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
enum CheckpointState {
    /// It stands in this stream.
    At { sequence: u64, behind: u64 },
    /// It was made, and nothing is saved yet.
    Empty,
    /// It was made from another stream, or from this one when it was longer.
    Diverged { sequence: u64, log: String },
    /// A running process has it.
    Held,
    /// It cannot be read.
    Damaged { problem: String },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoginReport {
    user: String,
    account: String,
    may: Vec<Permission>,
}

#[derive(Serialize)]
struct Permission {
    what: String,
    subject: String,
    may: &'static str,
}

pub(crate) async fn run(args: StreamInfoArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let nats = on_nats(config.log(args.log.from)?, &args.log.nats, "--from")?;
    let connection = nats.connect().await?;
    // A login need not be allowed to ask that, nor a server to answer it.
    let user = connection.user().await.ok();
    let log = JetStreamLog::unchecked(&connection, &nats.stream);
    let (info, failed) = match log.info().await {
        Ok(info) => (Some(info), None),
        // What is known of the login is what helps now.
        Err(error @ ApiError::Denied(_)) => (None, Some(Error::from(error))),
        Err(ApiError::NotFound { .. }) => (None, Some(nats.missing(&nats.stream))),
        Err(error) => return Err(error.into()),
    };
    let checkpoint = match (&args.data, &info) {
        (Some(data), Some(info)) => Some(checkpoint(&data.join(CHECKPOINT), info).await?),
        _ => None,
    };
    let report = Report {
        server: server(&nats, &connection),
        stream: info.as_ref().map(stream),
        checkpoint,
        login: user.as_ref().map(|user| login(user, &nats.stream)),
    };
    output::print(&match format {
        Format::Table => page(&report)?,
        Format::Json => output::json(&report)?,
        Format::Yaml => yaml::to_string(&report)?,
    })?;
    failed.map_or(Ok(Answer::Yes), Err)
}

fn server(nats: &NatsLog, connection: &Connection) -> Server {
    Server { address: nats.servers.clone(), version: connection.server_version() }
}

fn stream(info: &StreamInfo) -> Stream {
    let (id, state) = (info.id(), &info.state);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let cluster = info.cluster.clone().unwrap_or_default();
    let peers = cluster["replicas"].as_array().into_iter().flatten().map(|peer| Peer {
        name: text(&peer["name"]).unwrap_or_default(),
        state: match (peer["offline"] == json!(true), peer["current"] == json!(true)) {
            (true, _) => "offline",
            (false, true) => "current",
            (false, false) => "behind",
        },
    });
    let remedy = |remedy| match remedy {
        Remedy::Change => "`decklog stream init` changes it".to_owned(),
        Remedy::Leave(why) => why.to_owned(),
    };
    Stream {
        name: id.name,
        created: id.incarnation,
        messages: state.messages,
        bytes: state.bytes,
        first: (state.messages > 0).then(|| End { sequence: state.first_seq, recorded: state.first_ts.clone() }),
        last: (state.last_seq > 0).then(|| End { sequence: state.last_seq, recorded: state.last_ts.clone() }),
        replicas: info.config["num_replicas"].clone(),
        leader: text(&cluster["leader"]),
        peers: peers.collect(),
        differences: differences(info)
            .into_iter()
            .map(|found| Difference {
                field: found.field,
                is: found.found,
                wanted: found.wanted,
                remedy: remedy(found.remedy),
            })
            .collect(),
    }
}

async fn checkpoint(dir: &Path, info: &StreamInfo) -> Result<Checkpoint, Error> {
    let last = info.state.last_seq;
    let state = match SledCheckpoints::peek(dir).await {
        Ok(None) => CheckpointState::Empty,
        Ok(Some(floor)) if floor.log == info.id() && floor.sequence.get() <= last => {
            let sequence = floor.sequence.get();
            CheckpointState::At { sequence, behind: last - sequence }
        }
        Ok(Some(floor)) => CheckpointState::Diverged { sequence: floor.sequence.get(), log: floor.log.to_string() },
        Err(PeekError::Held { .. }) => CheckpointState::Held,
        Err(PeekError::Damaged { problem, .. }) => CheckpointState::Damaged { problem },
        Err(error @ PeekError::Missing { .. }) => {
            return Err(Failure::usage(format!("{error}: name the --data folder of a `decklog project`")));
        }
        Err(error @ PeekError::Io { .. }) => return Err(error.into()),
    };
    Ok(Checkpoint { folder: dir.display().to_string(), state })
}

fn login(user: &User, stream: &str) -> LoginReport {
    let permission = |Ability { what, subject, may }: Ability| Permission { what, subject, may: may.as_str() };
    LoginReport {
        user: user.name.clone(),
        account: user.account.clone(),
        may: user.abilities(stream).into_iter().map(permission).collect(),
    }
}

// === the table ===

fn page(report: &Report) -> Result<String, Error> {
    let mut text = format!("Server:        {}, version {}\n", report.server.address, report.server.version);
    if let Some(stream) = &report.stream {
        text.push_str(&about_stream(stream)?);
    }
    if let Some(checkpoint) = &report.checkpoint {
        writeln!(text, "Checkpoint:    {}", about_checkpoint(checkpoint))?;
    }
    let Some(login) = &report.login else {
        text.push_str("Login:         it may not ask what it may do: $SYS.REQ.USER.INFO is forbidden to it\n");
        return Ok(text);
    };
    let user = if login.user.is_empty() { "nobody by name" } else { &login.user };
    writeln!(text, "Login:         {user}, account {}\n", login.account)?;
    let mut table = Table::new(&["MAY", "WHAT", "SUBJECT"]);
    for Permission { what, subject, may } in &login.may {
        let may = match *may {
            yes if yes == May::Yes.as_str() => Cell::tinted(yes, Tone::Good),
            no if no == May::No.as_str() => Cell::tinted(no, Tone::Dim),
            partly => Cell::tinted(partly, Tone::Waiting),
        };
        table.row([may, what.as_str().into(), subject.as_str().into()]);
    }
    text.push_str(&table.render()?);
    Ok(text)
}

fn about_stream(stream: &Stream) -> Result<String, Error> {
    let mut text = format!("Stream:        {}@{}\n", stream.name, stream.created);
    match (&stream.first, &stream.last) {
        (Some(first), Some(last)) => {
            writeln!(text, "First:         {}, recorded {}", first.sequence, first.recorded)?;
            writeln!(text, "Last:          {}, recorded {}", last.sequence, last.recorded)?;
        }
        (_, Some(last)) => {
            writeln!(text, "Last:          {}, recorded {}, and nothing is left", last.sequence, last.recorded)?
        }
        (_, None) => {}
    }
    writeln!(text, "Records:       {}, {} bytes", stream.messages, stream.bytes)?;
    write!(text, "Replicas:      {}", stream.replicas)?;
    if let Some(leader) = &stream.leader {
        write!(text, ", leader {leader}")?;
    }
    for Peer { name, state } in &stream.peers {
        write!(text, ", {name} {state}")?;
    }
    if stream.differences.is_empty() {
        text.push_str("\nConfiguration: as it should be\n");
        return Ok(text);
    }
    text.push_str("\nConfiguration: differs from what decklog wants\n");
    for Difference { field, is, wanted, remedy } in &stream.differences {
        let wanted = if wanted.is_null() { "unset".to_owned() } else { wanted.to_string() };
        writeln!(text, "               {field}: is {is} and not {wanted}: {remedy}")?;
    }
    Ok(text)
}

fn about_checkpoint(checkpoint: &Checkpoint) -> String {
    let folder = &checkpoint.folder;
    match &checkpoint.state {
        CheckpointState::At { sequence, behind: 0 } => format!("{folder} is at {sequence}, the end of the stream"),
        CheckpointState::At { sequence, behind } => format!("{folder} is at {sequence}, {behind} behind the end"),
        CheckpointState::Empty => format!("{folder} has nothing saved yet"),
        CheckpointState::Diverged { sequence, log } => {
            format!("{folder} is at {sequence} of {log}, which is not this stream, or no more")
        }
        CheckpointState::Held => format!("{folder} is held by a running process, which alone knows where it is"),
        CheckpointState::Damaged { problem } => {
            format!("{folder} is damaged, and is built again at the next start: {problem}")
        }
    }
}
