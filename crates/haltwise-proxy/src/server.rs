//! The proxy itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response};
use axum::middleware::{self, Next};
use axum::routing::{any, post};
use axum::{Extension, Router};
use haltwise::Rule;
use haltwise::votes::Ballot;
use haltwise_llm::Probing;
use haltwise_serve::{ConnectionLimits, Connections, RequestId, ServedRule, ServedRules, Tls};
use http_body::{Frame, SizeHint};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::body::BodyRoom;
use crate::keys::{Key, authorised};
use crate::metrics::{Metrics, Running, Totals};
use crate::openapi::openapi;
use crate::outcome::{Cause, Outcome, Purpose, UpstreamError};
use crate::pending_reply::PendingReply;
use crate::reported_request::ReportedRequest;
use crate::settings::{Options, ProxyError, Voting};
use crate::thought::{Asked, think};
use crate::thought_reply::{ThoughtReply, ThoughtStream};
use crate::unpromised::{opts_out, without_promise};
use crate::upstream::{Failure, Upstream, stays_below, without_long_pauses};
use crate::vote_request::VoteRequest;
use crate::voted_reply::{PATH, VotedReply, internal};

/// A server that votes, or thinks.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) voting: Voting,
    rules: ServedRules,
    pub(crate) served: Arc<ServedRule>,
    metrics: Arc<Metrics>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) timeout: Duration,
    /// The tokens that begin every text for the server, once it was asked.
    pub(crate) text_begins: OnceLock<Vec<Value>>,
    connections: ConnectionLimits,
    tls: Option<Tls>,
    keep_alive: Duration,
    votes_without_promise: bool,
    bodies: BodyRoom,
    pub(crate) keys: Vec<Key>,
    /// Audits whose votes are still to come.
    audits: Mutex<JoinSet<()>>,
}

impl Proxy {
    /// A proxy that stops by the rule that the first of these served rules has in use. It replaces
    /// what the served rules say about what can be asked for, and adds its metrics to theirs.
    pub fn new(rules: ServedRules, options: &Options) -> Result<Self, ProxyError> {
        let served = rules.first();
        let served = served.ok_or_else(|| ProxyError::Rule("there is none".into()))?;
        let (metrics, bodies) = (Arc::new(Metrics::new()), BodyRoom::new(options));
        let (shown, held) = (Arc::clone(&metrics), bodies.clone());
        let rules = rules
            .with_metrics(move |text| shown.write(text, held.held()))
            .described_by(openapi(served.is_stored())?);
        Ok(Self {
            voting: Voting::new(&served.rule(), &options.aliases)?,
            rules,
            served,
            upstream: Arc::new(Upstream::new(options, Arc::clone(&metrics))?),
            metrics,
            timeout: options.timeout,
            text_begins: OnceLock::new(),
            connections: options.connections,
            tls: options.tls.clone(),
            // An interval of nothing would be a busy loop.
            keep_alive: options.keep_alive.max(Duration::from_millis(1)),
            votes_without_promise: options.votes_without_promise,
            bodies,
            keys: options.keys.clone(),
            audits: Mutex::default(),
        })
    }

    /// The counts so far.
    pub fn totals(&self) -> Totals {
        self.metrics.totals()
    }

