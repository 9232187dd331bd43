//! Random histories of one release, over alphabets so small that keys, uids, renders and sequences collide all the time.

use std::collections::BTreeMap;

use proptest::{
    collection::vec,
    option::{of, weighted},
    prelude::*,
    sample::{Index, select},
};
use serde_json::{Value, json};

use crate::model::go;

/// The longest history.
pub const MOST_EVENTS: usize = 60;

/// Group, kind, namespace, name: one name under two groups and two namespaces.
const ITEMS: [[&str; 4]; 3] =
    [["apps", "Deployment", "shop", "api"], ["apps", "Deployment", "", "api"], ["", "Deployment", "shop", "api"]];
const RELEASE_UIDS: [&str; 3] = ["R1", "R2", "R3"];

// Lists, with `|` between their entries.
const SOURCES: &str = "/controller-manager/0|/observer/0|/controller-manager/1";
const NOT_A_STATE: &str = "Fine|Running|Skipped|healthy|";
const UNKNOWN_TYPES: &str = "dev.decklog.ItemExploded.v1|dev.decklog.ItemApplied.v2\
    |dev.decklog.ItemApplied.v01|dev.decklog.itemApplied.v1|dev.decklog.ItemApplied\
    |dev.decklog.ReleaseDeleted.v1.v1|com.example.ReleaseDeleted.v1";

/// What an event says, and about which incarnation if that matters here.
#[derive(Clone, Debug)]
struct Body {
    /// The whole of `type`.
    kind: String,
    /// A null in it is what an absent field is made from.
    data: Value,
    about: Option<Uid>,
}

/// The rest of an event, before it has a place in a history.
#[derive(Clone, Debug)]
struct Envelope {
    source: &'static str,
    /// Of a hundred: how `writerseq` follows the source's last one.
    step: u8,
    about: Uid,
    /// What depends on no other event.
    attributes: Value,
    nulls: Nulls,
    /// A field of the finished event, and what stands there instead; `None` removes it.
    damage: Option<(Index, Option<Value>)>,
}

