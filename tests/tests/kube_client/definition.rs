//! Whether the definition is there, and new enough, is known to whoever is logged in.

use std::time::{Duration, Instant};

use decklog_kube::Definition;
use decklog_tests::binary;
use decklog_tests::kube::{ControlPlane, Rights};
use kube::Client;
use serde_json::Value;

use crate::cluster::cluster;

/// How long the server may take to publish what was installed.
const SOON: Duration = Duration::from_secs(60);

fn crd() -> Value {
    serde_saphyr::from_str(&binary::stdout(["crd"])).expect("decklog prints YAML")
}

/// Looks until it is what is expected.
async fn expect(client: &Client, expected: Definition) {
    let start = Instant::now();
    loop {
        let found = Definition::look(client).await.expect("the server answers");
        if found == expected {
            return;
        }
        assert!(start.elapsed() < SOON, "{found:?} is not {expected:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_is_compared_with_what_is_written() {
    let plane = ControlPlane::start();
    let nobody = cluster(&plane.service_account("look", "nobody", Rights::None)).await.client();
    assert_eq!(Definition::look(&nobody).await.expect("the server answers"), Definition::Missing);

    plane.install_crd();
    // What is served already is not called missing, whenever it is published.
    assert_eq!(Definition::look(&nobody).await.expect("the server answers"), Definition::Served);

    let mut older = crd();
    let schema = &mut older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let hook = schema["hooks"]["items"]["properties"].as_object_mut().expect("hooks have fields");
    hook.remove("timeout").expect("hooks have a timeout");
    let states = hook["state"]["enum"].as_array_mut().expect("states are an enum");
    states.retain(|state| state != "Skipped");
    plane.kubectl_stdout(&["replace", "-f", "-"], &with_version(&plane, older));
    let missing = ["hooks[].state: Skipped", "hooks[].timeout"].map(str::to_owned).to_vec();
    expect(&nobody, Definition::Older { missing }).await;

    plane.kubectl_stdout(&["replace", "-f", "-"], &with_version(&plane, crd()));
    expect(&nobody, Definition::Served).await;
    plane.kubectl_stdout(&["delete", "crd", "releaseinventories.core.convoy.kumodo.io"], "");
    expect(&nobody, Definition::Missing).await;
}

/// A definition to replace the installed one with.
fn with_version(plane: &ControlPlane, mut definition: Value) -> String {
    let installed = plane.get(&["crd", "releaseinventories.core.convoy.kumodo.io"]);
    definition["metadata"]["resourceVersion"] = installed["metadata"]["resourceVersion"].clone();
    definition.to_string()
}
