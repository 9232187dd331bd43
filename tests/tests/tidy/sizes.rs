//! Limits on the length of files and functions, with a list of exceptions that can only shrink.

use crate::findings::{Finding, expect, settle};
use crate::repository::{File, sources};

const FILE_LIMIT: usize = 600;
const FUNCTION_LIMIT: usize = 70;
const MAIN_LIMIT: usize = 20;

/// Files over the limit, named by path.
const LONG_FILES: &[Exception] = &[];

/// Functions over the limit, named `path::function`.
const LONG_FUNCTIONS: &[Exception] = &[];

/// Something that may be longer than the limit, up to `lines`, and why.
struct Exception {
    place: &'static str,
    lines: usize,
    reason: &'static str,
}

/// Something measured; `place` is what an exception names it by.
struct Size<'a> {
    place: String,
    path: &'a str,
    line: usize,
    lines: usize,
}

#[test]
fn files_are_short() {
    let advice = "split the file by subject; where that hurts the reader, list it in LONG_FILES with the reason";
    settle(too_long(&sources().map(file_size).collect::<Vec<_>>(), FILE_LIMIT, LONG_FILES), advice);
}

#[test]
fn functions_are_short() {
    let sizes: Vec<_> = sources().flat_map(function_sizes).collect();
    let advice = "cut the function; where that hurts the reader, list it in LONG_FUNCTIONS with the reason";
    settle(too_long(&sizes, FUNCTION_LIMIT, LONG_FUNCTIONS), advice);
}

#[test]
fn main_only_calls_the_rest() {
    let mains = sources().filter(|file| file.path.ends_with("/main.rs"));
    let sizes: Vec<_> = mains.map(file_size).collect();
    settle(too_long(&sizes, MAIN_LIMIT, &[]), "move what it does into a module");
}

// === checkers ===

/// What is over `limit` and no exception allows, and every exception that says more than it must.
fn too_long(sizes: &[Size<'_>], limit: usize, exceptions: &[Exception]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for size in sizes {
        let exception = exceptions.iter().find(|exception| exception.place == size.place);
        let allowed = exception.map_or(limit, |exception| exception.lines);
        if size.lines > allowed {
            let what = format!("{} has {} lines of {allowed}", size.place, size.lines);
            findings.push(Finding::new(size.path, size.line, what));
        }
    }
    findings.extend(exceptions.iter().filter_map(|exception| slack(sizes, limit, exception)));
    findings
}

/// What is wrong with an exception, if something is.
fn slack(sizes: &[Size<'_>], limit: usize, exception: &Exception) -> Option<Finding> {
    let named = sizes.iter().filter(|size| size.place == exception.place);
    let what = match named.map(|size| size.lines).max() {
        None => "names nothing that exists: remove it".to_owned(),
        Some(lines) if lines <= limit => "is no longer needed: remove it".to_owned(),
        Some(lines) if lines < exception.lines => format!("can be lowered to {lines}"),
        Some(_) if exception.reason.is_empty() => "has no reason".to_owned(),
        Some(_) => return None,
    };
    Some(Finding::new(exception.place, 1, format!("the exception {what}")))
}

fn file_size(file: &File) -> Size<'_> {
    let (path, lines) = (file.path.as_str(), file.text.lines().count());
    Size { place: path.to_owned(), path, line: 1, lines }
}

/// Each function from its `fn` to its closing brace, as rustfmt lays it out. Comments and blank
/// lines count, for the reader scrolls past them too; clippy's `too_many_lines` leaves them out.
fn function_sizes(file: &File) -> Vec<Size<'_>> {
    let text: Vec<&str> = file.text.lines().collect();
    let named = file.lines().filter_map(|(number, line)| Some((number, function_name(line)?)));
    let sizes = named.map(|(line, name)| {
        let place = format!("{}::{name}", file.path);
        Size { place, path: &file.path, line, lines: function_length(&text[line - 1..]) }
    });
    sizes.collect()
}

/// The name of the function whose `fn` stands on this line.
fn function_name(line: &str) -> Option<&str> {
    const MODIFIERS: [&str; 5] = ["const", "async", "unsafe", "extern", "\"C\""];
    let (before, after) = line.split_once("fn ")?;
    let mut words = before.split_whitespace();
    let declares = words.all(|word| word.starts_with("pub") || MODIFIERS.contains(&word));
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (declares && !name.is_empty()).then_some(name)
}

/// The number of lines of the function that begins on the first of `lines`.
fn function_length(lines: &[&str]) -> usize {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let at_margin = |line: &str| depth(line) == depth(lines[0]);
    let signature = lines.iter().position(|line| at_margin(line) && line.ends_with(['{', '}', ';']));
    let end = match signature {
        Some(end) if !lines[end].ends_with('{') => Some(end),
        _ => lines.iter().position(|line| at_margin(line) && line.trim() == "}"),
    };
    end.map_or(lines.len(), |end| end + 1)
}

// === proofs ===

#[test]
fn the_list_of_exceptions_can_only_shrink() {
    let check = |lines: usize, exceptions: &[Exception], expected: &[&str]| {
        let file = File::new("a.rs", &"\n".repeat(lines));
        expect(&too_long(&[file_size(&file)], 10, exceptions), expected);
    };
    let exception = |place, reason| Exception { place, lines: 12, reason };
    let table = exception("a.rs", "a table");
    check(10, &[], &[]);
    check(11, &[], &["a.rs:1"]);
    check(13, &[table], &["a.rs:1"]);
    check(12, &[exception("a.rs", "a table")], &[]);
    check(11, &[exception("a.rs", "a table")], &["a.rs:1"]);
    check(10, &[exception("a.rs", "a table")], &["a.rs:1"]);
    check(12, &[exception("a.rs", "")], &["a.rs:1"]);
    check(10, &[exception("gone.rs", "a table")], &["gone.rs:1"]);
}

#[test]
fn a_function_is_measured_to_its_own_brace() {
    let text = "\
fn plain() {
    if b {
    }
}
impl A {
    pub(crate) async fn signed(
        d: D,
    ) -> E
    where
        D: E,
    {
        f();
    }
    fn declared();
    fn declared_at_length(
        d: D,
    ) -> E;
}
fn one_line() {}
// fn comment() {
let pointer: fn (u8);
fn endless() {
    b()
";
    let file = File::new("a.rs", text);
    let sizes = function_sizes(&file);
    let sizes: Vec<_> = sizes.iter().map(|s| (s.place.as_str(), s.line, s.lines)).collect();
    let expected = [
        ("a.rs::plain", 1, 4),
        ("a.rs::signed", 6, 8),
        ("a.rs::declared", 14, 1),
        ("a.rs::declared_at_length", 15, 3),
        ("a.rs::one_line", 19, 1),
        ("a.rs::endless", 22, 2),
    ];
    assert_eq!(sizes, expected);
}

#[test]
fn a_long_function_is_found_at_its_own_line() {
    let file = File::new("a.rs", "use b;\nfn c() {\n    d();\n}\n");
    expect(&too_long(&function_sizes(&file), 3, &[]), &[]);
    expect(&too_long(&function_sizes(&file), 2, &[]), &["a.rs:2"]);
}