/// `releaseuid` in relation to the one that was tracked last.
#[derive(Clone, Copy, Debug)]
enum Uid {
    Current,
    Next,
    Named(&'static str),
    Absent,
}

/// How a field without a value is written.
#[derive(Clone, Copy, Debug)]
enum Nulls {
    LeftOut,
    Written,
}

/// Gives events their place: what depends on the events before them.
#[derive(Default)]
struct Writer {
    /// Place of the uid that was tracked last.
    tracked: usize,
    written: usize,
    last: BTreeMap<&'static str, u64>,
}

/// Histories of the release `shop/checkout` in the cluster `default`: JSON lines, oldest first.
pub fn histories() -> impl Strategy<Value = Vec<String>> {
    let opening = weighted(0.9, tracked().prop_map(|body| about(Uid::Current, body)));
    let envelopes = vec(envelope(), MOST_EVENTS);
    (opening, vec(scene(), 1..40), envelopes).prop_map(|(opening, scenes, envelopes)| {
        let bodies = opening.into_iter().chain(scenes.into_iter().flatten());
        let mut writer = Writer::default();
        bodies.zip(envelopes).map(|(body, envelope)| writer.line(body, envelope)).collect()
    })
}

// === Scenes: events that make sense one after the other ===

fn scene() -> impl Strategy<Value = Vec<Body>> {
    prop_oneof![
        60 => body().prop_map(|body| vec![body]),
        3 => return_of_a_render(),
        3 => moved_uid(),
        3 => flapping(),
        3 => assessed_before_it_was_applied(),
        3 => finished_before_it_was_started(),
        3 => runs_of_one_hook(),
        1 => recreation(),
    ]
}

fn return_of_a_render() -> impl Strategy<Value = Vec<Body>> {
    (item(), item_uid(), assessment(), of(assessment())).prop_map(|(item, uid, health, between)| {
        let apply = |render| applied(&item, uid, render, None);
        let first = assessed(&item, uid, "r1", &health);
        let mut all = vec![apply("r1"), first, apply("r2")];
        all.extend(between.map(|health| assessed(&item, uid, "r2", &health)));
        all.push(apply("r1"));
        all
    })
}

fn moved_uid() -> impl Strategy<Value = Vec<Body>> {
    (item(), item(), (render(), render(), render()), assessment()).prop_map(|(from, to, renders, health)| {
        let uid = Some("u1");
        vec![
            applied(&from, uid, renders.0, None),
            assessed(&from, uid, renders.1, &health),
            applied(&to, uid, renders.2, None),
            assessed(&from, uid, renders.2, &health),
        ]
    })
}

fn flapping() -> impl Strategy<Value = Vec<Body>> {
    let healths = vec(assessment(), 2..6);
    (item(), item_uid(), render(), healths).prop_map(|(item, uid, render, healths)| {
        let mut all = vec![applied(&item, uid, render, None)];
        all.extend(healths.iter().map(|health| assessed(&item, uid, render, health)));
        all
    })
}

fn assessed_before_it_was_applied() -> impl Strategy<Value = Vec<Body>> {
    let uids = (item_uid(), item_uid());
    let between = weighted(0.6, prop_oneof![pruned(), any_applied()]);
    let healths = (assessment(), of(assessment()));
    (item(), uids, render(), healths, between).prop_map(|(item, uids, render, healths, between)| {
        let mut all = vec![event("ItemPruned", json!({ "item": item })), assessed(&item, uids.0, render, &healths.0)];
        all.extend(between.map(|body| with(body, "item", item.clone())));
        all.push(applied(&item, uids.1, render, None));
        all.extend(healths.1.map(|health| assessed(&item, uids.1, render, &health)));
        all.push(applied(&item, None, render, None));
        all
    })
}

fn finished_before_it_was_started() -> impl Strategy<Value = Vec<Body>> {
    let started = || hook_started().prop_map(|body| with(body, "createdAt", "2026-03-02T10:00:03Z"));
    let between = vec(prop_oneof![started(), hook_skipped(), hook_removed()], 0..3);
    (hook(), hook_finished(), between, started(), of(started())).prop_map(
        |(hook, finished, between, started, other)| {
            let r1 = |body| with(body, "renderRef", "r1");
            let run = r1(started.clone());
            // A result that was taken is not there for a later run.
            let later = other.map(|other| [with(other, "renderRef", "r2"), r1(started)]);
            let first = [r1(finished)].into_iter().chain(between).chain([run]);
            let all = first.chain(later.into_iter().flatten());
            all.map(|body| with(body, "hook", hook.clone())).collect()
        },
    )
}

fn runs_of_one_hook() -> impl Strategy<Value = Vec<Body>> {
    let runs = vec((render(), hook_started(), hook_finished()), 2..4);
    (hook(), runs).prop_map(|(hook, runs)| {
        let of_run = |body, render: &str| with(with(body, "hook", hook.clone()), "renderRef", render);
        let run = |(render, started, finished)| [of_run(started, render), of_run(finished, render)];
        runs.into_iter().flat_map(run).collect()
    })
}

fn recreation() -> impl Strategy<Value = Vec<Body>> {
    (tracked(), of(Just("ReleaseDeleted"))).prop_map(|(tracked, deleted)| {
        let end = |name| about(Uid::Current, event(name, json!({})));
        let ends = ["ReleaseDeleting"].into_iter().chain(deleted).map(end);
        ends.chain([about(Uid::Next, tracked)]).collect()
    })
}

fn about(uid: Uid, mut body: Body) -> Body {
    body.about = Some(uid);
    body
}

fn with(mut body: Body, field: &str, value: impl Into<Value>) -> Body {
    body.data[field] = value.into();
    body
}

// === Bodies ===

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        24 => any_applied(),
        24 => (item(), item_uid(), render(), assessment())
            .prop_map(|(item, uid, render, health)| assessed(&item, uid, render, &health)),
        6 => pruned(),
        12 => hook_started(),
        12 => hook_finished(),
        6 => (hook(), render(), message()).prop_map(|(hook, render, message)| {
            let data = json!({ "hook": hook, "renderRef": render, "message": message });
            event("HookRunning", data)
        }),
        5 => hook_skipped(),
        2 => hook_removed(),
        4 => tracked(),
        9 => without_a_row(),
        4 => silent(),
    ]
}

