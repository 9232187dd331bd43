//! What every test here begins with: servers, a history of one release, and what the log and the audit log tell.
//!
//! Which test covers which row of `faults.md` A that concerns a writer. `check_audit` ends each of them, and `settle`
//! compares the owners of every field (S3, S13, S15, S32, S33: also all histories of `kube_project`).
//!
//! | row | covered by |
//! | --- | --- |
//! | S1, S2, S6, S7 order of creation and removal | `kills`: who applies, in order, and each prefix of it |
//! | S4, S5 ghosts | `hands::edited` (ghost added), `kills` |
//! | S9 a hook that is rendered again | `kills`, second pass |
//! | S10, S11 force, and what is taken over | `hands::edited`, `Way::Apply` |
//! | S12, S14 empty keys | `hands::edited` (ghost of the core group), `kube_project` |
//! | S16, S17 duplicate keys | the fold has one row of a key: `kube_project` |
//! | S18 unknown field | `definitions` |
//! | S19, S20 empty bodies | `hands::edited` (all rows removed), `releases`, `kube_project` |
//! | S21, S22 what is there is not sent again | `kube_project`, `logs::put_back_to_an_older_backup` |
//! | S23 order of rows | `kube_project`: owners and rows as the log sorts them |
//! | S24, S25 uid and resourceVersion | `leaders::the_leader_paused_past_its_lease`, `hands::deleted`, `releases` |
//! | S26 terminating objects | `hands::deleted` |
//! | S28 the shard label | `hands::edited` (label changed, removed) |
//! | S30 rows written by Update under our names | `hands::edited`, `hands::made_before` |
//! | S31 one writer of an object | `leaders` |
//! | S34 namespaces | `namespaces` |
//! | S35 `managedFields` | `hands::edited`, `Way::Wipe` |
//! | S36 sizes | `sizes` |
//! | S38 the four names | `settle`, everywhere |

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use decklog_tests::binary;
use decklog_tests::kube::{ControlPlane, audit};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::projector::{make_namespace, stored};
use serde_json::{Value, json};
use uuid::Uuid;

/// The label by which releases are sharded.
pub(crate) const SHARD_LABEL: &str = "core.convoy.kumodo.io/shard";

/// Events of one release, each as a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Story<'a> {
    namespace: &'a str,
    release: &'a str,
    uid: Option<&'a str>,
}

/// A control plane with the definition and the namespace `shop`, and a NATS server with the stream.
pub(crate) fn servers() -> (ControlPlane, NatsServer) {
    let (plane, server) = (ControlPlane::start(), NatsServer::start());
    plane.install_crd();
    make_namespace(&plane, "shop");
    api::init(&server.url(), 1);
    (plane, server)
}

/// Who applied to an object, and was answered with success, in order.
pub(crate) fn managers(plane: &ControlPlane, name: &str) -> Vec<String> {
    let log = plane.audit();
    let of_it = audit::writes(&log).filter(|line| line["objectRef"]["name"] == name && audit::code(line) < 300);
    of_it.filter(|line| audit::user_agent(line).starts_with("decklog/")).map(audit::field_manager).collect()
}

/// How many writes, whatever the answer, name an object.
pub(crate) fn writes_of(plane: &ControlPlane, name: &str) -> usize {
    let log = plane.audit();
    audit::writes(&log).filter(|line| line["requestURI"].as_str().is_some_and(|uri| uri.contains(name))).count()
}

/// How many events of a type the timeline of a release of `shop` shows as folded.
pub(crate) fn count_in_timeline(servers: &str, release: &str, name: &str) -> usize {
    let text = binary::stdout(["timeline", "--from", servers, "-n", "shop", release, "-o", "json"]);
    let events: Vec<Value> = serde_json::from_str(&text).expect("it is a list");
    let wire = format!("dev.decklog.{name}.v1");
    events.iter().filter(|event| event["type"] == wire && event["outcome"] == "folded").count()
}

/// A whole number without labels as it is scraped at a port of the loopback; none before it is there.
pub(crate) fn metric(port: u16, name: &str) -> Option<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim_end_matches(".0").parse().ok())
}

/// `metadata.uid` and `metadata.resourceVersion` of every object.
pub(crate) fn versions(plane: &ControlPlane) -> BTreeMap<String, String> {
    let list = stored(plane);
    let objects = list["items"].as_array().expect("it is a list");
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        (metadata["name"].to_string(), format!("{} {}", metadata["uid"], metadata["resourceVersion"]))
    };
    objects.iter().map(version).collect()
}

// === impl Story ===

impl<'a> Story<'a> {
    pub(crate) fn of(namespace: &'a str, release: &'a str) -> Self {
        Self { namespace, release, uid: None }
    }

    /// The same release in another incarnation.
    pub(crate) fn uid(self, uid: &'a str) -> Self {
        Self { uid: Some(uid), ..self }
    }

    pub(crate) fn tracked(&self, shard: &str) -> String {
        self.line("ReleaseTracked", &json!({ "shard": shard }))
    }

    pub(crate) fn deleted(&self) -> String {
        self.line("ReleaseDeleted", &json!({}))
    }

    pub(crate) fn applied(&self, name: &str, render: &str) -> String {
        self.line("ItemApplied", &json!({ "item": item(name), "renderRef": render, "wave": 1 }))
    }

    pub(crate) fn pruned(&self, name: &str) -> String {
        self.line("ItemPruned", &json!({ "item": item(name) }))
    }

    pub(crate) fn assessed(&self, name: &str, state: &str, render: &str) -> String {
        self.line("HealthAssessed", &json!({ "item": item(name), "state": state, "assessedRenderRef": render }))
    }

    pub(crate) fn failed(&self, name: &str, message: &str) -> String {
        let data = json!({ "item": item(name), "state": "Degraded", "assessedRenderRef": "r1", "message": message });
        self.line("HealthAssessed", &data)
    }

    pub(crate) fn hook_started(&self, name: &str, render: &str) -> String {
        let workload = json!({ "group": "batch", "version": "v1", "kind": "Job", "namespace": "shop", "name": name });
        let data = json!({
            "hook": hook(name), "workload": workload, "renderRef": render, "weight": 1, "createdAt": "2026-03-02T10:00:00Z",
        });
        self.line("HookStarted", &data)
    }

    pub(crate) fn hook_finished(&self, name: &str, render: &str) -> String {
        self.line("HookFinished", &json!({ "hook": hook(name), "renderRef": render, "state": "Succeeded" }))
    }

    /// Two items with their health, a finished hook and a running one, and a shard.
    pub(crate) fn whole(&self) -> String {
        [
            self.tracked("blue"),
            self.applied("a", "r1"),
            self.applied("b", "r1"),
            self.assessed("a", "Healthy", "r1"),
            self.assessed("b", "Degraded", "r1"),
            self.hook_started("migrate", "r1"),
            self.hook_finished("migrate", "r1"),
            self.hook_started("warm", "r1"),
        ]
        .concat()
    }

    fn line(&self, name: &str, data: &Value) -> String {
        let mut event = json!({
            "specversion": "1.0",
            "id": Uuid::now_v7().to_string(),
            "source": "/tests/1",
            "type": format!("dev.decklog.{name}.v1"),
            "subject": format!("{}/{}", self.namespace, self.release),
            "time": "2026-03-02T10:00:00Z",
            "data": data,
        });
        if let Some(uid) = self.uid {
            event["releaseuid"] = json!(uid);
        }
        format!("{event}\n")
    }
}

fn item(name: &str) -> Value {
    json!({ "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name })
}

fn hook(name: &str) -> Value {
    json!({ "name": name, "phase": "PreSync" })
}
