//! Which cluster is meant and as whom: the kubeconfig as kubectl finds and merges it, else the Pod that we run in.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Where the address of the API server and the credentials come from, to be shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A context of a kubeconfig.
    Kubeconfig {
        /// The files, in their order; the first one that names something decides.
        files: Vec<PathBuf>,
        /// The context.
        context: String,
    },
    /// The ServiceAccount of the Pod that we run in.
    Pod,
}

/// It cannot be told which cluster is meant, or as whom it is talked to.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file cannot be read as a kubeconfig.
    #[error("cannot read the kubeconfig {}: {reason}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no kubeconfig, and this is no Pod.
    #[error("there is no kubeconfig in {looked_in}, and this is no Pod of a cluster: name one with --kubeconfig")]
    Nowhere {
        /// Where it was looked for.
        looked_in: String,
    },
    /// A context was asked for by name where there is no kubeconfig.
    #[error("there is no context {context:?}, for there is no kubeconfig in {looked_in}: name one with --kubeconfig")]
    NoFile {
        /// The context.
        context: String,
        /// Where it was looked for.
        looked_in: String,
    },
    /// The kubeconfig says nothing of which context is meant.
    #[error("{files} has no current-context: name one of {contexts} with --context")]
    NoContext {
        /// The files.
        files: String,
        /// Those that it has.
        contexts: String,
    },
    /// The kubeconfig has no such context.
    #[error("{files} has no context {context:?}: name one of {contexts} with --context")]
    UnknownContext {
        /// The files.
        files: String,
        /// The context.
        context: String,
        /// Those that it has.
        contexts: String,
    },
    /// The context does not say all that is needed, or what it says cannot be used.
    #[error("context {context:?} of {files} cannot be used: {reason}")]
    Unusable {
        /// The files.
        files: String,
        /// The context.
        context: String,
        /// Why.
        reason: String,
    },
    /// The credentials of the Pod cannot be used.
    #[error(
        "the ServiceAccount of this Pod cannot be used: {reason}; is its token mounted (automountServiceAccountToken)?"
    )]
    Pod {
        /// Why.
        reason: String,
    },
}

/// What the process was started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// `$KUBECONFIG`.
    pub(crate) kubeconfig: Option<OsString>,
    /// `$HOME`.
    pub(crate) home: Option<PathBuf>,
    /// Whether the kubelet says where the API server is.
    pub(crate) is_pod: bool,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_pod = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].iter().all(|name| set(name).is_some());
        Self { kubeconfig: set("KUBECONFIG"), home: set("HOME").map(PathBuf::from), is_pod }
    }

    /// Where a kubeconfig may be, if no flag names one.
    fn candidates(&self) -> Vec<PathBuf> {
        match &self.kubeconfig {
            Some(list) => std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty()).collect(),
            None => self.home.iter().map(|home| home.join(".kube/config")).collect(),
        }
    }
}

/// Finds the cluster that is meant, without talking to it.
///
/// # Errors
/// See [`KubeconfigError`].
pub(crate) async fn find(
    file: Option<&Path>,
    context: Option<&str>,
    surroundings: &Surroundings,
) -> Result<(Config, Origin), KubeconfigError> {
    let named = file.map(|file| vec![file.to_owned()]);
    // As for kubectl, a file that is named must be there, and one on the list need not.
    let files = named.unwrap_or_else(|| surroundings.candidates().into_iter().filter(|file| file.exists()).collect());
    if !files.is_empty() {
        return read(files, context).await;
    }
    let looked_in = || match &surroundings.kubeconfig {
        Some(list) => format!("$KUBECONFIG ({})", list.display()),
        None => "$KUBECONFIG, which is not set, nor in ~/.kube/config".to_owned(),
    };
    match context {
        Some(context) => Err(KubeconfigError::NoFile { context: context.to_owned(), looked_in: looked_in() }),
        None if !surroundings.is_pod => Err(KubeconfigError::Nowhere { looked_in: looked_in() }),
        None => {
            let config = Config::incluster().map_err(|error| KubeconfigError::Pod { reason: innermost(&error) })?;
            Ok((config, Origin::Pod))
        }
    }
}