fn tracked() -> impl Strategy<Value = Body> {
    let shard = of(one_of("a|b|"));
    shard.prop_map(|shard| event("ReleaseTracked", json!({ "shard": shard })))
}

fn any_applied() -> impl Strategy<Value = Body> {
    let wave = of(select(vec![0, 1, -1, i64::MAX]));
    (item(), item_uid(), render(), wave).prop_map(|(item, uid, render, wave)| applied(&item, uid, render, wave))
}

fn pruned() -> impl Strategy<Value = Body> {
    (item(), item_uid()).prop_map(|(item, uid)| event("ItemPruned", json!({ "item": item, "uid": uid })))
}

fn applied(item: &Value, uid: Option<&str>, render: &str, wave: Option<i64>) -> Body {
    let data = json!({ "item": item, "uid": uid, "renderRef": render, "wave": wave });
    event("ItemApplied", data)
}

fn assessed(item: &Value, uid: Option<&str>, render: &str, health: &Value) -> Body {
    let mut data = health.clone();
    data["item"] = item.clone();
    data["uid"] = uid.into();
    data["assessedRenderRef"] = render.into();
    event("HealthAssessed", data)
}

/// What HealthAssessed says beside its item, uid and render.
fn assessment() -> impl Strategy<Value = Value> {
    let state = prop_oneof![60 => one_of("Healthy|Progressing|Degraded|Unknown"), 1 => one_of(NOT_A_STATE)];
    (state, of(time()), message())
        .prop_map(|(state, first, message)| json!({ "state": state, "firstUnhealthy": first, "message": message }))
}

fn hook_started() -> impl Strategy<Value = Body> {
    let timeout = of(prop_oneof![30 => any_of(go::GOOD_DURATIONS), 1 => select(go::BAD_DURATIONS)]);
    let weight = prop_oneof![
        30 => select(vec![json!(0), json!(-5), json!(i64::MIN)]),
        1 => select(vec![json!(1.0), json!(u64::MAX), json!("5")]),
    ];
    let workload = (one_of("v1|"), of(one_of("shop|")), one_of("job-1|job-2"), workload_uid());
    (hook(), workload, render(), weight, timeout, time()).prop_map(
        |(hook, (version, namespace, name, uid), render, weight, timeout, created)| {
            let workload = json!({
                "group": "batch", "version": version, "kind": "Job",
                "namespace": namespace, "name": name, "uid": uid,
            });
            let data = json!({
                "hook": hook, "workload": workload, "renderRef": render,
                "weight": weight, "timeout": timeout, "createdAt": created,
            });
            event("HookStarted", data)
        },
    )
}

/// A skipped hook may also say what only a started one has: that is an unknown field of it.
fn hook_skipped() -> impl Strategy<Value = Body> {
    (hook_started(), message()).prop_map(|(started, message)| {
        let mut data = started.data;
        data["message"] = message.into();
        event("HookSkipped", data)
    })
}

fn hook_removed() -> impl Strategy<Value = Body> {
    hook().prop_map(|hook| event("HookRemoved", json!({ "hook": hook })))
}

fn hook_finished() -> impl Strategy<Value = Body> {
    let state = prop_oneof![40 => one_of("Succeeded|Failed|TimedOut"), 1 => one_of(NOT_A_STATE)];
    let rest = (of(time()), message(), workload_uid());
    (hook(), render(), state, rest).prop_map(|(hook, render, state, (time, message, uid))| {
        let data = json!({
            "hook": hook, "renderRef": render, "state": state,
            "finishedAt": time, "message": message, "workloadUid": uid,
        });
        event("HookFinished", data)
    })
}

/// Types that say something and leave no row.
fn without_a_row() -> impl Strategy<Value = Body> {
    let texts = (one_of("denied|"), message(), one_of("Succeeded|Failed|Aborted|Lost"));
    (item(), render(), texts).prop_flat_map(|(item, render, (reason, message, outcome))| {
        let started = json!({ "renderRef": render, "revision": message, "items": 0 });
        let finished = json!({ "renderRef": render, "outcome": outcome, "message": message });
        let not_applied = json!({ "item": item, "renderRef": render, "message": reason });
        let not_pruned = json!({ "item": item, "message": reason });
        let refused = json!({ "fieldManager": "hand", "reason": reason, "message": reason });
        select(vec![
            event("SyncStarted", started),
            event("SyncFinished", finished),
            event("ItemApplyFailed", not_applied),
            event("ItemPruneFailed", not_pruned),
            event("ProjectionRefused", refused),
        ])
    })
}

