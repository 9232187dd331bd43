//! The election on a real API server: never two at once, and soon another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use decklog_kube::lease::{Identity, Leadership, Lease, LeaseName, Timing};
use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::nats::proxy::{Direction, Proxy};
use decklog_tests::process::{Process, command};
use kube::Client;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{admin, cluster, make_namespace, redirected};

/// What a Lease needs.
const RIGHTS: &str = "[{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}]";

/// How long something may take that happens at once, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(60);

/// Tells a child of ours which cluster to lead in, and where to write when it leads.
const CHILD: [&str; 2] = ["DECKLOG_LEASE_KUBECONFIG", "DECKLOG_LEASE_FILE"];

/// Short enough for tests: in the record the Lease lasts 3 s.
fn timing() -> Timing {
    let [duration, renew_deadline, retry] = [3000, 2000, 300].map(Duration::from_millis);
    Timing::new(duration, renew_deadline, retry).expect("these are safe")
}

/// Somebody who takes part.
struct Candidate {
    leadership: watch::Receiver<Leadership>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Candidate {
    fn start(client: Client, namespace: &str, name: &str) -> Self {
        let lease_name = LeaseName::new(None).expect("that is a name");
        let lease = Lease::new(client, namespace, &lease_name, Identity::unique(name), timing());
        let (leadership, (stop, stopped)) = (lease.leadership(), oneshot::channel::<()>());
        let task = tokio::spawn(lease.run(async move {
            // Also if it is dropped.
            let _ = stopped.await;
        }));
        Self { leadership, stop: Some(stop), task }
    }

    fn may_write(&self) -> bool {
        self.leadership.borrow().may_write(Instant::now())
    }

    /// Waits until it leads, and returns the term.
    async fn leads(&mut self) -> u64 {
        let leading = self.leadership.wait_for(|now| matches!(now, Leadership::Leading { .. }));
        let leading = timeout(SOON, leading).await.expect("it leads").expect("it runs").clone();
        let Leadership::Leading { term, .. } = leading else { unreachable!("it was waited for") };
        term
    }

    /// Waits until it stands by because of a holder whose name begins so.
    async fn stands_by(&mut self, name: &str) {
        let is_other =
            |now: &Leadership| matches!(now, Leadership::Standby { holder: Some(holder) } if holder.starts_with(name));
        timeout(SOON, self.leadership.wait_for(is_other)).await.expect("it stands by").expect("it runs");
    }

    /// Ends it in order, so that it gives the Lease back.
    async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.expect("it does not panic");
    }

    /// Ends it as a kill would.
    fn kill(self) {
        self.task.abort();
    }
}

