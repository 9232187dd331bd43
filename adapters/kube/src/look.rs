//! The cluster, to be looked at: who has nothing but this has no way to write to it.

mod selector;

use std::collections::BTreeMap;

use decklog_projections::plan::{Observed, Unreadable};
use decklog_schemas::inventory::KIND;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DynamicObject, ListParams, ObjectList};

pub use self::selector::{BadSelector, Selector};
use crate::connect::{Access, Cluster, ConnectError, ReachError};
use crate::object::{api, api_of_all};

/// A cluster whose ReleaseInventory objects can be listed, and nothing else: no method of it writes, and the client stays
/// inside.
#[derive(Clone, Debug)]
pub struct Look(Cluster);

/// Which objects are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those of all namespaces.
    All,
    /// Those of one namespace.
    Namespace(String),
    /// One, if it is there.
    One {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What is there cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The API server does not talk to us.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// It does not know the kind.
    #[error(
        "the API server at {server} has no {KIND}: `decklog crd | kubectl apply --server-side -f -` installs it, or \
         --kubeconfig and --context name another cluster"
    )]
    NotServed {
        /// Its address.
        server: String,
    },
    /// The login may not list them.
    #[error("this login may not list {KIND} objects at {server}: {message}")]
    Forbidden {
        /// Its address.
        server: String,
        /// What it says.
        message: String,
    },
    /// It does not answer this.
    #[error("the API server at {server} does not list {KIND} objects")]
    Unanswered {
        /// Its address.
        server: String,
        /// Why.
        source: kube::Error,
    },
    /// What it answered is no object.
    #[error("the API server at {server} lists an object that is none")]
    Unreadable {
        /// Its address.
        server: String,
        /// Why.
        source: Unreadable,
    },
}

/// How many objects are asked for at a time: each may take more than a megabyte.
const PAGE: u32 = 100;

/// How often a list begins anew, because the server does not remember any more where it was.
const LISTS: usize = 3;

// === impl Look ===

impl Look {
    /// Finds the cluster without talking to it, as [`Access::connect`] does.
    ///
    /// # Errors
    /// If it cannot be told which cluster is meant, or what is needed to log in cannot be used.
    pub async fn connect(access: &Access) -> Result<Self, ConnectError> {
        access.connect().await.map(Self)
    }

    /// The address of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.0.server()
    }

    /// The objects of a part of the cluster, by namespace and name. Objects of which nobody could tell where they are do
    /// not exist.
    ///
    /// # Errors
    /// See [`LookError`].
    pub async fn inventories(
        &self,
        part: &Part,
        shard_label: &str,
    ) -> Result<BTreeMap<(String, String), Observed>, LookError> {
        self.0.reach().await?;
        let mut tries = 1;
        let objects = loop {
            match self.list(part).await {
                // What it remembers of a list expires after a few minutes.
                Err(kube::Error::Api(status)) if status.code == 410 && tries < LISTS => tries += 1,
                listed => break listed.map_err(|error| self.explain(error))?,
            }
        };
        let mut inventories = BTreeMap::new();
        for object in objects {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let key = (text(&object.metadata.namespace), text(&object.metadata.name));
            inventories.insert(key, self.read(&object, shard_label)?);
        }
        Ok(inventories)
    }

    /// Whether there is no namespace of that name. Who may not ask is not told so.
    pub async fn lacks_namespace(&self, name: &str) -> bool {
        let namespaces = Api::<Namespace>::all(self.0.client());
        matches!(namespaces.get_metadata_opt(name).await, Ok(None))
    }

    async fn list(&self, part: &Part) -> kube::Result<Vec<DynamicObject>> {
        let client = self.0.client();
        let (api, params) = match part {
            Part::All => (api_of_all(&client), ListParams::default()),
            Part::Namespace(namespace) => (api(&client, namespace), ListParams::default()),
            Part::One { namespace, name } => {
                (api(&client, namespace), ListParams::default().fields(&format!("metadata.name={name}")))
            }
        };
        let mut objects = Vec::new();
        let mut params = params.limit(PAGE);
        loop {
            let ObjectList { metadata, items, .. } = api.list(&params).await?;
            objects.extend(items);
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    fn read(&self, object: &DynamicObject, shard_label: &str) -> Result<Observed, LookError> {
        let server = || self.server().to_owned();
        let value = serde_json::to_value(object)
            .map_err(|error| LookError::Unanswered { server: server(), source: kube::Error::SerdeError(error) })?;
        Observed::read(value, shard_label).map_err(|source| LookError::Unreadable { server: server(), source })
    }

    fn explain(&self, error: kube::Error) -> LookError {
        let server = self.server().to_owned();
        match error {
            kube::Error::Api(status) if status.code == 404 => LookError::NotServed { server },
            kube::Error::Api(status) if status.code == 403 => {
                LookError::Forbidden { server, message: status.message.clone() }
            }
            source => LookError::Unanswered { server, source },
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// The same cluster, for those who only look at it.
    #[must_use]
    pub fn look(&self) -> Look {
        Look(self.clone())
    }
}
