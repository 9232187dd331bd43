//! The published catalogue: a JSON Schema for each event type and one AsyncAPI document, for who has not this crate.

use std::num::NonZeroU64;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::envelope::DEFAULT_CLUSTER;
use crate::event::{Domain, EventType};
use crate::subject::PREFIX;
use crate::text::{Name, Text};
use crate::time::Seconds;

/// Where the schemas say that they live; `<Type>.v1.json` follows.
const SCHEMA_BASE: &str = "https://decklog.dev/schemas/";

const MSGPACK: &str = "application/cloudevents+msgpack";
const JSON: &str = "application/cloudevents+json";

/// The JSON Schema (2020-12) of a whole event of this type: its attributes and its `data`.
///
/// It takes what [`Envelope::validate`](crate::Envelope::validate) takes, and `null` for each optional field, with
/// what a schema cannot say left out: a whole number fits its format and is written without a fraction (`1.0` is none),
/// and every day stands in a calendar.
#[must_use]
pub fn json_schema(event_type: EventType) -> Value {
    let mut schema = event_schema(event_type);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["$id"] = format!("{SCHEMA_BASE}{event_type}.v1.json").into();
    schema
}

/// The AsyncAPI 3.0 document: under which subject each type stands, who writes there, and what a message holds.
#[must_use]
pub fn asyncapi() -> Value {
    let of_each = |make: fn(EventType) -> Value| {
        EventType::ALL.iter().map(|event_type| (event_type.name().to_owned(), make(*event_type))).collect::<Map<_, _>>()
    };
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "decklog",
            "version": "1.0.0",
            "description": format!(
                "The record of what a release controller did to a Kubernetes cluster: CloudEvents 1.0 on NATS \
                JetStream. Operations are seen from outside of the log: writers send, and everybody receives.\n\n\
                A message is one CloudEvent, envelope and data in one map: MessagePack (`{MSGPACK}`) is what decklog \
                writes, and the same map as JSON (`{JSON}`) is taken everywhere, told apart by the first byte. \
                `Nats-Msg-Id` is the only header.\n\n\
                The domain, the token before the type, is one writer's authority: a NATS permission for \
                `{PREFIX}.release.*.*.*.<domain>.>` lets a writer say what is its own to say, and nothing else.\n\n\
                {ESCAPE}"
            ),
            "license": { "name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0" },
        },
        "defaultContentType": MSGPACK,
        "servers": {
            "nats": {
                "host": "{host}",
                "protocol": "nats",
                "description": "NATS with JetStream; `decklog stream init` makes the stream.",
                "variables": { "host": { "default": "localhost:4222", "description": "Host and port." } },
            },
        },
        "channels": of_each(channel),
        "operations": operations(),
        "components": {
            "messages": of_each(message),
            "parameters": parameters(),
            "schemas": of_each(event_schema),
        },
    })
}

// --- JSON Schema ----------------------------------------------------------------------------------------------------