    /// Serves until it is told to stop. Requests and audits that are under way then
    /// have a bounded time to end. Returns whether all of them did.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<bool, ProxyError> {
        let connections = Arc::new(Connections::new(self.connections, self.tls.clone()));
        self.rules.count_connections(&connections);
        let (routes, ending) = (self.routes(), self.rules.ending());
        let mut serving =
            tokio::spawn(async move { connections.serve(listener, routes, ending).await });
        tokio::select! {
            () = stop => self.rules.end(),
            // Nothing else ends it: it is a mistake in the proxy.
            ended = &mut serving => return Ok(ended.map_err(std::io::Error::from)?),
        }
        let end = Instant::now() + self.connections.drain;
        let served = serving.await.map_err(std::io::Error::from)?;
        let mut audits = std::mem::take(&mut *lock(&self.audits));
        let audited = async { while audits.join_next().await.is_some() {} };
        Ok(timeout_at(end, audited).await.is_ok() && served)
    }

    fn routes(self: &Arc<Self>) -> Router {
        let mut voted = Router::new()
            .route(PATH, post(chat).fallback(pass))
            .route("/v1/{*path}", any(pass))
            .layer(middleware::from_fn_with_state(Arc::clone(self), authorised))
            .layer(middleware::from_fn_with_state(Arc::clone(self), measured))
            .with_state(Arc::clone(self));
        if self.keys.is_empty() {
            // Any page that someone on this machine opens could ask the model otherwise.
            voted = self.rules.closed_to_other_sites(voted);
        }
        let routes = voted.merge(self.rules.routes());
        self.rules.log().around(routes)
    }

    /// Goes on with an audited request after its reply. The work says how many tokens it took.
    fn audit(self: &Arc<Self>, work: impl Future<Output = Result<u64, Failure>> + Send + 'static) {
        let proxy = Arc::clone(self);
        let auditing = async move {
            match work.await {
                Ok(tokens) => {
                    proxy.metrics.audits.increment();
                    proxy.metrics.audit_tokens.add(tokens);
                }
                // It counts as one that lost nothing.
                Err(failure) => {
                    proxy.count_failure(&failure);
                    proxy.metrics.audits_lost.increment();
                    let problem = failure.problem;
                    proxy
                        .rules
                        .log()
                        .warn(&format!("an audit is lost: {problem}"));
                }
            }
        };
        let mut audits = lock(&self.audits);
        while audits.try_join_next().is_some() {}
        audits.spawn(auditing);
    }

    /// Votes on a request. An audited request goes on after the reply.
    async fn vote(
        &self,
        headers: &Arc<HeaderMap>,
        request: &VoteRequest,
        rule: Arc<Rule>,
    ) -> Result<(VotedReply, Option<ReportedRequest>), Failure> {
        // Another rule may have come since. The request ends with the one that it begins with.
        let begun = request
            .is_promised()
            .then(|| ReportedRequest::begin(&self.served));
        let mut reported = begun.transpose()?;
        let (rule, reads_on) = match &reported {
            Some(reported) => (reported.rule(), reported.reads_on()),
            None => (rule, self.served.reading_on()),
        };
        let ballot = if reads_on {
            Ballot::to_the_end(&rule)
        } else {
            Ballot::new(&rule)
        };
        let ballot = ballot.map_err(internal)?;
        let (voting, upstream) = (&self.voting, &self.upstream);
        let voting = VotedReply::new(ballot, voting, upstream, headers, request, &mut reported);
        let voted = timeout(self.timeout, voting).await;
        let voted = voted.unwrap_or_else(|_| Err(late(self)));
        match &voted {
            Ok(voted) => self.count(voted),
            Err(failure) => self.count_failure(failure),
        }
        Ok((voted?, reported))
    }

    fn count(&self, voted: &VotedReply) {
        let ((votes, of), (tokens, saved)) = (voted.votes(), voted.tokens());
        self.metrics.votes.add(votes);
        self.metrics.votes_saved.add(of - votes);
        self.metrics.tokens.add(tokens);
        self.metrics.tokens_saved.add(saved);
    }

    fn count_thought(&self, reply: &ThoughtReply) {
        let (thought, probes, all) = reply.tokens();
        self.metrics.thought_tokens.add(thought);
        self.metrics.probe_tokens.add(probes);
        self.metrics.tokens.add(all);
    }

    /// Counts what only the proxy sees of the server's failures.
    fn count_failure(&self, failure: &Failure) {
        match failure.cause {
            Cause::Late => self.metrics.upstream_failed(UpstreamError::Timeout),
            Cause::Nonsense => self.metrics.upstream_failed(UpstreamError::Nonsense),
            _ => {}
        }
    }
}

/// Counts a request when its answer has been sent, and how long that took.
async fn measured(
    State(proxy): State<Arc<Proxy>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let running = Arc::new(Running::new(&proxy.metrics));
    request.extensions_mut().insert(Arc::clone(&running));
    let response = next.run(request).await;
    if let Some(outcome) = response.extensions().get() {
        running.came_out(*outcome);
    }
    running.answers();
    response.map(|body| {
        Body::new(Measured {
            body,
            _running: running,
        })
    })
}

