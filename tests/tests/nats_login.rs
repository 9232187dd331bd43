//! How decklog logs in to real NATS servers: TLS, nkeys, credentials, contexts of the NATS CLI; and what it says if not.

use std::path::{Path, PathBuf};
use std::process::Output;

use decklog_tests::binary;
use decklog_tests::nats::NatsServer;
use decklog_tests::nats::keys::KeyUser;
use decklog_tests::nats::tls::Certificates;
use serde_json::{Value, json};
use tempfile::TempDir;

const USERS: &str = "authorization { users: [ { user: ada, password: word }, { user: bob, password: other } ] }";

/// A home folder with contexts of the NATS CLI in it.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        std::fs::create_dir_all(folder.path().join(".config/nats/context")).expect("the folder is ours");
        Self { folder }
    }

    fn context(&self, name: &str, fields: &Value) -> PathBuf {
        self.write(&format!(".config/nats/context/{name}.json"), &fields.to_string())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is below the home folder")).expect("the folder is ours");
        std::fs::write(&path, text).expect("the folder is ours");
        path
    }

    /// Runs decklog in this home, with variables.
    fn run(&self, line: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = binary::command(line.split_whitespace());
        command.env("HOME", self.folder.path()).envs(variables.iter().copied());
        command.output().expect("decklog can be started")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(line: &str, url: &str) -> Output {
    binary::run(line.split_whitespace().chain([url]))
}

#[track_caller]
fn check(output: &Output, code: i32, stderr: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(err.contains(stderr), "standard error {err:?} holds no {stderr:?}");
    assert_eq!(err.lines().count(), usize::from(code != 0), "an error is one line, and nothing else is: {err:?}");
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("paths are UTF-8")
}

#[test]
fn a_server_with_a_certificate_of_ones_own_authority_is_reached_with_that_authority() {
    let certificates = Certificates::make();
    let server = NatsServer::builder().conf(&certificates.conf("")).start();
    let (tls, plain) = (server.url().replace("nats://", "tls://"), server.url());
    let ca = certificates.path("ca.pem");
    for url in [&tls, &plain] {
        check(&run(&format!("stream init --tlsca {} --to", shown(&ca)), url), 0, "");
        let refused = run("stream info --from", url);
        check(&refused, 4, &format!("cannot reach a NATS server at {url}: "));
        assert!(text(&refused.stderr).contains("certificate"), "{}", text(&refused.stderr));
    }
    // Another authority does not vouch for it.
    let others = Certificates::make();
    let other = run(&format!("stream info --tlsca {} --from", shown(&others.path("ca.pem"))), &tls);
    check(&other, 4, &format!("cannot reach a NATS server at {tls}: "));
}

#[test]
fn a_server_that_wants_tls_is_not_talked_to_without_it_by_name() {
    let server = NatsServer::start();
    let tls = server.url().replace("nats://", "tls://");
    check(&run("stream info --from", &tls), 4, &format!("cannot reach a NATS server at {tls}: "));
}

#[test]
fn a_server_that_asks_for_a_certificate_is_given_one() {
    let certificates = Certificates::make();
    let server = NatsServer::builder().conf(&certificates.conf("verify: true")).start();
    let url = server.url();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.path(name));
    let ca = format!("--tlsca {}", shown(&ca));
    let pair = format!("{ca} --tlscert {} --tlskey {}", shown(&cert), shown(&key));
    check(&run(&format!("stream init {pair} --to"), &url), 0, "");
    check(&run(&format!("stream info {ca} --from"), &url), 4, &format!("cannot reach a NATS server at {url}: "));
    let lonely = run(&format!("stream info {ca} --tlscert {} --from", shown(&cert)), &url);
    assert_eq!(lonely.status.code(), Some(2), "a certificate without its key: {}", text(&lonely.stderr));
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_flag() {
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let home = Home::new();
    let broken = home.write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let [missing, broken] = [home.folder.path().join("missing"), broken].map(|path| shown(&path).to_owned());
    let [cert, key] = ["client.pem", "client.key"].map(|name| shown(&certificates.path(name)).to_owned());
    let other = shown(&others.path("client.key")).to_owned();
    let check_flag = |line: &str, flag: &str, file: &str| {
        let output = home.run(&format!("stream info --from nats://127.0.0.1:1 {line}"), &[]);
        check(&output, 2, &format!(" in {file}, which {flag}, its variable or the NATS context names: "));
    };
    for file in [&missing, &broken] {
        for flag in ["--creds", "--nkey", "--tlsca"] {
            check_flag(&format!("{flag} {file}"), flag, file);
        }
        check_flag(&format!("--tlscert {file} --tlskey {key}"), "--tlscert", file);
        check_flag(&format!("--tlscert {cert} --tlskey {file}"), "--tlskey", file);
    }
    check_flag(&format!("--tlscert {cert} --tlskey {other}"), "--tlskey", &other);
    // Other places from which a file is named.
    let output = home.run("stream info --from nats://127.0.0.1:1", &[("DECKLOG_CREDS", &missing)]);
    check(&output, 2, &format!("cannot use the credentials in {missing}, which --creds"));
    for (variable, file, lacks) in [
        ("DECKLOG_TLSCERT", &cert, "its key is not named, with --tlskey"),
        ("DECKLOG_TLSKEY", &key, "its certificate is not named, with --tlscert"),
    ] {
        let output = home.run("stream info --from nats://127.0.0.1:1", &[(variable, file)]);
        check(&output, 2, lacks);
    }
    home.context("prod", &json!({ "url": "nats://127.0.0.1:1", "nkey": broken }));
    check(
        &home.run("at -A --nats-context prod", &[]),
        2,
        &format!("cannot use the nkey seed in {broken}, which --nkey"),
    );
}

#[test]
fn logins_in_addresses_are_decoded() {
    let users = r#"authorization { users: [ { user: "ada@corp", password: "p:w/100%" } ] }"#;
    let server = NatsServer::builder().conf(users).start();
    check(&run("stream init --to", &server.url_of("ada%40corp", "p%3Aw%2F100%25")), 0, "");
    check(&run("stream info --from", &server.url_of("ada@corp", "p%3aw%2f100%")), 0, "");
    check(&run("stream info --from", &server.url_of("ada%2540corp", "p%3Aw%2F100%25")), 4, "refuses the login");
    let server = NatsServer::builder().conf(r#"authorization { token: "s3cr:t/" }"#).start();
    let url = server.url().replace("://", "://s3cr%3At%2F@");
    check(&run("stream init --to", &url), 0, "");
}

#[test]
fn an_nkey_logs_in() {
    let (user, stranger) = (KeyUser::nkey(), KeyUser::nkey());
    let server = NatsServer::builder().conf(user.conf()).start();
    let url = server.url();
    check(&run(&format!("stream init --nkey {} --to", shown(user.file())), &url), 0, "");
    let refused = run(&format!("stream info --nkey {} --from", shown(stranger.file())), &url);
    check(&refused, 4, &format!("the NATS server at {url} refuses the login: check --creds, --nkey, --user and"));
}

#[test]
fn credentials_log_in_with_what_they_permit() {
    let user = KeyUser::creds(&["$JS.API.STREAM.INFO.DECKLOG", "$SYS.REQ.USER.INFO"], &["_INBOX.>"]);
    let server = NatsServer::builder().conf(user.conf()).start();
    let url = server.url();
    let creds = format!("--creds {}", shown(user.file()));
    // It may ask for the stream, and hears that there is none; it may not make it.
    let output = run(&format!("stream info {creds} -o json --from"), &url);
    check(&output, 2, "there is no stream DECKLOG");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let abilities = report["login"]["may"].as_array().expect("a list").clone();
    let may = |what| abilities.iter().find(|ability| ability["what"] == what).map(|ability| ability["may"].clone());
    assert_eq!((may("ask for the stream"), may("publish release")), (Some("yes".into()), Some("no".into())));
    check(&run(&format!("stream init {creds} --to"), &url), 4, "log in as somebody who may make streams");
    check(&run("stream info --from", &url), 4, "refuses the login");
}

#[test]
fn a_context_of_the_nats_cli_gives_servers_and_login() {
    let server = NatsServer::builder().conf(USERS).start();
    let home = Home::new();
    home.context("ada", &json!({ "url": server.url(), "user": "ada", "password": "word", "color_scheme": "red" }));
    check(&home.run("stream init --nats-context ada", &[]), 0, "");
    let whoami = |line: &str, variables: &[(&str, &str)]| {
        let output = home.run(&format!("stream info -o json {line}"), variables);
        check(&output, 0, "");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        report["login"]["user"].as_str().expect("it has a name").to_owned()
    };
    assert_eq!(whoami("--nats-context ada", &[]), "ada");
    assert_eq!(whoami("", &[("DECKLOG_NATS_CONTEXT", "ada")]), "ada");
    // Single flags and variables win over the context, and a user comes with a password of its own.
    assert_eq!(whoami("--nats-context ada --user bob --password other", &[]), "bob");
    assert_eq!(whoami("--nats-context ada", &[("DECKLOG_USER", "bob"), ("DECKLOG_PASSWORD", "other")]), "bob");
    check(&home.run("stream info --nats-context ada --user bob", &[]), 4, "refuses the login");
    // A flag wins over a log that is named by a variable, which wins over a variable that names a context.
    let elsewhere = ("DECKLOG_LOG", "nats://127.0.0.1:1");
    assert_eq!(whoami("--nats-context ada", &[elsewhere]), "ada");
    let unreached = home.run("stream info", &[elsewhere, ("DECKLOG_NATS_CONTEXT", "ada")]);
    check(&unreached, 4, "cannot reach a NATS server at nats://127.0.0.1:1");
    home.write(".config/decklog/config.toml", "nats_context = \"ada\"");
    assert_eq!(whoami("", &[]), "ada");
    check(&home.run("at -A", &[]), 1, "There is no inventory in any cluster");
    home.write(".config/decklog/config.toml", "nats_context = \"missing\"\nlog = \"~/here\"");
    check(&home.run("at -A", &[]), 2, "there is no embedded log in");
}

#[test]
fn a_log_that_is_named_is_read_with_the_login_of_the_context() {
    let server = NatsServer::builder().conf(USERS).start();
    let home = Home::new();
    home.context("ada", &json!({ "url": "nats://127.0.0.1:1", "user": "ada", "password": "word" }));
    check(&home.run(&format!("stream init --nats-context ada --to {}", server.url()), &[]), 0, "");
}

#[test]
fn files_in_a_context_are_found_from_the_home_folder() {
    let (user, certificates) = (KeyUser::nkey(), Certificates::make());
    let conf = format!("{}\n{}", user.conf(), certificates.conf("verify: true\nhandshake_first: auto"));
    let server = NatsServer::builder().conf(&conf).start();
    let home = Home::new();
    for (name, path) in [("ca.pem", certificates.path("ca.pem")), ("nkey", user.file().to_owned())] {
        home.write(&format!("keys/{name}"), &std::fs::read_to_string(path).expect("it is there"));
    }
    let context = json!({
        "url": server.url(), "nkey": "~/keys/nkey", "ca": "~/keys/ca.pem", "cert": certificates.path("client.pem"),
        "key": certificates.path("client.key"), "tls_first": true, "inbox_prefix": "_MINE",
    });
    home.context("prod", &context);
    check(&home.run("stream init --nats-context prod", &[]), 0, "");
}

#[test]
fn an_inbox_of_ones_own_and_a_domain_are_taken_from_the_context() {
    let users = "authorization { users: [ { user: ada, password: word, permissions: { publish: \">\", subscribe: \
                 \"_MINE.>\" } } ] }";
    let server = NatsServer::builder().conf(users).limits("domain: hub").start();
    let home = Home::new();
    let mut context = json!({ "url": server.url(), "user": "ada", "password": "word", "jetstream_domain": "hub" });
    home.context("prod", &context);
    check(&home.run("stream init --nats-context prod", &[]), 4, "may not subscribe to \"_INBOX.");
    check(&home.run("stream init --nats-context prod", &[]), 4, "or under the inbox_prefix of a NATS context");
    context["inbox_prefix"] = json!("_MINE");
    home.context("prod", &context);
    check(&home.run("stream init --nats-context prod", &[]), 0, "");
    let report = home.run("stream info --nats-context prod -o json", &[]);
    assert!(text(&report.stdout).contains("$JS.hub.API.STREAM.INFO.DECKLOG"), "{}", text(&report.stdout));
    context["jetstream_domain"] = json!("elsewhere");
    home.context("prod", &context);
    check(&home.run("stream info --nats-context prod", &[]), 4, "JetStream is not enabled in the domain \"elsewhere\"");
    check(&home.run("at -A --nats-context prod", &[]), 4, "check jetstream_domain of the NATS context");
}

#[test]
fn a_context_that_cannot_be_used_is_told_with_its_file_and_the_way_out() {
    let home = Home::new();
    check(&home.run("at -A --nats-context prod", &[]), 2, "there is no NATS context \"prod\" in ");
    check(&home.run("at -A --nats-context prod", &[]), 2, ": there are none");
    home.context("eu", &json!({ "url": "nats://127.0.0.1:1" }));
    home.context("us", &json!({}));
    check(&home.run("at -A --nats-context prod", &[]), 2, ": there are eu, us");
    check(&home.run("at -A --nats-context ../context/eu", &[]), 2, "there is no NATS context");
    check(&home.run("at -A --nats-context eu", &[]), 4, "cannot reach a NATS server at nats://127.0.0.1:1");
    let path = home.context("nsc", &json!({ "url": "nats://127.0.0.1:1", "nsc": "nsc://o/a/u" }));
    let expected = format!("the NATS context in {} has nsc, which decklog does not support: ", path.display());
    check(&home.run("at -A --nats-context nsc", &[]), 2, &expected);
    let path = home.write(".config/nats/context/broken.json", "{");
    check(&home.run("at -A --nats-context broken", &[]), 2, &format!("{} is no NATS context: EOF", path.display()));
    // Whoever works in a folder needs no context.
    check(&home.run("at -A --from here", &[("DECKLOG_NATS_CONTEXT", "prod")]), 2, "there is no embedded log in here");
}

#[test]
fn who_is_refused_or_reaches_nobody_is_told_what_to_look_at() {
    let server = NatsServer::builder().conf(USERS).start();
    let (url, secret) = (server.url(), server.url_of("ada", "wrong"));
    for line in ["at -A --from", "stream info --from", "stream init --to", "emit ReleaseTracked -n shop checkout --to"]
    {
        let refused = run(&format!("{} --user ada --password wrong {}", before(line), last(line)), &url);
        let hint = "refuses the login: check --creds, --nkey, --user and --password, or the context";
        check(&refused, 4, &format!("error: the NATS server at {url} {hint}"));
        check(&run(line, "nats://127.0.0.1:1"), 4, "error: cannot reach a NATS server at nats://127.0.0.1:1: ");
        check(
            &run(line, "nats://nowhere.invalid:4222"),
            4,
            "error: cannot reach a NATS server at nats://nowhere.invalid",
        );
        // What is typed into an address is not repeated.
        let refused = run(line, &secret);
        check(&refused, 4, "refuses the login");
        assert!(!text(&refused.stderr).contains("wrong"), "{}", text(&refused.stderr));
    }
    let right = server.url_of("ada", "word");
    check(&run("stream init --to", &right), 0, "");
    check(&run("at -A --from", &right), 1, "There is no inventory in any cluster");
}

/// A line without its last flag, and that flag.
fn before(line: &str) -> &str {
    line.rsplit_once(' ').map_or(line, |(before, _)| before)
}

fn last(line: &str) -> &str {
    line.rsplit_once(' ').map_or(line, |(_, last)| last)
}
