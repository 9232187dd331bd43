//! Random histories, and every scenario: the fold and the naive model agree on each outcome and on the object.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use decklog_tests::{history::histories, model};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use serde_json::Value;

/// The product, as far as this test knows it.
mod product {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use decklog_engine::Projection as _;
    use decklog_projections::inventory::Inventories;
    use decklog_schemas::{Outcome, Record, ReleaseKey, Sequence};

    use super::Answers;

    /// What the product's fold makes of a history of `shop/checkout`; a panic is an outcome too.
    pub(crate) fn answers(history: &[String]) -> Answers {
        let mut inventories = Inventories::default();
        let mut outcomes = Vec::new();
        let mut sequence = Sequence::FIRST;
        for line in history {
            let outcome = catch_unwind(AssertUnwindSafe(|| fold(&mut inventories, sequence, line)));
            outcomes.push(outcome.unwrap_or_else(|_| "panicked".to_owned()));
            sequence = sequence.next();
        }
        let checkout = ReleaseKey::new("default", "shop", "checkout");
        let object = inventories.object(&checkout);
        let object = object.map(|object| serde_json::to_value(object).expect("an object has a JSON form"));
        Answers { outcomes, object }
    }

    fn fold(inventories: &mut Inventories, sequence: Sequence, line: &str) -> String {
        let outcome = Record::of_event(sequence, line.as_bytes()).and_then(|record| inventories.fold(&record));
        match outcome {
            Ok(Outcome::Folded) => "folded".to_owned(),
            Ok(Outcome::Ignored(reason)) => reason.to_string(),
            Err(quarantined) => format!("quarantined: {quarantined}"),
        }
    }
}

/// One side's view of a history.
#[derive(PartialEq)]
struct Answers {
    /// `folded`, or the reason.
    outcomes: Vec<String>,
    object: Option<Value>,
}

#[test]
fn the_fold_and_the_model_agree_on_random_histories() {
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let agree = |history: Vec<String>| match disagree(&history) {
        true => Err(TestCaseError::fail("the fold and the model disagree")),
        false => Ok(()),
    };
    match TestRunner::new(config).run(&histories(), agree) {
        Ok(()) => {}
        Err(TestError::Fail(_, history)) => panic!("{}", report(&without_the_rest(history))),
        Err(TestError::Abort(reason)) => panic!("no history could be made: {reason}"),
    }
}

#[test]
fn the_model_passes_every_scenario() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = scenarios(&package.join("scenarios"));
    let shared = scenarios(&package.join("../../shared/cases"));
    assert!(!ours.is_empty(), "there is no scenario in {}", package.display());
    for scenario in ours.iter().chain(&shared) {
        let given = lines_of_checkout(&read(scenario));
        let model = by_model(&given);
        let expected = expected(scenario);
        let name = scenario.display();
        assert_eq!(model.outcomes, expected.outcomes, "outcomes of {name}");
        assert_eq!(model.object, expected.object, "object of {name}");
    }
}

// === Random histories ===

fn cases() -> u32 {
    std::env::var("DECKLOG_CASES").map_or(3_000, |cases| cases.parse().expect("DECKLOG_CASES is a number of histories"))
}

fn disagree(history: &[String]) -> bool {
    product::answers(history) != by_model(history)
}

fn by_model(history: &[String]) -> Answers {
    let (outcomes, object) = model::answers(history);
    let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or("folded").to_owned());
    Answers { outcomes: outcomes.collect(), object }
}

/// Leaves out every event that the disagreement does not need.
fn without_the_rest(mut history: Vec<String>) -> Vec<String> {
    let mut length = history.len() + 1;
    while history.len() < length {
        length = history.len();
        for n in (0..length).rev() {
            let mut shorter = history.clone();
            shorter.remove(n);
            if disagree(&shorter) {
                history = shorter;
            }
        }
    }
    history
}

/// Writes the history where `decklog` can open it, and says what to run and what each side answered.
fn report(history: &[String]) -> String {
    let text = history.join("\n") + "\n";
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("failed-histories");
    let file = folder.join(format!("{:016x}.jsonl", hasher.finish()));
    fs::create_dir_all(&folder).expect("the folder of failed histories can be made");
    fs::write(&file, text).expect("a failed history can be written");
    let (fold, model) = (product::answers(history), by_model(history));
    let mut report = format!(
        "the fold and the model disagree; look at it with\n\
         \x20   decklog timeline --from {} -n shop checkout\n",
        file.display()
    );
    for (n, line) in history.iter().enumerate() {
        let (fold, model) = (&fold.outcomes[n], &model.outcomes[n]);
        let mark = if fold == model { ' ' } else { '!' };
        let _ = writeln!(report, "{mark} {}: fold {fold}, model {model}\n      {line}", n + 1);
    }
    for (side, object) in [("fold", fold.object), ("model", model.object)] {
        let object = object.map_or_else(|| "no object".to_owned(), |object| format!("{object:#}"));
        let _ = writeln!(report, "{side}: {object}");
    }
    report
}

// === Scenarios ===

/// The `.jsonl` files of a folder, in the order of their names; none if there is no such folder.
fn scenarios(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect::<Vec<_>>();
    files.sort_unstable();
    files
}

/// The lines that are events of `shop/checkout` in the cluster `default`.
fn lines_of_checkout(text: &str) -> Vec<String> {
    let is_of_checkout = |line: &&str| {
        serde_json::from_str::<Value>(line).is_ok_and(|event| {
            let cluster = event["cluster"].as_str().unwrap_or_default();
            event["subject"] == "shop/checkout" && ["", "default"].contains(&cluster)
        })
    };
    text.lines().filter(is_of_checkout).map(str::to_owned).collect()
}

fn expected(scenario: &Path) -> Answers {
    let outcomes = read(&scenario.with_extension("outcomes"));
    let yaml = read(&scenario.with_extension("yaml"));
    let object: Value =
        serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{} is no YAML: {error}", scenario.display()));
    Answers {
        outcomes: outcomes.lines().map(str::to_owned).collect(),
        object: Some(object).filter(|object| object["absent"] != true),
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