async fn read(files: Vec<PathBuf>, context: Option<&str>) -> Result<(Config, Origin), KubeconfigError> {
    let shown = shown(&files);
    let mut merged = Kubeconfig::default();
    for file in &files {
        let unreadable = |error: kube::config::KubeconfigError| KubeconfigError::Unreadable {
            file: file.clone(),
            reason: innermost(&error),
        };
        let mut next = Kubeconfig::read_from(file).map_err(unreadable)?;
        // An empty name is none, and must not hide that of a later file.
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        merged = merged.merge(next).map_err(unreadable)?;
    }
    let contexts = || {
        let names: Vec<_> = merged.contexts.iter().map(|context| context.name.as_str()).collect();
        if names.is_empty() { "those that it will have".to_owned() } else { names.join(", ") }
    };
    let context = match context.map(str::to_owned).or_else(|| merged.current_context.clone()) {
        None => return Err(KubeconfigError::NoContext { files: shown, contexts: contexts() }),
        Some(context) if merged.contexts.iter().all(|known| known.name != context) => {
            return Err(KubeconfigError::UnknownContext { files: shown, context, contexts: contexts() });
        }
        Some(context) => context,
    };
    let has_proxy = proxy_of(&merged, &context);
    let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    match Config::from_custom_kubeconfig(merged, &options).await {
        Ok(mut config) => {
            // As for kubectl, $HTTPS_PROXY is not meant for what is on this machine.
            if has_proxy == Proxy::FromEnvironment && is_loopback(config.cluster_url.host()) {
                config.proxy_url = None;
            }
            Ok((config, Origin::Kubeconfig { files, context }))
        }
        Err(error) => Err(KubeconfigError::Unusable { files: shown, context, reason: innermost(&error) }),
    }
}

/// Who names the proxy, if there is one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proxy {
    FromKubeconfig,
    FromEnvironment,
}

fn proxy_of(kubeconfig: &Kubeconfig, context: &str) -> Proxy {
    let context = kubeconfig.contexts.iter().find(|known| known.name == context);
    let cluster = context.and_then(|known| known.context.as_ref()).map(|context| &context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|known| Some(&known.name) == cluster);
    let proxy = cluster.and_then(|known| known.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_ref());
    match proxy {
        Some(proxy) if !proxy.is_empty() => Proxy::FromKubeconfig,
        _ => Proxy::FromEnvironment,
    }
}