/// Types that have nothing to say, and types that nobody knows, under all forms of empty data.
fn silent() -> impl Strategy<Value = Body> {
    let ours = one_of("ReleaseDeleting|ReleaseDeleting|InventoryDeleted|ReleaseDeleted");
    let ours = ours.prop_map(|name| event(name, Value::Null).kind);
    let kind = prop_oneof![2 => ours, 1 => one_of(UNKNOWN_TYPES).prop_map(str::to_owned)];
    let added = json!({ "added": { "later": [1, null] } });
    let data = select(vec![json!({}), Value::Null, added]);
    (kind, data).prop_map(|(kind, data)| Body { kind, data, about: None })
}

fn event(name: &str, data: Value) -> Body {
    Body { kind: format!("dev.decklog.{name}.v1"), data, about: None }
}

// === Values ===

fn one_of(list: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    select(list.split('|').collect::<Vec<_>>())
}

/// One of the texts that Go takes, without the verdict.
fn any_of(verdicts: &'static [(&str, &str)]) -> impl Strategy<Value = &'static str> {
    select(verdicts).prop_map(|(text, _)| text)
}

fn item() -> impl Strategy<Value = Value> {
    (select(&ITEMS[..]), one_of("v1|v1|v1|v1beta1|")).prop_map(|(key, version)| {
        let [group, kind, namespace, name] = key;
        json!({
            "group": group, "kind": kind, "namespace": namespace, "name": name,
            "version": version,
        })
    })
}

fn item_uid() -> impl Strategy<Value = Option<&'static str>> {
    weighted(0.75, one_of("u1|u1|u1|u1|u1|u1|u2|u3|"))
}

fn workload_uid() -> impl Strategy<Value = Option<&'static str>> {
    weighted(0.6, one_of("w1|w1|w1|w2|"))
}

fn render() -> impl Strategy<Value = &'static str> {
    one_of("r1|r1|r1|r1|r1|r2|r2|r2|r3")
}

fn hook() -> impl Strategy<Value = Value> {
    let phase = prop_oneof![60 => one_of("PreSync|PostSync"), 1 => one_of("DuringSync|presync|")];
    (one_of("migrate|seed"), phase).prop_map(|(name, phase)| json!({ "name": name, "phase": phase }))
}

fn message() -> impl Strategy<Value = Option<String>> {
    let long = vec![
        "x".repeat(1_024),
        "x".repeat(1_025),
        format!("{}é", "x".repeat(1_022)),
        format!("{}é…", "x".repeat(1_020)),
        "🦀".repeat(300),
    ];
    let short = one_of("pulling|ready|").prop_map(str::to_owned);
    of(prop_oneof![9 => short, 1 => select(long)])
}

