//! The proxy itself.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::{any, post};
use axum::serve::ListenerExt;
use haltwise::Rule;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::ask::Ask;
use crate::settings::{Options, ProxyError, Settings};
use crate::upstream::{Failure, Upstream};
use crate::voted::{PATH, Voted};

/// The longest request that is read.
const MOST_BYTES: usize = 16 << 20;

/// A server that votes.
#[derive(Debug)]
pub struct Proxy {
    settings: Settings,
    upstream: Arc<Upstream>,
    timeout: Duration,
    totals: Mutex<Totals>,
}

/// What a proxy did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that were voted on.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Votes that were cast.
    pub votes: u64,
    /// Votes that there would have been without the rule.
    pub of: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// About how many more there would have been.
    pub saved_tokens: u64,
}

impl Proxy {
    /// A proxy that stops by a rule made from traces of votes.
    pub fn new(rule: Rule, options: &Options) -> Result<Self, ProxyError> {
        Ok(Self {
            settings: Settings::new(rule)?,
            upstream: Arc::new(Upstream::new(options)?),
            timeout: options.timeout,
            totals: Mutex::default(),
        })
    }

    /// What it did so far.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until it is told to stop; what is under way then is finished.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ProxyError> {
        let routes = Router::new()
            .route(PATH, post(chat))
            .route("/v1/{*path}", any(pass))
            .layer(DefaultBodyLimit::max(MOST_BYTES))
            .with_state(self);
        // Small messages go out as they are, not when there are more of them.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        Ok(axum::serve(listener, routes)
            .with_graceful_shutdown(stop)
            .await?)
    }

    fn count(&self, voted: &Result<Voted, Failure>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.requests += 1;
        let Ok(voted) = voted else {
            totals.failed += 1;
            return;
        };
        let ((votes, of), (tokens, saved)) = (voted.votes(), voted.tokens());
        totals.votes += votes;
        totals.of += of;
        totals.tokens += tokens;
        totals.saved_tokens += saved;
    }
}

async fn chat(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let Some(ask) = Ask::new(&body, &proxy.settings) else {
        return passed(
            &proxy,
            axum::http::Method::POST,
            PATH,
            &headers,
            body.into(),
        )
        .await;
    };
    let headers = Arc::new(headers);
    let voting = Voted::new(&proxy.settings, &proxy.upstream, &headers, &ask);
    let voted = timeout(proxy.timeout, voting)
        .await
        .unwrap_or_else(|_| Err(late(&proxy)));
    proxy.count(&voted);
    match voted {
        Ok(voted) => voted.reply(&ask),
        Err(failure) => failure.into_response(),
    }
}

/// Everything that is not voted on.
async fn pass(State(proxy): State<Arc<Proxy>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    passed(&proxy, head.method, path, &head.headers, body).await
}

async fn passed(
    proxy: &Proxy,
    method: axum::http::Method,
    path: &str,
    headers: &HeaderMap,
    body: Body,
) -> Response<Body> {
    let sent = proxy.upstream.send(method, path, headers, body);
    let answer = timeout(proxy.timeout, sent).await;
    let answer = answer.unwrap_or_else(|_| Err(late(proxy)));
    answer.unwrap_or_else(Failure::into_response)
}

fn late(proxy: &Proxy) -> Failure {
    let seconds = proxy.timeout.as_secs_f64();
    Failure::new(
        StatusCode::GATEWAY_TIMEOUT,
        &format!("the model's server did not answer within {seconds} s"),
    )
}
