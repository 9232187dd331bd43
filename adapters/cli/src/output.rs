//! Output: the one place that writes to the terminal, in tables, JSON or YAML.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Error};
use indicatif::ProgressBar;
use serde::Serialize;
use tabwriter::TabWriter;

/// Writes text to standard output; colours only where a terminal shows them and `NO_COLOR` is not set.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// Writes bytes to standard output as they are, whatever they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// Writes a line to standard error. Where even that fails there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Pretty JSON with a line feed.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Whether the reader of standard output has gone, as `head` does.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A table: a header, and cells that fit their column.
pub(crate) struct Table {
    text: String,
}

/// A cell: text that came from an event is shown, and never steers the terminal.
pub(crate) struct Cell(String);

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(harmless(&text))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self(harmless(text))
    }
}

impl Cell {
    /// The text, fit to be printed.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    /// Text in the colour of its tone.
    pub(crate) fn tinted(text: &str, tone: Tone) -> Self {
        Self(tinted(&harmless(text), tone))
    }
}

/// Text without the characters that move the cursor, change colours or turn the direction of writing.
pub(crate) fn harmless(text: &str) -> String {
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Self { text: String::new() };
        table.row(header.iter().map(|cell| Cell::from(*cell)));
        table
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<_> = cells.into_iter().map(|Cell(text)| text).collect();
        self.text.push_str(&cells.join("\t"));
        self.text.push('\n');
    }

    /// The lines, columns three spaces apart as kubectl has them, nothing at the ends of lines.
    pub(crate) fn render(self) -> Result<String, Error> {
        let mut writer = TabWriter::new(Vec::new()).padding(3).ansi(true);
        writer.write_all(self.text.as_bytes())?;
        let bytes = writer.into_inner().map_err(|error| Error::msg(error.to_string()))?;
        let text = String::from_utf8(bytes)?;
        Ok(text.lines().fold(String::new(), |mut lines, line| {
            let _ = writeln!(lines, "{}", line.trim_end());
            lines
        }))
    }
}

/// What a state means for people in a hurry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    Good,
    Waiting,
    Bad,
    Dim,
}

/// Text in the colour of its tone.
pub(crate) fn tinted(text: &str, tone: Tone) -> String {
    let style = match tone {
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Waiting => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Dim => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// A spinner on a terminal's standard error for what takes more than a second; it goes when dropped.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn start(what: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::hidden().with_message(what);
        let shown = bar.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(1));
            if !shown.is_finished() {
                shown.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                shown.enable_steady_tick(Duration::from_millis(100));
            }
        });
        Self(Some(bar))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
