//! What `serve` and `proxy` have in common: connections, and how they end.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use haltwise_serve::{ConnectionLimits, LogForm, LogRequests, ServerLog, Tls};

use crate::reader::seconds;
use crate::show;

/// How clients connect, and what is logged of that.
#[derive(clap::Args)]
pub(crate) struct DoorArgs {
    /// Also answer to this host name. Without a token or key, the server answers only to IP
    /// addresses, localhost and names without a dot
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,

    /// How to write the log, which goes to standard error
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    log: LogFormArg,

    /// Which requests to log
    #[arg(long, value_enum, value_name = "WHICH", default_value = "failed")]
    log_requests: LogRequestsArg,

    /// Encrypt connections with this chain of certificates (PEM), the server's own first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// The largest number of connections; fewer if the system allows fewer open files
    #[arg(
        long,
        value_name = "N",
        default_value = "10000",
        help_heading = "Limits"
    )]
    max_connections: NonZeroU32,

    /// Seconds that a client may be silent before a request is complete, between requests, while
    /// it should take an answer, and after a WebSocket's ping
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, help_heading = "Limits")]
    client_timeout: f64,

    /// Seconds that requests under way may take after Ctrl-C or SIGTERM; a second one quits at once
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds, help_heading = "Limits")]
    drain: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormArg {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogRequestsArg {
    /// Requests that failed through no fault of their client (5xx)
    Failed,
    /// All requests
    All,
}

impl DoorArgs {
    /// The log of the server.
    pub(crate) fn log(&self) -> ServerLog {
        let form = match self.log {
            LogFormArg::Text => LogForm::Text,
            LogFormArg::Json => LogForm::Json,
        };
        let requests = match self.log_requests {
            LogRequestsArg::Failed => LogRequests::Failed,
            LogRequestsArg::All => LogRequests::All,
        };
        ServerLog::new(form, requests, |line| show::note(line))
    }

    /// The limits of connections for a program that needs this many other descriptors.
    pub(crate) fn limits(&self, others: usize, log: &ServerLog) -> ConnectionLimits {
        let wanted = ConnectionLimits {
            connections: self.max_connections.get(),
            silence: Duration::from_secs_f64(self.client_timeout),
            drain: Duration::from_secs_f64(self.drain),
        };
        let limits = wanted.within_descriptors(others);
        if limits.connections < wanted.connections {
            log.warn(&format!(
                "the system allows too few open files for {} connections, so there may be {}; \
                 raise the limit (ulimit -n) or lower --max-connections",
                wanted.connections, limits.connections
            ));
        }
        limits
    }

    /// The certificate, if connections are to be encrypted.
    pub(crate) fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let tls = files.map(|(certificates, key)| Tls::read(certificates, key));
        Ok(tls.transpose()?)
    }

    /// The address for a browser.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls_cert.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{address}")
    }

    /// How long requests under way may take to end.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs_f64(self.drain)
    }
}

/// The token or keys in an environment variable, if it is set. A value that no client could send is
/// refused: it was set to keep strangers out.
pub(crate) fn secret(variable: &str) -> anyhow::Result<Option<String>> {
    let Some(text) = std::env::var_os(variable) else {
        return Ok(None);
    };
    // A file that it was read from has an end of a line.
    let text = text.to_str().map(str::trim);
    match text {
        Some("") => bail!("{variable} is set, but empty; put a secret into it, or unset it"),
        Some(text) if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
            Ok(Some(text.to_owned()))
        }
        _ => bail!(
            "{variable} has characters that a header cannot have; use ASCII letters, digits and \
             signs, as `openssl rand -hex 32` makes them"
        ),
    }
}

/// Listens for Ctrl-C and SIGTERM from now on; done when one of them came. The second one ends
/// the process.
#[cfg(unix)]
pub(crate) fn stopped(
    drain: Duration,
    log: ServerLog,
) -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => show::TERMINATED,
                _ = interrupt.recv() => show::INTERRUPTED,
            }
        };
        next().await;
        log.info(&format!(
            "stopping within {} s; send the signal again to quit at once",
            drain.as_secs_f64()
        ));
        // Only a server that failed has stopped listening.
        let _ = stop.send(());
        std::process::exit(next().await.into());
    });
    Ok(async { drop(stopped.await) })
}

/// The same for Ctrl-C alone.
#[cfg(not(unix))]
pub(crate) fn stopped(
    drain: Duration,
    log: ServerLog,
) -> std::io::Result<impl Future<Output = ()>> {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        drop(tokio::signal::ctrl_c().await);
        log.info(&format!(
            "stopping within {} s; press Ctrl-C again to quit at once",
            drain.as_secs_f64()
        ));
        let _ = stop.send(());
        drop(tokio::signal::ctrl_c().await);
        std::process::exit(show::INTERRUPTED.into());
    });
    Ok(async { drop(stopped.await) })
}