fn record(plane: &ControlPlane, namespace: &str) -> Value {
    plane.get(&["lease", "-n", namespace, "decklog"])["spec"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_the_next_one_follows() {
    let plane = ControlPlane::shared();
    let account = plane.service_account("elected", "projector", Rights::Namespace(RIGHTS));
    let client = cluster(&account).await.lease_client();
    let mut first = Candidate::start(client.clone(), "elected", "first");
    assert_eq!(first.leads().await, 1);
    let taken = record(plane, "elected");
    assert_eq!((&taken["leaseDurationSeconds"], &taken["leaseTransitions"]), (&json!(3), &json!(1)), "{taken}");
    let has_micros = |time: &Value| time.as_str().is_some_and(|time| time.len() == "2026-01-01T00:00:00.000000Z".len());
    assert!(has_micros(&taken["acquireTime"]) && has_micros(&taken["renewTime"]), "{taken}");

    let mut second = Candidate::start(client.clone(), "elected", "second");
    second.stands_by("first_").await;
    sleep(Duration::from_secs(4)).await;
    assert!(first.may_write() && !second.may_write(), "it is renewed");
    let renewed = record(plane, "elected");
    assert!(renewed["renewTime"] != taken["renewTime"] && renewed["acquireTime"] == taken["acquireTime"], "{renewed}");

    // What is given back is taken with the next look, and not after the duration.
    first.stop().await;
    let start = Instant::now();
    assert_eq!(second.leads().await, 2);
    assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());

    // What is not given back runs out.
    let mut third = Candidate::start(client, "elected", "third");
    third.stands_by("second_").await;
    let (until, start) = (second.leadership.borrow().clone(), Instant::now());
    second.kill();
    assert_eq!(third.leads().await, 3);
    assert!(!until.may_write(Instant::now()), "{until:?} is not over");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    third.stop().await;
    let free = record(plane, "elected");
    assert_eq!((&free["holderIdentity"], &free["leaseTransitions"]), (&json!(""), &json!(3)), "{free}");
}

/// Half of the rounds end in order, half do not.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_race_never_lead_at_once() {
    let plane = ControlPlane::shared();
    make_namespace(plane, "raced");
    let client = admin(plane).await.lease_client();
    let mut last = 0;
    for round in 0..20 {
        let [one, other] = ["one", "other"].map(|name| Candidate::start(client.clone(), "raced", name));
        let (start, mut held) = (Instant::now(), 0);
        while held < 50 {
            // Who leads at this moment; both are asked with one look at the clock.
            let now = Instant::now();
            let terms = [&one, &other].map(|candidate| candidate.leadership.borrow().term(now));
            assert!(terms.contains(&None), "round {round}: {terms:?}");
            if let Some(term) = terms.into_iter().flatten().next() {
                assert!(term >= last && (held > 0 || term > last), "round {round}: {term} is not above {last}");
                (last, held) = (term, held + 1);
            }
            assert!(start.elapsed() < SOON, "round {round}: nobody leads");
            sleep(Duration::from_millis(1)).await;
        }
        if round % 2 == 0 {
            one.stop().await;
            other.stop().await;
        } else {
            one.kill();
            other.kill();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_stops_before_another_begins() {
    let plane = ControlPlane::shared();
    make_namespace(plane, "cut-off");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let proxy = Proxy::to(plane.port());
    let lonely = cluster(&redirected(&plane.kubeconfig(), proxy.port(), folder.path())).await;
    let mut lonely = Candidate::start(lonely.lease_client(), "cut-off", "lonely");
    assert_eq!(lonely.leads().await, 1);
    let mut other = Candidate::start(admin(plane).await.lease_client(), "cut-off", "other");
    other.stands_by("lonely_").await;

    // What it writes arrives, but it never hears of it.
    proxy.hold(Direction::FromServer);
    let stopped = lonely.leadership.wait_for(|now| matches!(now, Leadership::Standby { .. }));
    timeout(SOON, stopped).await.expect("it stops by itself").expect("it runs");
    assert!(!other.may_write(), "another one was earlier");
    proxy.cut();
    proxy.refuse();
    assert_eq!(other.leads().await, 2);
    assert!(!lonely.may_write());
    proxy.heal();
    lonely.stands_by("other_").await;
    assert!(other.may_write());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_ends_nobodys_time_and_begins_no_term_anew() {
    let plane = ControlPlane::shared();
    make_namespace(plane, "deleted");
    let client = admin(plane).await.lease_client();
    let mut first = Candidate::start(client.clone(), "deleted", "first");
    first.leads().await;
    first.stop().await;
    let mut second = Candidate::start(client.clone(), "deleted", "second");
    assert_eq!(second.leads().await, 2);
    let mut third = Candidate::start(client, "deleted", "third");
    third.stands_by("second_").await;
    plane.kubectl_stdout(&["delete", "lease", "-n", "deleted", "decklog"], "");
    let restored = decklog_tests::process::poll(SOON, || {
        assert!(!(second.may_write() && third.may_write()));
        plane.kubectl(&["get", "lease", "-n", "deleted", "decklog"], "").status.success().then_some(())
    });
    assert!(restored.is_some(), "{restored:?}");
    assert_eq!(record(plane, "deleted")["leaseTransitions"], json!(3));
}

/// Neither ends it: what is missing may be there later.
#[tokio::test(flavor = "multi_thread")]
async fn without_rights_or_a_namespace_it_goes_on_trying() {
    let plane = ControlPlane::shared();
    let mut early = Candidate::start(admin(plane).await.lease_client(), "not-yet", "early");
    let nobody = plane.service_account("no-rights", "projector", Rights::None);
    let mut forbidden = Candidate::start(cluster(&nobody).await.lease_client(), "no-rights", "forbidden");
    // Both have asked, and were refused.
    for (namespace, code) in [("not-yet", 404), ("no-rights", 403)] {
        let is_refusal = |line: &Value| {
            let object = &line["objectRef"];
            object["resource"] == "leases" && object["namespace"] == namespace && audit::code(line) == code
        };
        let start = Instant::now();
        while !plane.audit().iter().any(is_refusal) {
            assert!(start.elapsed() < SOON, "nobody asks for a Lease in {namespace}, or it is not refused with {code}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(!early.may_write() && !forbidden.may_write());
    make_namespace(plane, "not-yet");
    early.leads().await;
    let _ = plane.service_account("no-rights", "projector", Rights::Namespace(RIGHTS));
    forbidden.leads().await;
}

/// Runs itself as the process that is paused.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_paused_finds_that_it_is_over() {
    if let [Some(kubeconfig), Some(file)] = CHILD.map(|name| std::env::var_os(name).map(PathBuf::from)) {
        lead_and_tell(&kubeconfig, &file).await;
    }
    let plane = ControlPlane::shared();
    make_namespace(plane, "paused");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("led");
    let mut child = command(&std::env::current_exe().expect("tests are a file"));
    child.args(["--exact", "lease::who_was_paused_finds_that_it_is_over"]);
    child.envs([(CHILD[0], plane.kubeconfig()), (CHILD[1], file.clone())]).stdout(std::process::Stdio::null());
    let child = Process::spawn(child);
    let led = || fs::read_to_string(&file).unwrap_or_default();
    let leads = decklog_tests::process::poll(SOON, || (led().lines().count() > 50).then_some(()));
    assert!(leads.is_some(), "the child does not lead");
    let mut other = Candidate::start(admin(plane).await.lease_client(), "paused", "other");
    other.stands_by("child_").await;
    child.signal(Signal::STOP);
    other.leads().await;
    let (taken, before) = (monotonic(), led().lines().count());
    child.signal(Signal::CONT);
    // It goes on, and does not lead while the other one does.
    let goes_on = decklog_tests::process::poll(SOON, || (led().lines().count() > before + 50).then_some(()));
    assert!(goes_on.is_some(), "the child does not go on");
    assert!(other.may_write(), "the other one leads all the time");
    let told = led();
    let moments = told.lines().filter_map(|line| line.strip_suffix(" leads")?.parse::<u128>().ok());
    let late = moments.into_iter().find(|moment| *moment >= taken);
    assert!(late.is_none(), "it led at {late:?}, after {taken}");
}

/// Leads where it can, and writes down at which moments it may write.
async fn lead_and_tell(kubeconfig: &Path, file: &Path) -> ! {
    use std::io::Write as _;
    let mut told = fs::File::create(file).expect("the folder is there");
    let candidate = Candidate::start(cluster(kubeconfig).await.lease_client(), "paused", "child");
    loop {
        let moment = monotonic();
        let state = if candidate.may_write() { "leads" } else { "stands by" };
        writeln!(told, "{moment} {state}").expect("the file is ours");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Nanoseconds of the clock that all processes of this machine share.
fn monotonic() -> u128 {
    let now = clock_gettime(ClockId::Monotonic);
    u128::from(now.tv_sec.unsigned_abs()) * 1_000_000_000 + u128::from(now.tv_nsec.unsigned_abs())
}