/// A body that keeps its request running until it is sent.
struct Measured {
    body: Body,
    _running: Arc<Running>,
}

impl HttpBody for Measured {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn chat(
    State(proxy): State<Arc<Proxy>>,
    Extension(running): Extension<Arc<Running>>,
    Extension(RequestId(id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let held = match proxy.bodies.read(body).await {
        Ok(held) => held,
        Err(failure) => return failure.into_response(),
    };
    let rule = proxy.served.rule();
    let request = if opts_out(&headers) {
        Err(Purpose::OptedOut)
    } else {
        VoteRequest::new(&held.bytes, &proxy.voting, &rule)
    };
    let request = match request {
        Ok(request) => request,
        Err(purpose) => {
            let body = held.bytes.into();
            return passed(&proxy, Method::POST, PATH, &headers, body, purpose).await;
        }
    };
    if let Some((difference, reason)) = request.difference()
        && !proxy.votes_without_promise
    {
        let (body, purpose) = (held.bytes.into(), Purpose::Unpromised(difference));
        let reply = passed(&proxy, Method::POST, PATH, &headers, body, purpose).await;
        return without_promise(reply, reason).await;
    }
    let request = request.holding(held.share);
    let headers = Arc::new(headers);
    if let Some(probing) = proxy.voting.probing.clone() {
        return thoughtful(proxy, (running, id), headers, (request, rule), probing).await;
    }
    if request.stream {
        return streamed(proxy, (running, id), headers, (request, rule)).await;
    }
    match answered(&proxy, headers, request, rule).await {
        Ok(reply) => reply,
        Err(failure) => failure.into_response(),
    }
}

/// Votes on a request, replies, and goes on to audit where that is wanted.
async fn answered(
    proxy: &Arc<Proxy>,
    headers: Arc<HeaderMap>,
    request: VoteRequest,
    rule: Arc<Rule>,
) -> Result<Response<Body>, Failure> {
    let (voted, reported) = proxy.vote(&headers, &request, rule).await?;
    let reply = voted.reply(&request);
    if let Some(reported) = reported.filter(ReportedRequest::goes_on) {
        let casting = Arc::clone(proxy);
        proxy.audit(async move {
            let proxy = casting;
            let voting = reported.finish(&proxy.voting, &proxy.upstream, &headers, &request);
            let voted = timeout(proxy.timeout, voting).await;
            voted.unwrap_or_else(|_| Err(late(&proxy)))
        });
    }
    Ok(reply)
}

/// Lets the model think about a request until the rule says stop, fills the reply, and goes on to
/// audit where that is wanted.
async fn thought_about(
    proxy: &Arc<Proxy>,
    headers: Arc<HeaderMap>,
    request: Arc<VoteRequest>,
    (probing, rule): (Probing, Arc<Rule>),
    reply: &mut ThoughtReply,
) -> Result<(), Failure> {
    let asked = Asked {
        proxy,
        probing: &probing,
        headers: &headers,
        request: &request,
    };
    let answered = async {
        let (thought, audited) = think(asked, rule, reply).await?;
        if let Some(audited) = audited {
            let thinking = Arc::clone(proxy);
            let (probing, headers, request) =
                (probing.clone(), Arc::clone(&headers), Arc::clone(&request));
            proxy.audit(async move {
                let asked = Asked {
                    proxy: &thinking,
                    probing: &probing,
                    headers: &headers,
                    request: &request,
                };
                audited.finish(asked).await
            });
        }
        thought.answer(asked, reply).await
    }
    .await;
    match &answered {
        Ok(()) => proxy.count_thought(reply),
        Err(failure) => proxy.count_failure(failure),
    }
    answered
}

/// Answers a client whose request the model thinks about.
async fn thoughtful(
    proxy: Arc<Proxy>,
    (running, id): (Arc<Running>, String),
    headers: Arc<HeaderMap>,
    (request, rule): (VoteRequest, Arc<Rule>),
    probing: Probing,
) -> Response<Body> {
    let request = Arc::new(request);
    let how = (probing, rule);
    if !request.stream {
        let mut reply = ThoughtReply::new(&request, None);
        let thought = thought_about(&proxy, headers, Arc::clone(&request), how, &mut reply).await;
        return match thought {
            Ok(()) => reply.whole(&request, &proxy.voting),
            Err(failure) => failure.into_response(),
        };
    }
    let silence = proxy.keep_alive;
    let (sender, mut events) = mpsc::unbounded_channel();
    let thinking = async move {
        let mut reply = ThoughtReply::new(&request, Some(sender));
        let asked = Arc::clone(&request);
        let thought = thought_about(&proxy, headers, asked, how, &mut reply).await;
        let failure = thought.as_ref().err();
        let outcome = request.outcome();
        running.came_out(failure.map_or(outcome, |failure| Outcome::Failed(failure.cause)));
        // A failure does not show in the status once the stream is open.
        if let Some(failure) = failure.filter(|_| running.has_begun()) {
            let problem = &failure.problem;
            let log = proxy.rules.log();
            log.error(&format!("a stream failed, request {id}: {problem}"));
        }
        if thought.is_ok() {
            reply.send_end(&request, &proxy.voting);
        }
        thought
    };
    let mut thinking = Box::pin(thinking);
    // A failure that is known soon has its status.
    let first = tokio::select! {
        biased;
        first = events.recv() => first,
        ended = &mut thinking => match ended {
            Ok(()) => return ThoughtStream::new(None, None, events, silence).into_response(),
            Err(failure) => return failure.into_response(),
        },
        () = sleep(silence) => None,
    };
    ThoughtStream::new(first, Some(thinking), events, silence).into_response()
}

/// Answers a client that wants a stream. A failure that is known soon has its status;
/// after that the stream is open, and comments keep it so until the votes are in.
async fn streamed(
    proxy: Arc<Proxy>,
    (running, id): (Arc<Running>, String),
    headers: Arc<HeaderMap>,
    (request, rule): (VoteRequest, Arc<Rule>),
) -> Response<Body> {
    let (silence, outcome) = (proxy.keep_alive, request.outcome());
    let voting = async move {
        let reply = answered(&proxy, headers, request, rule).await;
        let failure = reply.as_ref().err();
        running.came_out(failure.map_or(outcome, |failure| Outcome::Failed(failure.cause)));
        // A failure does not show in the status once the stream is open.
        if let Some(failure) = failure.filter(|_| running.has_begun()) {
            let problem = &failure.problem;
            let log = proxy.rules.log();
            log.error(&format!("a stream failed, request {id}: {problem}"));
        }
        reply
    };
    let mut voting = Box::pin(voting);
    if let Ok(soon) = timeout(silence, &mut voting).await {
        return soon.unwrap_or_else(Failure::into_response);
    }
    PendingReply::new(voting, silence).into_response()
}

/// Everything that is not voted on.
async fn pass(State(proxy): State<Arc<Proxy>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    if !stays_below(path) {
        let problem = "the path has . or .. as a part; send the path that they lead to";
        return Failure::new(Cause::Path, problem).into_response();
    }
    let purpose = Purpose::OtherPath;
    passed(&proxy, head.method, path, &head.headers, body, purpose).await
}

async fn passed(
    proxy: &Proxy,
    method: Method,
    path: &str,
    headers: &HeaderMap,
    body: Body,
    purpose: Purpose,
) -> Response<Body> {
    let body = without_long_pauses(body, proxy.bodies.timeout());
    let sent = proxy.upstream.pass(method, path, headers, body);
    let answer = timeout(proxy.timeout, sent).await;
    let answer = answer.unwrap_or_else(|_| Err(late(proxy)));
    match answer {
        Ok(mut answer) => {
            let outcome = Outcome::PassedThrough(purpose);
            answer.extensions_mut().insert(outcome);
            answer.map(|body| without_long_pauses(body, proxy.timeout))
        }
        Err(failure) => {
            proxy.count_failure(&failure);
            failure.into_response()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn late(proxy: &Proxy) -> Failure {
    let seconds = proxy.timeout.as_secs_f64();
    Failure::new(
        Cause::Late,
        &format!("the model's server did not answer within {seconds} s"),
    )
}
