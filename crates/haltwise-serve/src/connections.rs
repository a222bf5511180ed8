//! Connections: how many there may be, how long they may be silent, and how they end.
//!
//! A client that connects and says nothing holds a descriptor and some memory. So there are
//! fewer connections than descriptors, the stores always have some in reserve, and a client
//! that neither sends nor takes anything is cut off.

use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use crate::error::Error;
use crate::server::ended;

/// Descriptors that connections leave for logs, trace files and everything else.
const RESERVE: usize = 64;

/// How many clients at a time are told that there is no room; more of them are cut off.
const TOLD_AT_ONCE: usize = 16;

/// How long that may take.
const TELLING: Duration = Duration::from_secs(1);

/// How long to wait before the next client if the system has nothing left to accept it with.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// The longest head of a request.
const MOST_HEAD: usize = 64 << 10;

const NO_ROOM: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\
    content-type: application/json\r\nretry-after: 1\r\ncontent-length: 107\r\n\r\n\
    {\"error\":\"there are too many connections\",\"remedy\":\"try again later; see --max-connections \
    of the server\"}\n";

/// The limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many there may be at the same time.
    pub connections: u32,
    /// How long a client may be silent: before the head of a request is complete, between two
    /// requests, while it should take an answer, and after a ping of a WebSocket.
    pub silence: Duration,
    /// How long requests under way may take to end when the server does.
    pub drain: Duration,
}

impl Default for ConnectionLimits {
    /// 10,000 connections, 60 seconds of silence, 5 seconds to end.
    fn default() -> Self {
        Self {
            connections: 10_000,
            silence: Duration::from_secs(60),
            drain: Duration::from_secs(5),
        }
    }
}

impl ConnectionLimits {
    /// The same with no more connections than the system has descriptors for, beside a reserve
    /// and `others` that the program needs. Asks the system for more descriptors if it has
    /// them to give.
    #[must_use]
    pub fn within_descriptors(self, others: usize) -> Self {
        let reserve = RESERVE.saturating_add(others);
        let wanted = reserve.saturating_add(self.connections as usize);
        let room = descriptors(wanted).map_or(usize::MAX, |most| {
            // If there are hardly any, half of them.
            most.saturating_sub(reserve).max(most / 2)
        });
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        Self {
            connections: self.connections.min(room).max(1),
            ..self
        }
    }
}

/// How many descriptors this process may have: at most `wanted`, as the system allows.
#[cfg(unix)]
fn descriptors(wanted: usize) -> Option<usize> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let asked = (wanted as u64).clamp(soft, hard.max(soft));
    let given = match setrlimit(Resource::RLIMIT_NOFILE, asked, hard) {
        Ok(()) => asked,
        Err(_) => soft,
    };
    usize::try_from(given).ok()
}

#[cfg(not(unix))]
fn descriptors(_: usize) -> Option<usize> {
    None
}

/// A certificate and its key: connections are encrypted.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a chain of certificates, the server's first, and its private key: files of PEM.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, Error> {
        let wrong = |path: &Path| {
            let path = path.to_path_buf();
            move |e: &dyn std::fmt::Display| Error::file(&path, e)
        };
        let (bad_chain, bad_key) = (wrong(certificates), wrong(key));
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect)
            .map_err(|e| bad_chain(&e))?;
        if chain.is_empty() {
            return Err(bad_chain(
                &"there is no certificate in it; give a file of PEM",
            ));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| bad_key(&e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad_chain(&e))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|e| bad_key(&format!("it is not the key of the certificate: {e}")))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// The connection of a request. Its place among those there may be is free again when the last
/// copy is dropped: a WebSocket keeps one, because it goes on after its request.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    _permit: Arc<OwnedSemaphorePermit>,
    /// How long its client may be silent.
    pub(crate) silence: Duration,
}

/// The connections of a server.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    tls: Option<Tls>,
    slots: Arc<Semaphore>,
    refused: AtomicU64,
}

