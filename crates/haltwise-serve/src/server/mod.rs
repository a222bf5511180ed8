//! The server: HTTP, WebSocket and events around served rules.

mod body;
mod labels;
mod problem;
mod routes;
mod rules;
mod streams;
mod websocket;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::connections::{ConnectionLimits, Connections, Tls};
use crate::error::Error;
use crate::mqtt::{self, Mqtt};
use crate::served_rule::ServedRule;
use crate::served_rules::{ServedRules, WatchOptions};
pub(crate) use crate::server::problem::{Problem, problem};
use crate::server_log::ServerLog;
use routes::router;

/// What to serve, and how.
#[derive(Debug)]
pub struct Options {
    /// How streams are audited and watched.
    pub watching: WatchOptions,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The most bytes of a line.
    pub max_line: usize,
    /// How many connections there may be, and how long they may be silent.
    pub connections: ConnectionLimits,
    /// A certificate, if connections are to be encrypted.
    pub tls: Option<Tls>,
    /// How long to wait for another server that has the store.
    pub wait_for_store: Duration,
    /// Names that the server answers to, besides addresses and local names.
    pub allow_hosts: Vec<String>,
    /// A broker to take lines from and to give answers to.
    pub mqtt: Option<Mqtt>,
}

/// Serves until `stop` is done, then stores all.
///
/// `started` is told the address once clients can connect.
pub async fn serve(
    options: Options,
    started: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let Options {
        watching,
        listen,
        max_line,
        connections,
        tls,
        wait_for_store,
        allow_hosts,
        mqtt,
    } = options;
    if watching.tokens.is_empty() && !listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{listen} can be reached from other machines; set a token that clients must show, or \
             listen on 127.0.0.1"
        )));
    }
    let (store, log) = (watching.store.clone(), watching.log.clone());
    let mut stop = std::pin::pin!(stop);
    let (rules, keeping) = tokio::select! {
        started = ServedRules::start(watching, wait_for_store) => started?,
        () = &mut stop => return Ok(()),
    };
    let rules = rules.allow_hosts(allow_hosts).limit_lines(max_line);
    let connected = async {
        let listener = bind(listen).await?;
        if let Some(broker) = mqtt {
            take_from(broker, &rules, store.unwrap_or_default(), &log)?;
        }
        Ok(listener)
    };
    let (listener, address) = match connected.await {
        Ok(connected) => connected,
        Err(error) => {
            // The open streams were read from the store, and are for the next server.
            rules.close(&keeping)?;
            return Err(error);
        }
    };
    started(address);
    let drain = connections.drain;
    let connections = Arc::new(Connections::new(connections, tls));
    rules.count_connections(&connections);
    let (router, ending) = (log.around(router(&rules)), rules.ending());
    let mut serving =
        tokio::spawn(async move { connections.serve(listener, router, ending).await });
    let drained = tokio::select! {
        () = stop => {
            rules.end();
            serving.await
        }
        // Nothing else ends it: it is a mistake in the server.
        ended = &mut serving => ended,
    };
    let closed = rules.close(&keeping);
    match drained {
        Ok(true) => {}
        // Nothing that was answered is lost.
        Ok(false) => log.warn(&format!(
            "connections that were still open after {} s were cut off",
            drain.as_secs_f64()
        )),
        Err(error) => return Err(Error::new(format!("the server failed: {error}"))),
    }
    closed
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let bound = TcpListener::bind(listen).await;
    bound
        .and_then(|listener| listener.local_addr().map(|address| (listener, address)))
        .map_err(|e| {
            let why = match e.kind() {
                io::ErrorKind::AddrInUse => {
                    "another program listens there; end it, or choose another address".into()
                }
                _ => e.to_string(),
            };
            Error::new(format!("cannot listen on {listen}: {why}"))
        })
}

/// Takes lines from a broker until the server ends.
fn take_from(
    broker: Mqtt,
    rules: &ServedRules,
    store: PathBuf,
    log: &ServerLog,
) -> Result<(), Error> {
    let stores: Vec<PathBuf> = rules.all.iter().map(|b| store.join(&b.name)).collect();
    let id = mqtt::client_id(&stores)?;
    let task = broker.task(id, rules, log.clone())?;
    let dead = rules.dead.clone();
    tokio::spawn(dead.supervise(mqtt::TASK, log.clone(), rules.ending(), task));
    Ok(())
}

fn find_rule(rules: &ServedRules, name: &str) -> Result<Arc<ServedRule>, Problem> {
    let found = rules.all.iter().find(|served| served.name == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = rules.all.iter().map(|b| b.name.as_str()).collect();
        problem(
            StatusCode::NOT_FOUND,
            &format!("there is no rule {name:?}"),
            &format!("ask for one of: {}", names.join(", ")),
        )
    })
}

/// Waits until the server is to end.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    // The sender outlives all who wait.
    drop(ending.wait_for(|end| *end).await);
}