fn is_loopback(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What is at the bottom of an error of kube: each of its layers repeats the ones below.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    // Some texts have a picture of the place in a file, over many lines.
    innermost.to_string().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { files, context } => write!(f, "context {context:?} of {}", shown(files)),
            Self::Pod => write!(f, "the ServiceAccount of this Pod"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A kubeconfig with one context, that has a namespace.
    fn kubeconfig(name: &str, server: &str, current: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
             clusters: [{{name: {name}, cluster: {{server: {server}}}}}]\n\
             users: [{{name: {name}, user: {{token: secret}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: ns-{name}}}}}]\n"
        )
    }

    struct Home(TempDir);

    impl Home {
        fn with(files: &[(&str, String)]) -> Self {
            let home = Self(tempfile::tempdir().expect("a temporary folder can be made"));
            for (name, text) in files {
                let file = home.path(name);
                fs::create_dir_all(file.parent().expect("it is in a folder")).expect("the folder is ours");
                fs::write(file, text).expect("the folder is ours");
            }
            home
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn list(&self, names: &[&str]) -> Option<OsString> {
            Some(std::env::join_paths(names.iter().map(|name| self.path(name))).expect("names without colons"))
        }

        /// The server, the namespace and the origin, or the error.
        async fn find(&self, list: &[&str], file: Option<&str>, context: Option<&str>) -> String {
            let kubeconfig = if list.is_empty() { None } else { self.list(list) };
            let surroundings = Surroundings { kubeconfig, home: Some(self.0.path().to_owned()), is_pod: false };
            let file = file.map(|name| self.path(name));
            let found = match find(file.as_deref(), context, &surroundings).await {
                Ok((config, origin)) => format!("{} {} {origin}", config.cluster_url, config.default_namespace),
                Err(error) => error.to_string(),
            };
            found.replace(&format!("{}/", self.0.path().display()), "")
        }
    }

    #[tokio::test]
    async fn files_are_found_as_kubectl_finds_them() {
        let a = kubeconfig("a", "https://a:6443", "a");
        let files = [
            (".kube/config", kubeconfig("home", "https://home", "home")),
            ("a", a.clone()),
            ("b", kubeconfig("b", "https://b", "b")),
            ("a2", kubeconfig("a", "https://a2", "a")),
            ("none", kubeconfig("none", "https://none", "\"\"")),
        ];
        let home = Home::with(&files);
        let check = async |list: &[&str], file, context, expected: &str| {
            assert_eq!(home.find(list, file, context).await, expected, "{list:?} {file:?} {context:?}");
        };
        check(&[], None, None, "https://home/ ns-home context \"home\" of .kube/config").await;
        check(&[], Some("b"), None, "https://b/ ns-b context \"b\" of b").await;
        check(&["a", "b"], None, None, "https://a:6443/ ns-a context \"a\" of a, b").await;
        check(&["a", "b"], None, Some("b"), "https://b/ ns-b context \"b\" of a, b").await;
        // The first file that names something decides.
        check(&["a2", "a"], None, None, "https://a2/ ns-a context \"a\" of a2, a").await;
        check(&["none", "b"], None, None, "https://b/ ns-b context \"b\" of none, b").await;
        // A flag is stronger than the environment, and one of the list may be missing.
        check(&["a"], Some("b"), None, "https://b/ ns-b context \"b\" of b").await;
        check(&["missing", "b"], None, None, "https://b/ ns-b context \"b\" of b").await;
    }

    #[tokio::test]
    async fn what_is_wrong_is_named_with_the_way_out() {
        let files = [
            ("a", kubeconfig("a", "https://a", "a")),
            ("none", kubeconfig("none", "https://none", "\"\"")),
            ("torn", "clusters: [".to_owned()),
            ("homeless", kubeconfig("homeless", "\"\"", "homeless")),
        ];
        let home = Home::with(&files);
        let check = async |list: &[&str], file, context, expected: &str| {
            let found = home.find(list, file, context).await;
            assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
        };
        check(&[], Some("missing"), None, "cannot read the kubeconfig missing: No such file").await;
        check(&[], Some("torn"), None, "cannot read the kubeconfig torn: ").await;
        check(&["a"], None, Some("b"), "a has no context \"b\": name one of a with --context").await;
        check(&["none"], None, None, "none has no current-context: name one of none with --context").await;
        check(&["homeless"], None, None, "context \"homeless\" of homeless cannot be used: ").await;
        check(&["gone"], None, None, "there is no kubeconfig in $KUBECONFIG (gone), and this is no Pod").await;
        check(&[], None, None, "there is no kubeconfig in $KUBECONFIG, which is not set, nor in ~/.kube/config").await;
        check(&[], None, Some("b"), "there is no context \"b\", for there is no kubeconfig in ").await;
    }

    #[tokio::test]
    async fn a_pod_is_the_last_resort() {
        let home = Home::with(&[]);
        let surroundings = Surroundings { kubeconfig: None, home: Some(home.0.path().to_owned()), is_pod: true };
        // Where tests run no token is mounted.
        let found = find(None, None, &surroundings).await;
        assert!(matches!(found, Err(KubeconfigError::Pod { .. }) | Ok((_, Origin::Pod))), "{found:?}");
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        for (host, expected) in
            [("localhost", true), ("127.0.0.1", true), ("[::1]", true), ("10.0.0.1", false), ("a.example", false)]
        {
            assert_eq!(is_loopback(Some(host)), expected, "{host}");
        }
    }
}