fn event_schema(event_type: EventType) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            // A message is read as it stands: nothing in it points elsewhere.
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let mut data = event_type.schema(&mut generator);
    data.remove("title");
    let mut required = vec!["specversion", "id", "source", "type", "time"];
    if event_type != EventType::DeploymentRecorded {
        required.push("subject");
    }
    if data.get("required").is_some() {
        required.push("data");
    } else {
        data.insert("type".to_owned(), json!(["object", "null"]));
    }
    let mut properties = attributes(event_type, &mut generator);
    properties.insert("data".to_owned(), data.into());
    json!({
        "title": event_type.name(),
        "description": event_type.about(),
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

fn attributes(event_type: EventType, generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut add = |name: &str, mut schema: Value, description: &str| {
        schema["description"] = description.into();
        attributes.insert(name.to_owned(), schema);
    };
    let text = of::<Option<Text<'_>>>(generator);
    let mut source = of::<Name<'_>>(generator);
    source["format"] = "uri-reference".into();
    let mut cluster = text.clone();
    cluster["default"] = DEFAULT_CLUSTER.into();
    let subject = if event_type == EventType::DeploymentRecorded {
        text.clone()
    } else {
        json!({ "type": "string", "pattern": "^[^/]+/[^/]+$" })
    };
    add("specversion", json!({ "type": "string", "const": "1.0" }), "Version of CloudEvents.");
    add("id", of::<Name<'_>>(generator), "UUID, version 7 by default; equal ids are one event.");
    add("source", source, "`/<component>/<instance>`, the instance new for every process start.");
    add("type", json!({ "type": "string", "const": event_type.wire() }), "Type and major version of the event.");
    add("subject", subject, "`<namespace>/<release>`.");
    add("time", of::<Seconds>(generator), "The writer's clock, RFC 3339; shown, and never used for order.");
    add("cluster", cluster, "Name of the cluster.");
    add("releaseuid", text.clone(), "`metadata.uid` of the Release: which incarnation this is about.");
    add(
        "writerseq",
        of::<Option<NonZeroU64>>(generator),
        "1, 2, 3 … for each source; absent where the writer does not count.",
    );
    add("term", of::<Option<u64>>(generator), "Term of the writer's lease.");
    add("correlationid", text.clone(), "The sync this belongs to.");
    add("traceparent", text, "W3C trace context.");
    attributes
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

// --- AsyncAPI -------------------------------------------------------------------------------------------------------

const ESCAPE: &str = "A name becomes a token of a subject by an escape that can be undone: each byte of a control \
    character, of a space, of `.`, `*`, `>`, `/`, `\\` and `%`, and of every character outside of ASCII is written as \
    `%` and two upper-case hexadecimal digits, and the empty name is a bare `%`. Nothing else is escaped, so a name has \
    one token and a token one name: release `check.out` has the token `check%2Eout`.";

const RELEASE_PARAMETERS: &[(&str, &str)] = &[
    ("cluster", "Name of the cluster"),
    ("namespace", "Namespace of the Release"),
    ("release", "Name of the Release"),
];

const DEPLOYMENT_PARAMETERS: &[(&str, &str)] = &[
    ("region", "`region` of the payload"),
    ("team", "`pipeline.team` of the payload"),
    ("pipeline", "`pipeline.name` of the payload"),
];

fn channel(event_type: EventType) -> Value {
    let domain = event_type.domain();
    let (address, parameters) = if domain == Domain::Deployment {
        (format!("{PREFIX}.deployment.{{region}}.{{team}}.{{pipeline}}"), DEPLOYMENT_PARAMETERS)
    } else {
        (format!("{PREFIX}.release.{{cluster}}.{{namespace}}.{{release}}.{domain}.{event_type}"), RELEASE_PARAMETERS)
    };
    let parameters =
        parameters.iter().map(|(name, _)| ((*name).to_owned(), reference("parameters", name))).collect::<Map<_, _>>();
    json!({
        "address": address,
        "title": event_type.name(),
        "description": event_type.about(),
        "messages": { event_type.name(): reference("messages", event_type.name()) },
        "parameters": parameters,
        "tags": [{ "name": domain.as_str(), "description": writer(domain) }],
    })
}

fn message(event_type: EventType) -> Value {
    json!({
        "name": event_type.wire(),
        "title": event_type.name(),
        "summary": event_type.about(),
        "contentType": MSGPACK,
        "description": format!("Taken as `{JSON}` too."),
        "headers": {
            "type": "object",
            "properties": {
                "Nats-Msg-Id": {
                    "type": "string",
                    "description": "The event's `id`: the server drops what it has taken within the last minutes.",
                },
            },
        },
        "payload": reference("schemas", event_type.name()),
        "correlationId": {
            "description": "The sync this belongs to.",
            "location": "$message.payload#/correlationid",
        },
        "tags": [{ "name": event_type.domain().as_str() }],
    })
}

fn operations() -> Map<String, Value> {
    let mut operations = Map::new();
    for event_type in EventType::ALL {
        let domain = event_type.domain();
        let channel = format!("#/channels/{event_type}");
        let mut add = |action: &str, description: String| {
            operations.insert(
                format!("{action}{event_type}"),
                json!({
                    "action": action,
                    "channel": { "$ref": channel },
                    "summary": event_type.about(),
                    "description": description,
                    "messages": [{ "$ref": format!("{channel}/messages/{event_type}") }],
                    "tags": [{ "name": domain.as_str() }],
                }),
            );
        };
        add("send", format!("Sent by: {}.", writer(domain)));
        add("receive", "Received by every subscriber.".to_owned());
    }
    operations
}

fn parameters() -> Map<String, Value> {
    RELEASE_PARAMETERS
        .iter()
        .chain(DEPLOYMENT_PARAMETERS)
        .map(|(name, about)| {
            let description = format!("{about}, escaped. {ESCAPE}");
            ((*name).to_owned(), json!({ "description": description }))
        })
        .collect()
}

/// Whose authority a domain is.
fn writer(domain: Domain) -> &'static str {
    match domain {
        Domain::Release => "the controller, about the release and its syncs",
        Domain::ReleaseInventory => "the controller, about applied and pruned items",
        Domain::HealthInventory => "the observer, about the health of items",
        Domain::ReleaseHooks => "the controller, about the hooks that it runs",
        Domain::HookStatus => "the observer, about how hooks fare",
        Domain::Projector => "the projector, about what it did to the cluster",
        Domain::Deployment => "a CI pipeline, about a deployment",
    }
}

fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}
