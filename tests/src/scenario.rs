//! Scenarios: a history, the outcome of each event, and the object that it gives, as three files of one name.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name without an ending.
    pub name: String,
    /// The events, one CloudEvent a line.
    pub events: PathBuf,
    /// The outcome of each event of the release: `folded`, or the reason why it was ignored.
    pub outcomes: Vec<String>,
    /// The object; none if there is to be none.
    pub object: Option<Value>,
}

impl Scenario {
    /// All scenarios of a folder, sorted by name.
    ///
    /// # Panics
    /// A file is missing or cannot be read: a scenario that is not run proves nothing.
    #[must_use]
    pub fn all(folder: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        assert!(!paths.is_empty(), "there is no scenario in {}", folder.display());
        paths.into_iter().map(Self::read).collect()
    }

    fn read(events: PathBuf) -> Self {
        let text = |ending: &str| {
            let path = events.with_extension(ending);
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let object: Value = serde_saphyr::from_str(&text("yaml"))
            .unwrap_or_else(|error| panic!("{}: {error}", events.with_extension("yaml").display()));
        Self {
            name: events.file_stem().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned(),
            outcomes: text("outcomes").lines().map(str::to_owned).collect(),
            object: (object["absent"] != true).then_some(object),
            events,
        }
    }

    /// The first line of the YAML file, which says what the scenario proves.
    #[must_use]
    pub fn about(&self) -> String {
        let text = std::fs::read_to_string(self.events.with_extension("yaml")).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    }
}

/// The part of an object that the fold decides.
#[must_use]
pub fn decided(object: &Value) -> Value {
    serde_json::json!({
        "labels": object["metadata"]["labels"],
        "inventory": object["inventory"],
        "hooks": object["hooks"],
    })
}
