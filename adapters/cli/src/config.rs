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
    /// The format of `-o` for `at` and `timeline`.
    output: Option<String>,
}

impl Config {
    /// Reads the file that was named, or the user's own if it is there.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Error> {
        let (path, must_exist) = match named {
            Some(path) => (path.to_owned(), true),
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
        let config: Self =
            toml::from_str(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        config.format()?;
        Ok(config)
    }

    /// The log that a command works on: the flag or its variable, else the file, else the user's embedded log.
    pub(crate) fn log(&self, given: Option<LogAddress>) -> Result<LogAddress, Error> {
        if let Some(address) = given {
            return Ok(address);
        }
        if let Some(text) = &self.log {
            return text.parse().map_err(|error| Failure::usage(format!("log in the configuration file: {error}")));
        }
        let folder = home("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
            Failure::usage("there is no home folder for the embedded log: name one with --from or --to")
        })?;
        Ok(LogAddress::Folder(folder.join("decklog")))
    }

    /// The format that a command prints.
    pub(crate) fn output(&self, given: Option<Format>) -> Result<Format, Error> {
        match given {
            Some(format) => Ok(format),
            None => Ok(self.format()?.unwrap_or(Format::Table)),
        }
    }

    fn format(&self) -> Result<Option<Format>, Error> {
        let parse = |text: &String| {
            clap::ValueEnum::from_str(text, false).map_err(|error: String| {
                Failure::usage(format!("output = {text:?} in the configuration file: {error}: use table, json or yaml"))
            })
        };
        self.output.as_ref().map(parse).transpose()
    }
}

fn home(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}
