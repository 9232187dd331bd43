//! The real kubectl, cut off from the settings of whoever runs the tests.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::process::{Process, command};
use crate::servers;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs it to its end, as the user of a kubeconfig; what it caches goes into `home`.
pub(super) fn run(home: &Path, kubeconfig: &Path, args: &[&str], stdin: &str) -> Output {
    let [mut input, mut stdout, mut stderr] =
        [(); 3].map(|()| tempfile::tempfile().expect("a temporary file can be made"));
    input.write_all(stdin.as_bytes()).expect("the file is ours");
    input.rewind().expect("the file is ours");
    let mut command = command(servers::kubectl());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("KUBE")) {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).arg("--kubeconfig").arg(kubeconfig).args(args);
    command.stdin(input).stdout(shared(&stdout)).stderr(shared(&stderr));
    let status = Process::spawn(command).wait(LIMIT);
    let (stdout, stderr) = (contents(&mut stdout), contents(&mut stderr));
    let said = || String::from_utf8_lossy(&stderr).into_owned();
    let status = status.unwrap_or_else(|| panic!("kubectl {} does not end: {}", args.join(" "), said()));
    Output { status, stdout, stderr }
}

fn shared(file: &File) -> File {
    file.try_clone().expect("a file can be opened twice")
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("the file is ours");
    file.read_to_end(&mut bytes).expect("the file is ours");
    bytes
}
