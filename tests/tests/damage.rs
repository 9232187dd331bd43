//! Damaged files, through the real binary: a checkpoint is set aside and rebuilt, a log is reported and never shortened.

use std::fs;
use std::path::{Path, PathBuf};

use decklog_tests::binary::{self, Up};
use tempfile::TempDir;

/// How a file is damaged.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Bits flipped in the middle of what is not zero.
    Flipped,
    /// Cut off at half its length.
    Halved,
    /// Emptied.
    Emptied,
}

/// A folder with the demo's log, stopped cleanly, and what `at` says of it.
struct Folder {
    _guard: TempDir,
    data: PathBuf,
    state: String,
}

impl Folder {
    fn new() -> Self {
        let guard = tempfile::tempdir().expect("a temporary folder can be made");
        let data = guard.path().join("data");
        binary::stdout(["demo", "--data", data.to_str().expect("UTF-8")]);
        let state = at(&data);
        Self { _guard: guard, data, state }
    }
}

fn at(data: &Path) -> String {
    binary::stdout(["at", "--from", data.to_str().expect("UTF-8"), "-A"])
}

/// The files below a folder that have something in them.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if fs::metadata(&path).expect("the file is there").len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn damage(path: &Path, how: Damage) {
    let mut bytes = fs::read(path).expect("the file can be read");
    match how {
        Damage::Flipped => {
            let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            let middle = last / 2;
            for byte in &mut bytes[middle..(middle + 64).min(last + 1)] {
                *byte ^= 0x55;
            }
        }
        Damage::Halved => bytes.truncate(bytes.len() / 2),
        Damage::Emptied => bytes.clear(),
    }
    fs::write(path, bytes).expect("the file can be written");
}

const ALL: [Damage; 3] = [Damage::Flipped, Damage::Halved, Damage::Emptied];

#[test]
fn a_damaged_checkpoint_is_set_aside_and_rebuilt() {
    let files_of_one = files(&Folder::new().data.join("checkpoint")).len();
    let (mut set_aside, mut tried) = (0, 0);
    for number in 0..files_of_one {
        for how in ALL {
            let folder = Folder::new();
            let paths = files(&folder.data.join("checkpoint"));
            let Some(path) = paths.get(number) else { continue };
            damage(path, how);
            let what = format!("{} {how:?}", path.display());
            let mut up = Up::start(&folder.data);
            assert_eq!(at(&folder.data), folder.state, "{what}: the live state is that of the log");
            let (code, rest) = up.stop("TERM");
            assert_eq!(code, Some(0), "{what}: {rest}");
            let moved = fs::read_dir(&folder.data).expect("readable").filter_map(Result::ok);
            let moved =
                moved.filter(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint.corrupt-")).count();
            set_aside += moved;
            tried += 1;
            assert_eq!(at(&folder.data), folder.state, "{what}: and stays it");
        }
    }
    println!("{set_aside} of {tried} damaged checkpoints were set aside");
    assert!(set_aside > 0, "none of {tried} damages was noticed");
}

#[test]
fn a_damaged_log_is_reported_with_its_place_or_is_whole() {
    let files_of_one = files(&Folder::new().data.join("log")).len();
    let (mut reported, mut tried) = (0, 0);
    for number in 0..files_of_one {
        for how in ALL {
            let folder = Folder::new();
            let paths = files(&folder.data.join("log"));
            let Some(path) = paths.get(number) else { continue };
            damage(path, how);
            let what = format!("{} {how:?}", path.display());
            let data = folder.data.to_str().expect("UTF-8");
            tried += 1;
            let output = binary::run(["at", "--from", data, "-A"]);
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            match output.status.code() {
                Some(0) => assert_eq!(stdout, folder.state, "{what}: nothing is missing"),
                code => {
                    reported += 1;
                    assert_eq!((code, stdout.len()), (Some(5), 0), "{what}: {stderr}");
                    assert!(stderr.contains("damaged at sequence"), "{what}: {stderr}");
                    let up = binary::run(["up", "--data", data]);
                    assert_eq!(up.status.code(), Some(5), "{what}: {}", String::from_utf8_lossy(&up.stderr));
                }
            }
        }
    }
    println!("{reported} of {tried} damaged logs were reported");
    assert!(reported > 0, "none of {tried} damages was noticed");
}

/// The checkpoint of another log, or one that is ahead of its log, is never used and never overwritten.
#[test]
fn a_log_that_is_not_the_checkpoints_is_diverged() {
    let (one, other) = (Folder::new(), Folder::new());
    fs::remove_dir_all(one.data.join("log")).expect("ours");
    fs::rename(other.data.join("log"), one.data.join("log")).expect("ours");
    let data = one.data.to_str().expect("UTF-8");
    let up = binary::run(["up", "--data", data]);
    let stderr = String::from_utf8_lossy(&up.stderr);
    assert_eq!(up.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("the checkpoint was made from embedded@"), "{stderr}");
    assert!(stderr.contains("remove"), "the way out is named: {stderr}");
    fs::remove_dir_all(one.data.join("log")).expect("ours");
    let up = binary::run(["up", "--data", data]);
    let stderr = String::from_utf8_lossy(&up.stderr);
    assert_eq!(up.status.code(), Some(5), "a log that vanished is not created anew over a checkpoint: {stderr}");
    assert!(!one.data.join("log/sled").exists(), "nothing was created");
}

/// sled leaves an empty snapshot behind where a kill or a full disk comes in between.
#[test]
fn an_unfinished_snapshot_is_no_damage() {
    let folder = Folder::new();
    for store in ["log/sled", "checkpoint/store"] {
        fs::write(folder.data.join(store).join("snap.0000000000FFFFFF.generating"), "").expect("writable");
    }
    assert_eq!(at(&folder.data), folder.state);
    let mut up = Up::start(&folder.data);
    assert_eq!(up.stop("TERM").0, Some(0));
    let entries = fs::read_dir(&folder.data).expect("readable").filter_map(Result::ok);
    let aside = entries.filter(|entry| entry.file_name().to_string_lossy().contains("corrupt")).count();
    assert_eq!(aside, 0, "nothing is set aside either");
}

/// Whoever writes into a folder that is gone writes for nobody, and must not say that anything is stored.
#[test]
fn a_log_that_is_removed_under_a_running_engine_acknowledges_nothing() {
    let folder = Folder::new();
    let mut up = Up::start(&folder.data);
    fs::remove_dir_all(folder.data.join("log")).expect("ours");
    let data = folder.data.to_str().expect("UTF-8");
    let output = binary::run(["emit", "--to", data, "ReleaseTracked", "-n", "shop", "checkout"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{stderr}");
    let said = up.wait_for("error:");
    assert!(said.contains("the log has failed and has to be opened anew"), "{said}");
}
