//! The configuration file: defaults for flags that a user would type each time.

use std::path::{Path, PathBuf};

use anyhow::Error;
use serde::Deserialize;

use crate::args::Format;
use crate::exit::Failure;
use crate::source::LogAddress;

/// What the configuration file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The log of `--from`, `--to` and `--data`.
    log: Option<String>,
    /// The cluster of `--cluster`.
    cluster: Option<String>,
    /// The context of the NATS CLI of `--nats-context`.
    nats_context: Option<String>,
    /// The format of `-o` for `at` and `timeline`.
    output: Option<String>,
}

impl Config {
    /// Reads the file that was named, or the user's own if it is there.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Error> {
        let named = named.map(Path::to_owned).or_else(|| variable("DECKLOG_CONFIG").map(PathBuf::from));
        let (path, must_exist) = match named {
            Some(path) => (path, true),
            None => match home("XDG_CONFIG_HOME", ".config") {
                Some(folder) => (folder.join("decklog/config.toml"), false),
                None => return Ok(Self::default()),
            },
        };
        if !must_exist && !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        let config: Self = toml::from_str(&text).map_err(|error| Failure::usage(in_place(&path, &text, &error)))?;
        config.format()?;
        Ok(config)
    }

    /// The log that a command works on: the flag, else the variable, else the file, else the user's embedded log.
    pub(crate) fn log(&self, given: Option<LogAddress>) -> Result<LogAddress, Error> {
        if let Some(address) = given {
            return Ok(address);
        }
        let named = |place: &str, text: &str| {
            let text = text.strip_prefix("~/").map_or_else(
                || Some(PathBuf::from(text)),
                |below| Some(variable("HOME").map(PathBuf::from)?.join(below)),
            );
            let text = text.as_deref().and_then(Path::to_str).unwrap_or_default();
            text.parse().map_err(|error| Failure::usage(format!("{place}: {error}")))
        };
        if let Some(text) = variable("DECKLOG_LOG") {
            return named("DECKLOG_LOG", &text);
        }
        if let Some(text) = &self.log {
            return named("log in the configuration file", text);
        }
        self.data_folder().map(LogAddress::Folder)
    }

    /// Whether the file names a log.
    pub(crate) fn names_log(&self) -> bool {
        self.log.is_some()
    }

    /// The context of the NATS CLI that the file names.
    pub(crate) fn nats_context(&self) -> Option<&str> {
        self.nats_context.as_deref()
    }

    /// The user's own folder for what decklog keeps.
    pub(crate) fn data_folder(&self) -> Result<PathBuf, Error> {
        let folder = home("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
            Failure::usage("there is no home folder for what decklog keeps: name one with --from, --to or --data")
        })?;
        Ok(folder.join("decklog"))
    }

    /// The cluster that a command asks for: the flag, else the variable, else the file; none if nobody says.
    pub(crate) fn cluster(&self, given: Option<String>) -> Option<String> {
        given.or_else(|| variable("DECKLOG_CLUSTER")).or_else(|| self.cluster.clone())
    }

    /// The format that a command prints.
    pub(crate) fn output(&self, given: Option<Format>) -> Result<Format, Error> {
        match (given, variable("DECKLOG_OUTPUT")) {
            (Some(format), _) => Ok(format),
            (None, Some(text)) => format("DECKLOG_OUTPUT", &text),
            (None, None) => Ok(self.format()?.unwrap_or(Format::Table)),
        }
    }

    fn format(&self) -> Result<Option<Format>, Error> {
        self.output.as_deref().map(|text| format("output in the configuration file", text)).transpose()
    }
}

fn format(place: &str, text: &str) -> Result<Format, Error> {
    clap::ValueEnum::from_str(text, false)
        .map_err(|_| Failure::usage(format!("{place} is {text:?}, and must be table, json or yaml")))
}

/// What is wrong in the file and where, without its text, which may be a secret.
fn in_place(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("{}, line {}: {}", path.display(), before.matches('\n').count() + 1, error.message())
}

/// An environment variable; one that is empty says nothing.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The folder that a variable names, else one below the home folder.
pub(crate) fn home(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}