impl Connections {
    /// Connections within limits, encrypted if there is a certificate.
    pub fn new(limits: ConnectionLimits, tls: Option<Tls>) -> Self {
        Self {
            limits,
            tls,
            slots: Arc::new(Semaphore::new(limits.connections as usize)),
            refused: AtomicU64::new(0),
        }
    }

    /// The limits.
    pub fn limits(&self) -> ConnectionLimits {
        self.limits
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.limits.connections as usize - self.slots.available_permits()
    }

    /// How many connections were refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Serves until the server is to end, then gives connections a while to end too. Returns
    /// whether all of them did; the others are cut off.
    pub async fn serve(
        &self,
        listener: TcpListener,
        router: Router,
        mut ending: watch::Receiver<bool>,
    ) -> bool {
        let telling = Arc::new(Semaphore::new(TOLD_AT_ONCE));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ended(&mut ending) => break,
                Some(_) = connections.join_next() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // A client that has gone already is no reason to wait. If descriptors have
                    // run out, the system tells no one when there are some again.
                    if !is_of_client(&error) {
                        tokio::time::sleep(EXHAUSTED).await;
                    }
                    continue;
                }
            };
            // Small messages go out as they are, not when there are more of them.
            let _ = stream.set_nodelay(true);
            let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                // A client that wants TLS could not read it.
                if self.tls.is_none()
                    && let Ok(permit) = Arc::clone(&telling).try_acquire_owned()
                {
                    connections.spawn(async move {
                        let _ = timeout(TELLING, tell_no_room(stream)).await;
                        drop(permit);
                    });
                }
                continue;
            };
            let silence = self.limits.silence;
            let connection = Connection {
                _permit: Arc::new(permit),
                silence,
            };
            let (router, tls, mut ending) = (router.clone(), self.tls.clone(), ending.clone());
            connections.spawn(async move {
                // Until it sends something, a client takes next to no memory.
                let mut first = [0];
                let sent = tokio::select! {
                    sent = timeout(silence, stream.peek(&mut first)) => sent,
                    () = ended(&mut ending) => return,
                };
                if !matches!(sent, Ok(Ok(1))) {
                    return;
                }
                let stream = without_long_writes(stream, silence);
                let Some(Tls(acceptor)) = tls else {
                    return Box::pin(converse(stream, router, connection, ending)).await;
                };
                if let Ok(Ok(stream)) = timeout(silence, Box::pin(acceptor.accept(stream))).await {
                    Box::pin(converse(stream, router, connection, ending)).await;
                }
            });
        }
        drop(listener);
        // WebSockets have slots too, but are no longer among the connections.
        let all = self.slots.acquire_many(self.limits.connections);
        timeout(self.limits.drain, all).await.is_ok()
    }
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

async fn tell_no_room(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NO_ROOM).await?;
    stream.shutdown().await?;
    // If the request is not read, the system tells the client of an error instead.
    while stream.read(&mut [0; 1024]).await? > 0 {}
    Ok(())
}

/// A stream that fails if its client takes nothing for too long.
fn without_long_writes(stream: TcpStream, limit: Duration) -> Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limit));
    Box::pin(stream)
}

/// Requests and answers over one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    of: Connection,
    mut ending: watch::Receiver<bool>,
) {
    let silence = of.silence;
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(of.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(silence)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        // An error is the client's: it sees that the connection is closed.
        _ = connection.as_mut() => return,
        () = ended(&mut ending) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_where_there_is_no_room_is_whole() {
        let text = std::str::from_utf8(NO_ROOM).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        let said: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(
            said["remedy"]
                .as_str()
                .unwrap()
                .contains("--max-connections")
        );
    }

    #[test]
    fn connections_leave_descriptors_for_the_store() {
        let limits = ConnectionLimits {
            connections: u32::MAX,
            ..ConnectionLimits::default()
        };
        let limits = limits.within_descriptors(8);
        assert!(limits.connections >= 1);
        if let Some(most) = descriptors(0) {
            assert!(limits.connections as usize + (RESERVE + 8).min(most / 2) <= most);
        }
    }
}