/// Ten seconds, with fractions and under several offsets: order in text is not order in time.
fn time() -> impl Strategy<Value = String> {
    let zone = select(vec![("Z", 0), ("Z", 0), ("+00:00", 0), ("+01:30", 90), ("-05:00", -300)]);
    let fraction = one_of("||.5|.000000001|.999999999");
    let usual = (0..10_u32, fraction, zone).prop_map(|(second, fraction, (zone, minutes))| {
        let (hour, minute) = ((600 + minutes) / 60, (600 + minutes) % 60);
        format!("2026-03-02T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
    });
    prop_oneof![
        60 => usual,
        2 => any_of(go::GOOD_TIMES).prop_map(str::to_owned),
        1 => select(go::BAD_TIMES).prop_map(str::to_owned),
    ]
}

// === Envelopes ===

fn envelope() -> impl Strategy<Value = Envelope> {
    let about = prop_oneof![
        80 => Just(Uid::Current),
        6 => select(&RELEASE_UIDS[..]).prop_map(Uid::Named),
        8 => Just(Uid::Absent),
        1 => Just(Uid::Named("")),
    ];
    let nulls = prop_oneof![4 => Just(Nulls::LeftOut), 1 => Just(Nulls::Written)];
    let damage = weighted(0.06, (any::<Index>(), other_value()));
    (one_of(SOURCES), 0..100_u8, about, attributes(), nulls, damage).prop_map(
        |(source, step, about, attributes, nulls, damage)| Envelope { source, step, about, attributes, nulls, damage },
    )
}

fn attributes() -> impl Strategy<Value = Value> {
    let term = weighted(0.2, prop_oneof![0..4_u64, Just(3)]);
    let id = weighted(0.2, one_of("id-a|id-b|id-c"));
    let other = select(vec![
        json!({}),
        json!({}),
        json!({ "correlationid": "sync-1", "traceparent": null }),
        json!({ "correlationid": null, "traceparent": "" }),
        json!({ "addedlater": [1, { "x": null }] }),
    ]);
    (time(), term, of(one_of("default|default|")), id, other).prop_map(|(time, term, cluster, id, mut attributes)| {
        attributes["time"] = time.into();
        attributes["term"] = term.into();
        attributes["cluster"] = cluster.into();
        attributes["id"] = id.into();
        attributes
    })
}

/// What stands in a damaged field.
fn other_value() -> impl Strategy<Value = Option<Value>> {
    let values = json!([null, 7, 0, -1, 1.0, 1.5, true, "", "text", [], {}, ["r1", null]]);
    let values = values.as_array().cloned().unwrap_or_default();
    weighted(0.8, select(values))
}

// === impl Writer ===

impl Writer {
    fn line(&mut self, body: Body, envelope: Envelope) -> String {
        let mut event = envelope.attributes;
        self.written += 1;
        if event["id"].is_null() {
            event["id"] = format!("00000000-0000-7000-8000-{:012}", self.written).into();
        }
        event["releaseuid"] = self.uid(&body, envelope.about).into();
        event["writerseq"] = self.writerseq(envelope.source, envelope.step).into();
        event["specversion"] = "1.0".into();
        event["source"] = envelope.source.into();
        event["subject"] = "shop/checkout".into();
        event["type"] = body.kind.into();
        event["data"] = body.data;
        if matches!(envelope.nulls, Nulls::LeftOut) {
            leave_out_nulls(&mut event);
        }
        if let Some((field, value)) = envelope.damage {
            damage(&mut event, &field, value);
        }
        event.to_string()
    }

    fn uid(&mut self, body: &Body, about: Uid) -> Option<&'static str> {
        let uid = match body.about.unwrap_or(about) {
            Uid::Current => RELEASE_UIDS[self.tracked],
            Uid::Next => RELEASE_UIDS[(self.tracked + 1) % RELEASE_UIDS.len()],
            Uid::Named(uid) => uid,
            Uid::Absent => return None,
        };
        if body.kind == "dev.decklog.ReleaseTracked.v1" {
            let place = RELEASE_UIDS.iter().position(|known| *known == uid);
            self.tracked = place.unwrap_or(self.tracked);
        }
        Some(uid)
    }

    fn writerseq(&mut self, source: &'static str, step: u8) -> Option<u64> {
        let last = self.last.entry(source).or_default();
        let seq = match step {
            0..84 => *last + 1,
            84..87 => (*last).max(1),
            87 => (*last / 2).max(1),
            88..90 => *last + 3,
            _ => return None,
        };
        *last = seq.max(*last);
        Some(seq)
    }
}

fn leave_out_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(leave_out_nulls);
    }
}

/// Damages one field, but never what says which release the event is about.
fn damage(event: &mut Value, field: &Index, value: Option<Value>) {
    let mut paths = Vec::new();
    list_fields(event, "", &mut paths);
    paths.retain(|path| path != "/subject" && path != "/cluster");
    let path = field.get(&paths);
    // An empty type might be called unsupported or invalid.
    if path == "/type" && value.as_ref().is_some_and(|value| value == "") {
        return;
    }
    let (parent, key) = path.rsplit_once('/').unwrap_or_default();
    if let Some(fields) = event.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(key);
        fields.extend(value.map(|value| (key.to_owned(), value)));
    }
}

fn list_fields(value: &Value, path: &str, paths: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        list_fields(value, &path, paths);
        paths.push(path);
    }
}
