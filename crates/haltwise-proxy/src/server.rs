//! The proxy itself.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::{any, post};
use axum::serve::ListenerExt;
use haltwise::Rule;
use haltwise::votes::Ballot;
use haltwise_serve::{Board, Boards};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ask::Ask;
use crate::audit::Watched;
use crate::settings::{Options, ProxyError, Settings};
use crate::upstream::{Failure, Upstream};
use crate::voted::{PATH, Voted, internal};

/// The longest request that is read.
const MOST_BYTES: usize = 16 << 20;

/// A server that votes.
#[derive(Debug)]
pub struct Proxy {
    settings: Settings,
    upstream: Arc<Upstream>,
    timeout: Duration,
    totals: Mutex<Totals>,
    boards: Option<Boards>,
    /// Audits whose votes are still to come.
    audits: Mutex<JoinSet<()>>,
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
    /// Requests of which all votes were cast, to see what stopping cost.
    pub audits: u64,
    /// Tokens that this took.
    pub audit_tokens: u64,
}

impl Proxy {
    /// A proxy that stops by a rule made from traces of votes.
    pub fn new(rule: Rule, options: &Options) -> Result<Self, ProxyError> {
        Ok(Self {
            settings: Settings::new(rule)?,
            upstream: Arc::new(Upstream::new(options)?),
            timeout: options.timeout,
            totals: Mutex::default(),
            boards: None,
            audits: Mutex::default(),
        })
    }

    /// The same where requests are audited and watched, by the rule that the first of
    /// these boards has: an older file may have been named.
    pub fn watched(boards: Boards, options: &Options) -> Result<Self, ProxyError> {
        let rule = boards.first().map(|board| board.rule());
        let rule = rule.ok_or_else(|| ProxyError::Rule("there is none".into()))?;
        Ok(Self {
            boards: Some(boards),
            ..Self::new(Rule::clone(&rule), options)?
        })
    }

    /// What it did so far.
    pub fn totals(&self) -> Totals {
        *lock(&self.totals)
    }

    /// Serves until it is told to stop; what is under way then is finished.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ProxyError> {
        let boards = self.boards.clone();
        let routes = Router::new()
            .route(PATH, post(chat))
            .route("/v1/{*path}", any(pass))
            .with_state(Arc::clone(&self))
            .merge(boards.as_ref().map(Boards::routes).unwrap_or_default())
            .layer(DefaultBodyLimit::max(MOST_BYTES));
        // Small messages go out as they are, not when there are more of them.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let stop = async move {
            stop.await;
            // Whoever waits for events need not wait any more.
            boards.inspect(Boards::end);
        };
        axum::serve(listener, routes)
            .with_graceful_shutdown(stop)
            .await?;
        let mut audits = std::mem::take(&mut *lock(&self.audits));
        while audits.join_next().await.is_some() {}
        Ok(())
    }

    /// Casts the votes that are left of an audited request.
    fn audit(self: &Arc<Self>, watched: Watched, headers: Arc<HeaderMap>, ask: Ask) {
        let proxy = Arc::clone(self);
        let auditing = async move {
            let voting = watched.finish(&proxy.settings, &proxy.upstream, &headers, &ask);
            // One that fails is lost: it counts as one that lost nothing.
            if let Ok(Ok(tokens)) = timeout(proxy.timeout, voting).await {
                let mut totals = lock(&proxy.totals);
                totals.audits += 1;
                totals.audit_tokens += tokens;
            }
        };
        let mut audits = lock(&self.audits);
        while audits.try_join_next().is_some() {}
        audits.spawn(auditing);
    }

    /// The board that a request is told to: it must be one that the promise is about.
    fn board(&self, ask: &Ask) -> Option<Arc<Board>> {
        let boards = self.boards.as_ref().filter(|_| ask.promised)?;
        boards.first()
    }

    /// Votes on a request. What is watched goes on after the reply, if it is audited.
    async fn vote(
        &self,
        headers: &Arc<HeaderMap>,
        ask: &Ask,
    ) -> Result<(Voted, Option<Watched>), Failure> {
        let rule = &self.settings.rule;
        let first = self.boards.as_ref().and_then(Boards::first);
        let ballot = match first.is_some_and(|board| board.reading_on()) {
            true => Ballot::to_the_end(rule),
            false => Ballot::new(rule),
        };
        let ballot = ballot.map_err(internal)?;
        let board = self.board(ask);
        let begun = board.map(|board| Watched::begin(&board, rule.t_max()));
        let mut watched = begun.transpose()?;
        let (settings, upstream) = (&self.settings, &self.upstream);
        let voting = Voted::new(ballot, settings, upstream, headers, ask, &mut watched);
        let voted = timeout(self.timeout, voting)
            .await
            .unwrap_or_else(|_| Err(late(self)))?;
        Ok((voted, watched))
    }

    fn count(&self, voted: Result<&Voted, &Failure>) {
        let mut totals = lock(&self.totals);
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
    let voted = proxy.vote(&headers, &ask).await;
    proxy.count(voted.as_ref().map(|(voted, _)| voted));
    let (voted, watched) = match voted {
        Ok(done) => done,
        Err(failure) => return failure.into_response(),
    };
    let reply = voted.reply(&ask);
    if let Some(watched) = watched.filter(Watched::goes_on) {
        proxy.audit(watched, headers, ask);
    }
    reply
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late(proxy: &Proxy) -> Failure {
    let seconds = proxy.timeout.as_secs_f64();
    Failure::new(
        StatusCode::GATEWAY_TIMEOUT,
        &format!("the model's server did not answer within {seconds} s"),
    )
}
