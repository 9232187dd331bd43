//! `decklog crd`, `schema` and `completions`: documents that the program knows by heart.

use anyhow::Error;
use clap::CommandFactory as _;
use decklog_schemas::EventType;
use decklog_schemas::catalog::{asyncapi, json_schema};
use decklog_schemas::crd::custom_resource_definition;
use serde_json::Value;

use crate::args::{Cli, CrdArgs, DocumentFormat, SchemaArgs};
use crate::exit::{Answer, Failure};
use crate::output;
use crate::yaml;

pub(crate) fn crd(args: &CrdArgs) -> Result<Answer, Error> {
    document(&custom_resource_definition(), args.output)
}

pub(crate) fn schema(args: &SchemaArgs) -> Result<Answer, Error> {
    let Some(name) = &args.event_type else { return document(&asyncapi(), args.output) };
    let event_type = EventType::from_name(name).or_else(|| EventType::from_wire(name)).ok_or_else(|| {
        let known: Vec<_> = EventType::ALL.iter().map(|known| known.name()).collect();
        Failure::usage(format!("{name:?} is no event type: use one of {}", known.join(", ")))
    })?;
    document(&json_schema(event_type), args.output)
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Answer, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "decklog", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Answer::Yes)
}

fn document(value: &Value, format: DocumentFormat) -> Result<Answer, Error> {
    output::print(&match format {
        DocumentFormat::Json => output::json(value)?,
        DocumentFormat::Yaml => yaml::to_string(value)?,
    })?;
    Ok(Answer::Yes)
}
