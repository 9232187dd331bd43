//! NATS servers that form a cluster on the loopback.

use std::process;

use serde_json::Value;

use crate::nats::settings::{ATTEMPTS, Settings, TAKEN};
use crate::nats::{LIMIT, NatsServer, monitor};
use crate::port::Port;
use crate::process::poll;

/// Servers in one cluster, with JetStream; each is killed with -9 when dropped.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    /// Where they talk to each other.
    _routes: Vec<Port>,
}

impl NatsCluster {
    /// Starts so many servers; they are ready when this returns.
    #[must_use]
    pub fn start(size: usize) -> Self {
        Self::start_with(size, &NatsServer::builder())
    }

    /// Starts so many servers, each with these settings but with a name, a port and a folder of its own.
    #[must_use]
    pub fn start_with(size: usize, settings: &Settings) -> Self {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            match Self::launch(size, settings) {
                Ok(cluster) => {
                    cluster.wait_until_ready();
                    return cluster;
                }
                Err(failed) => log = failed,
            }
            if !log.contains(TAKEN) {
                break;
            }
        }
        panic!("the cluster does not start:\n{log}");
    }

    /// The members, also those that are down.
    #[must_use]
    pub fn servers(&self) -> &[NatsServer] {
        &self.servers
    }

    /// What a client connects to: all members, separated by commas.
    #[must_use]
    pub fn url(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(NatsServer::url).collect();
        urls.join(",")
    }

    /// Kills a member with -9.
    pub fn kill(&mut self, member: usize) {
        self.servers[member].kill();
    }

    /// Starts a member again with the same port and data, and kills it with -9 before if it is up. If there is a
    /// majority, all that are up are ready when this returns.
    pub fn restart(&mut self, member: usize) {
        self.servers[member].relaunch();
        if self.up().count() > self.servers.len() / 2 {
            self.wait_until_ready();
        }
    }

    /// Waits until every member that is up is healthy, with all its streams, and follows the same leader.
    pub fn wait_until_ready(&self) {
        let ready = poll(LIMIT, || self.is_ready().then_some(()));
        let logs = || self.servers.iter().map(NatsServer::log).collect::<String>();
        assert!(ready.is_some(), "the cluster is not ready:\n{}", logs());
    }

    /// The member that leads the cluster's own group, where streams are made, if all agree.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.agreed(|jsz| Some(&jsz["meta_cluster"]["leader"]))
    }

    /// The member that leads a stream, if all agree that have a copy of it.
    #[must_use]
    pub fn leader_of(&self, stream: &str) -> Option<usize> {
        self.agreed(|jsz| {
            let accounts = jsz["account_details"].as_array()?.iter();
            let mut streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
            streams.find(|detail| detail["name"] == stream).map(|detail| &detail["cluster"]["leader"])
        })
    }

    fn launch(size: usize, settings: &Settings) -> Result<Self, String> {
        let routes: Vec<_> = (0..size).map(|_| Port::find()).collect();
        let addresses: Vec<_> = routes.iter().map(|port| format!("127.0.0.1:{}", port.number())).collect();
        let urls: Vec<_> = addresses.iter().map(|address| format!("\"nats://{address}\"")).collect();
        let (cluster, urls) = (format!("decklog-{}-{}", process::id(), routes[0].number()), urls.join(", "));
        let member = |(number, address)| {
            let block = format!("cluster {{ name: {cluster:?}, listen: {address:?}, routes: [{urls}] }}");
            settings.clone().name(&format!("{cluster}-{number}")).cluster(block)
        };
        let members = addresses.iter().enumerate().map(member);
        // All of them start before one is waited for: none is ready alone.
        let servers = members.map(|settings| NatsServer::launch(settings.site())).collect();
        let mut cluster = Self { servers, _routes: routes };
        cluster.servers.iter_mut().try_for_each(|server| server.wait_for_listener(0))?;
        Ok(cluster)
    }

    fn is_ready(&self) -> bool {
        let healthy = self.up().all(|server| server.is_healthy("/healthz"));
        let leader = self.leader().map(|leader| &self.servers[leader]).filter(|leader| leader.is_up());
        let state = leader.and_then(jsz).unwrap_or_default();
        let replicas = state["meta_cluster"]["replicas"].as_array().into_iter().flatten();
        // A leader that was just elected may not have heard of all the others yet.
        healthy
            && leader.is_some()
            && replicas.filter(|replica| replica["current"] == true).count() + 1 >= self.up().count()
    }

    fn up(&self) -> impl Iterator<Item = &NatsServer> {
        self.servers.iter().filter(|server| server.is_up())
    }

    /// What all say that are up and have something to say.
    fn agreed(&self, leader: impl Fn(&Value) -> Option<&Value>) -> Option<usize> {
        let known: Vec<_> = self.up().filter_map(jsz).collect();
        let mut leaders = known.iter().filter_map(leader).map(|name| self.position(name));
        let first = leaders.next()??;
        leaders.all(|other| other == Some(first)).then_some(first)
    }

    fn position(&self, name: &Value) -> Option<usize> {
        self.servers.iter().position(|server| name == server.name())
    }
}

/// What a server knows of JetStream, if it answers.
fn jsz(server: &NatsServer) -> Option<Value> {
    let (_, body) = monitor::get(server.site.monitor.number(), "/jsz?accounts=true&streams=true").ok()?;
    serde_json::from_str(&body).ok()
}
