//! Every scenario through the fold: the outcome of each event, and the object at the end.
//!
//! `UPDATE_EXPECT=1` rewrites the expected side, for a person to read in the diff.

use std::path::Path;

use decklog_engine::Projection as _;
use decklog_projections::inventory::Inventories;
use decklog_schemas::{Outcome, Record, ReleaseKey, Sequence};
use decklog_tests::binary::root;
use decklog_tests::scenario::{Scenario, decided};
use serde_json::Value;

/// What the product makes of a scenario.
struct Got {
    outcomes: Vec<String>,
    object: Option<Value>,
}

fn fold(scenario: &Scenario) -> Got {
    let key = ReleaseKey::new("default", "shop", "checkout");
    let subjects = format!("decklog.release.{}.", key.tokens());
    let text = std::fs::read(&scenario.events).expect("the events can be read");
    let (mut inventories, mut outcomes) = (Inventories::default(), Vec::new());
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let sequence = Sequence::new(number).expect("lines count from 1");
        let Ok(record) = Record::of_event(sequence, line) else { continue };
        let outcome = inventories.fold(&record).expect("the subject comes from the event");
        if record.subject.starts_with(&subjects) {
            outcomes.push(in_words(outcome));
        }
    }
    let object = inventories.object(&key).map(|object| serde_json::to_value(object).expect("objects are JSON"));
    Got { outcomes, object }
}

fn in_words(outcome: Outcome) -> String {
    outcome.reason().map_or("folded", |reason| reason.as_str()).to_owned()
}

fn check_folder(folder: &Path) {
    let mut wrong = Vec::new();
    for scenario in Scenario::all(folder) {
        let got = fold(&scenario);
        let is_right = got.outcomes == scenario.outcomes
            && got.object.as_ref().map(decided) == scenario.object.as_ref().map(decided);
        if is_right {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            rewrite(&scenario, &got);
            continue;
        }
        wrong.push(format!(
            "{}\n  expected {:?}\n  got      {:?}\n  expected {:?}\n  got      {:?}",
            scenario.events.display(),
            scenario.outcomes,
            got.outcomes,
            scenario.object.as_ref().map(|object| decided(object).to_string()),
            got.object.as_ref().map(|object| decided(object).to_string()),
        ));
    }
    assert!(
        wrong.is_empty(),
        "{} scenarios are wrong; UPDATE_EXPECT=1 rewrites them:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn rewrite(scenario: &Scenario, got: &Got) {
    let object = match &got.object {
        Some(object) => serde_saphyr::to_string(object).expect("objects are YAML"),
        None => "absent: true\n".to_owned(),
    };
    let outcomes: String = got.outcomes.iter().map(|outcome| format!("{outcome}\n")).collect();
    std::fs::write(scenario.events.with_extension("yaml"), format!("{}\n{object}", scenario.about()))
        .expect("writable");
    std::fs::write(scenario.events.with_extension("outcomes"), outcomes).expect("writable");
}

#[test]
fn every_scenario_folds_as_it_says() {
    check_folder(&root().join("tests/scenarios"));
}

#[test]
fn the_demo_ends_as_it_says() {
    let demo = root().join("adapters/cli/demo");
    let events = demo.join("incident.jsonl");
    let object = std::fs::read_to_string(demo.join("incident.yaml")).expect("the demo has its object");
    let object = serde_saphyr::from_str(&object).expect("the object is YAML");
    let scenario = Scenario { name: "incident".to_owned(), events, outcomes: Vec::new(), object: Some(object) };
    let got = fold(&scenario);
    assert_eq!(got.object.as_ref().map(decided), scenario.object.as_ref().map(decided));
    let ignored: Vec<_> = got.outcomes.iter().zip(1..).filter(|(outcome, _)| *outcome != "folded").collect();
    let expected = [("stale-render", 68), ("duplicate", 71), ("stale-term", 118)];
    assert_eq!(
        ignored,
        expected.map(|(reason, line)| (reason.to_owned(), line)).iter().map(|(r, l)| (r, *l)).collect::<Vec<_>>()
    );
}

/// What the contract's own cases say; they lie beside the checkout where the project is developed.
#[test]
fn every_shared_case_folds_as_it_says() {
    let folder = root().join("../shared/cases");
    if folder.is_dir() {
        check_folder(&folder);
    }
}
