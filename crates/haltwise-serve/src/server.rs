//! The server: HTTP, WebSocket and events around boards.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, timeout};

use crate::access::{Role, authorised};
use crate::board::{Answers, Board};
use crate::boards::{Boards, Watching};
use crate::connections::{Connection, ConnectionLimits, Connections, Tls};
use crate::desk::{Fault, FaultKind};
use crate::error::Error;
use crate::exposition::Exposition;
use crate::lines::Lines;
use crate::mqtt::{self, Mqtt};
use crate::same_origin::{Gate, from_here};
use crate::server_log::ServerLog;
use crate::status::Status;

/// What to serve, and how.
#[derive(Debug)]
pub struct Options {
    /// What is audited and watched.
    pub watching: Watching,
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

/// The most bytes of a rule.
const MOST_RULE: usize = 16 << 20;

/// How many refused labels an answer describes; the others it counts.
const MOST_REFUSED: usize = 100;

/// How much of what came is answered at a time: the answer to a line of one letter has a hundred
/// and fifty.
const PART: usize = 16 << 10;

/// How many bytes of answers wait for a client to take them, besides those to one part.
const WAITING: usize = 256 << 10;

fn find(boards: &Boards, name: &str) -> Result<Arc<Board>, Problem> {
    let found = boards.all.iter().find(|board| board.name == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = boards.all.iter().map(|b| b.name.as_str()).collect();
        problem(
            StatusCode::NOT_FOUND,
            &format!("there is no rule {name:?}"),
            &format!("ask for one of: {}", names.join(", ")),
        )
    })
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
    let (boards, keeping) = tokio::select! {
        started = Boards::start_within(watching, wait_for_store) => started?,
        () = &mut stop => return Ok(()),
    };
    let boards = boards.allow_hosts(allow_hosts).limit_lines(max_line);
    let connected = async {
        let listener = bind(listen).await?;
        if let Some(broker) = mqtt {
            take_from(broker, &boards, store.unwrap_or_default(), &log)?;
        }
        Ok(listener)
    };
    let (listener, address) = match connected.await {
        Ok(connected) => connected,
        Err(error) => {
            // The open streams were read from the store, and are for the next server.
            boards.close(&keeping)?;
            return Err(error);
        }
    };
    started(address);
    let drain = connections.drain;
    let connections = Arc::new(Connections::new(connections, tls));
    boards.count_connections(&connections);
    let (router, ending) = (log.around(router(&boards)), boards.ending());
    let mut serving =
        tokio::spawn(async move { connections.serve(listener, router, ending).await });
    let drained = tokio::select! {
        () = stop => {
            boards.end();
            serving.await
        }
        // Nothing else ends it: it is a mistake in the server.
        ended = &mut serving => ended,
    };
    let closed = boards.close(&keeping);
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
        .map_err(|e| Error::new(format!("cannot listen on {listen}: {e}")))
}

/// Takes lines from a broker until the server ends.
fn take_from(broker: Mqtt, boards: &Boards, store: PathBuf, log: &ServerLog) -> Result<(), Error> {
    let stores: Vec<PathBuf> = boards.all.iter().map(|b| store.join(&b.name)).collect();
    let id = mqtt::client_id(&stores)?;
    let task = broker.task(id, boards, log.clone())?;
    let dead = boards.dead.clone();
    tokio::spawn(dead.supervise(mqtt::TASK, log.clone(), boards.ending(), task));
    Ok(())
}

fn router(boards: &Boards) -> Router {
    let observing = Router::new()
        .route("/{name}/streams", post(streams))
        .route("/{name}/ws", get(websocket))
        .route("/{name}/observe", post(observe))
        .with_state(boards.clone());
    let routes = boards
        .only(Role::Observe, observing)
        .merge(boards.all_routes());
    boards.behind(Gate::of_pages(&boards.hosts), with_fallbacks(routes))
}

/// Says what is wrong with requests that no route takes.
fn with_fallbacks(routes: Router) -> Router {
    let see = "see /openapi.json";
    routes
        .fallback(async move || {
            problem(StatusCode::NOT_FOUND, "there is nothing at this path", see)
        })
        .method_not_allowed_fallback(async move || {
            let error = "this path does not take that method";
            problem(StatusCode::METHOD_NOT_ALLOWED, error, see)
        })
}

impl Boards {
    /// What can be asked for wherever the streams come from: how it goes, the
    /// metrics, labels. Each wants a token with its role, except a look at the page. Pages of
    /// other sites get no answer.
    pub fn routes(&self) -> Router {
        self.behind(
            Gate::of_pages(&self.hosts),
            with_fallbacks(self.all_routes()),
        )
    }

    /// Routes that want no token: no page of another site gets an answer from them, whatever
    /// name it has, and no link leads there.
    pub fn closed_to_other_sites(&self, routes: Router) -> Router {
        self.behind(Gate::of_strangers(&self.hosts), routes)
    }

    fn behind(&self, gate: Gate, routes: Router) -> Router {
        let from_here = middleware::from_fn_with_state(gate, from_here);
        let timed = middleware::from_fn_with_state(self.clone(), timed);
        routes.layer(from_here).route_layer(timed)
    }

    /// Routes for clients that show a token with a role.
    pub fn only(&self, role: Role, routes: Router) -> Router {
        let who = (self.tokens.clone(), role);
        routes.layer(middleware::from_fn_with_state(who, authorised))
    }

    fn all_routes(&self) -> Router {
        let labelling = Router::new()
            .route("/{name}/labels", post(labels))
            .route("/{name}/labels/wanted", get(wanted));
        let reading = Router::new()
            .route("/metrics", get(prometheus))
            .route("/{name}/events", get(events))
            .route("/{name}/status", get(status))
            .route("/{name}/rule", get(rule));
        let administering = Router::new()
            .route("/{name}/rule", put(renew))
            .route("/{name}/rotate", post(rotate));
        let only = |role, routes: Router<Self>| self.only(role, routes.with_state(self.clone()));
        Router::new()
            .route("/", get(page))
            .route("/rules", get(rules))
            .route("/health", get(|| async { "alive\n" }))
            .route("/ready", get(ready))
            .route("/openapi.json", get(openapi))
            .with_state(self.clone())
            .merge(only(Role::Label, labelling))
            .merge(only(Role::Read, reading))
            .merge(only(Role::Administer, administering))
    }
}

/// Counts how long requests take.
async fn timed(State(boards): State<Boards>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map(|path| format!("{} {}", request.method(), path.as_str()));
    let begun = Instant::now();
    let response = next.run(request).await;
    if let Some(route) = route {
        boards.process.request(&route, begun.elapsed());
    }
    response
}

/// A mistake, and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error: String,
    remedy: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let said = json!({"error": self.error, "remedy": self.remedy});
        (self.status, Json(said)).into_response()
    }
}

pub(crate) fn problem(status: StatusCode, error: &str, remedy: &str) -> Problem {
    Problem {
        status,
        error: error.into(),
        remedy: remedy.into(),
    }
}

fn faulty(fault: &Fault) -> Problem {
    let status = match fault.kind {
        FaultKind::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
        FaultKind::BeginAgain => StatusCode::CONFLICT,
        FaultKind::Full => StatusCode::SERVICE_UNAVAILABLE,
        FaultKind::NotFound => StatusCode::NOT_FOUND,
    };
    problem(status, &fault.error, fault.remedy)
}

/// The store cannot be written.
fn broken(error: &Error) -> Problem {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.to_string(),
        "send it again with its \"t\" when /ready says so: a step that was taken does not count \
         twice; whoever runs the server must make room",
    )
}

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; \
                  form-action 'none'";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("page.html")),
    )
        .into_response()
}

async fn openapi(State(boards): State<Boards>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], boards.openapi.to_string()).into_response()
}

async fn rules(State(boards): State<Boards>) -> Json<Vec<String>> {
    Json(boards.all.iter().map(|board| board.name.clone()).collect())
}

async fn ready(State(boards): State<Boards>) -> Response {
    if let Some(error) = boards.dead.problem() {
        let remedy = "it heals if the task goes on; if not, start the server again";
        return problem(StatusCode::SERVICE_UNAVAILABLE, &error, remedy).into_response();
    }
    for board in boards.all.iter() {
        if let Err(problem) = board.ready() {
            return broken(&Error::new(problem)).into_response();
        }
    }
    "ready\n".into_response()
}

async fn prometheus(State(boards): State<Boards>) -> Response {
    let text = tokio::task::spawn_blocking(move || boards.metrics().into_text()).await;
    let kind = HeaderValue::from_static(Exposition::CONTENT_TYPE);
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => broken(&Error::new(error.to_string())).into_response(),
    }
}

/// The state of a rule, worked out where it keeps nobody waiting.
async fn looked_up(board: &Arc<Board>) -> Result<Arc<Status>, Problem> {
    let board = Arc::clone(board);
    let status = tokio::task::spawn_blocking(move || board.status()).await;
    status.map_err(|e| broken(&Error::new(e.to_string())))
}

async fn status(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let status = looked_up(&board).await?;
    let mut said = serde_json::to_value(&*status).unwrap_or_default();
    if let Value::Object(fields) = &mut said {
        fields.insert("history".into(), json!(board.history()));
    }
    Ok(Json(said).into_response())
}

async fn wanted(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    Ok(Json(&looked_up(&board).await?.labels_wanted).into_response())
}

async fn rule(State(boards): State<Boards>, Path(name): Path<String>) -> Result<Response, Problem> {
    let json = find(&boards, &name)?.with_desk(|desk| desk.rule_json().to_owned());
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
}

async fn renew(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let body = Pieces::of(request).whole(MOST_RULE).await?;
    // To read a rule is to audit it, which takes a while.
    let parsed = aside(move || {
        let json = String::from_utf8_lossy(&body).into_owned();
        haltwise_io::parse_rule(&body).map(|rule| (rule, json))
    });
    let (parsed, json) = parsed.await?.map_err(|e| {
        let error = format!("the rule cannot be read: {e}");
        problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            &error,
            "send the file that haltwise calibrate wrote, as it is",
        )
    })?;
    let renewed = board.renew(parsed, json).await.map_err(|e| broken(&e))?;
    let renewal = renewed.map_err(|fault| faulty(&fault))?;
    Ok(Json(json!({"renewal": renewal})).into_response())
}

/// Does what takes long on a thread of its own, so that other requests are answered meanwhile.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| broken(&Error::new(e.to_string())))
}

async fn rotate(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    if !board.is_stored() {
        return Err(problem(
            StatusCode::NOT_FOUND,
            "nothing is stored here",
            "start the program with --store",
        ));
    }
    let rotated = aside(move || board.rotate()).await?;
    rotated.map_err(|e| broken(&e))?;
    Ok(Json(json!({"rotated": true})).into_response())
}

/// The body of a request, piece by piece.
struct Pieces {
    body: BodyDataStream,
    /// How long the next one may take to come.
    silence: Duration,
}

impl Pieces {
    fn of(request: Request) -> Self {
        let connection = request.extensions().get::<Connection>();
        let silence = connection.map_or_else(
            || ConnectionLimits::default().silence,
            |connection| connection.silence,
        );
        Self {
            body: request.into_body().into_data_stream(),
            silence,
        }
    }

    /// The next piece, until there is none.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match timeout(self.silence, self.body.next()).await {
            Ok(piece) => piece.transpose().map_err(|error| {
                problem(
                    StatusCode::BAD_REQUEST,
                    &format!("the body broke off: {error}"),
                    "send the request again",
                )
            }),
            Err(_) => Err(problem(
                StatusCode::REQUEST_TIMEOUT,
                &format!(
                    "nothing of the body came for {} s",
                    self.silence.as_secs_f64()
                ),
                "send the request again; see --client-timeout of the server",
            )),
        }
    }

    /// All pieces, of at most so many bytes together.
    async fn whole(mut self, most: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > most {
                return Err(problem(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    &format!("the body has more than {most} bytes"),
                    "send less, or start the server with a larger --max-line if it is one line",
                ));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

async fn observe(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let body = Pieces::of(request).whole(boards.max_line).await?;
    let (taken, answers) = board
        .take_one(Ok(body.trim_ascii()))
        .map_err(|e| broken(&e))?;
    board.durable(answers.after).await.map_err(|e| broken(&e))?;
    taken.map_err(|fault| faulty(&fault))?;
    let said: Vec<Value> = answers
        .text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let halted = said.iter().any(|answer| answer.get("reason").is_some());
    Ok(Json(json!({"halted": halted, "answers": said})).into_response())
}

/// What came of labels.
#[derive(Default)]
struct Labelled {
    taken: u64,
    /// How many records must be on the disk before this is told.
    after: u64,
    refused: u64,
    /// The first of those that were refused, with their lines.
    faults: Vec<(u64, Fault)>,
}

impl Labelled {
    fn take(
        &mut self,
        board: &Board,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<(), Error> {
        for (number, line) in (first..).zip(lines) {
            let labelled = match line {
                Ok([]) => continue,
                Ok(line) => {
                    let (labelled, answers) = board.label(line)?;
                    self.after = self.after.max(answers.after);
                    labelled
                }
                Err(fault) => Err(fault.clone()),
            };
            match labelled {
                Ok(()) => self.taken += 1,
                Err(fault) => {
                    self.refused += 1;
                    if self.faults.len() < MOST_REFUSED {
                        self.faults.push((number, fault));
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&self) -> Result<Response, Problem> {
        if let ([(_, only)], 0) = (&self.faults[..], self.taken) {
            return Err(faulty(only));
        }
        let faults = self.faults.iter();
        let said: Vec<Value> = faults
            .filter_map(|(number, fault)| serde_json::from_str(&fault.json(Some(*number))).ok())
            .collect();
        let untold = self.refused - self.faults.len() as u64;
        Ok(
            Json(json!({"labels": self.taken, "refused": said, "more_refused": untold}))
                .into_response(),
        )
    }
}

/// Labels are taken as they come: no body is ever in memory as a whole.
async fn labels(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let mut labelled = Labelled::default();
    let (mut lines, mut pieces) = (Lines::new(boards.max_line), Pieces::of(request));
    while let Some(piece) = pieces.next().await? {
        let taken = lines.push(&piece, |l, n| labelled.take(&board, l, n));
        taken.transpose().map_err(|e| broken(&e))?;
    }
    let taken = lines.finish(|l, n| labelled.take(&board, l, n));
    taken.transpose().map_err(|e| broken(&e))?;
    board
        .durable(labelled.after)
        .await
        .map_err(|e| broken(&e))?;
    labelled.answer()
}

/// Events as they happen; who is too slow is told how many were missed.
async fn events(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let heard = find(&boards, &name)?.listen();
    let ending = boards.ending();
    let stream = stream::unfold((heard, ending), |(mut heard, mut ending)| async move {
        let event = tokio::select! {
            event = heard.recv() => event,
            () = ended(&mut ending) => return None,
        };
        let data = match event {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(missed)) => format!("{{\"missed\":{missed}}}"),
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((
            Ok::<_, Infallible>(Event::default().data(data)),
            (heard, ending),
        ))
    });
    Ok(Sse::new(stream)
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// Waits until the server is to end.
pub(crate) async fn ended(ending: &mut watch::Receiver<bool>) {
    // The sender outlives all who wait.
    drop(ending.wait_for(|end| *end).await);
}

const ENDING: &str = "{\"error\":\"the server ends\",\"remedy\":\"connect again; streams that the \
                      server knows go on\"}\n";

const IDLE: &str = "{\"error\":\"nothing came for too long, so all streams are closed\",\"remedy\":\
                    \"connect again and begin them again; see --idle of the server\"}\n";

/// Lines in, answers out, on one connection.
async fn streams(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let (queue, waiting) = mpsc::channel(64);
    let queue = AnswerQueue {
        queue,
        room: Arc::new(Semaphore::new(WAITING)),
    };
    let reading = read(boards.clone(), Arc::clone(&board), body, queue);
    tokio::spawn(reading);
    let kind = HeaderValue::from_static("application/x-ndjson");
    let body = Body::from_stream(answers(board, waiting));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Answers, and their share of the room.
type WaitingAnswers = (Result<Answers, Error>, OwnedSemaphorePermit);

/// Answers on their way to a client. Few bytes of them wait: who does not read them is not read
/// from.
struct AnswerQueue {
    queue: mpsc::Sender<WaitingAnswers>,
    room: Arc<Semaphore>,
}

impl AnswerQueue {
    /// Sends answers once there is room for them. Returns whether there may be more.
    async fn send(&self, taken: Option<Result<Answers, Error>>) -> bool {
        let Some(taken) = taken else {
            return true;
        };
        let (bytes, failed) = match &taken {
            Ok(answers) if answers.text.is_empty() => return true,
            Ok(answers) => (answers.text.len(), false),
            Err(_) => (0, true),
        };
        let share = u32::try_from(bytes.min(WAITING)).unwrap_or(u32::MAX);
        let Ok(share) = Arc::clone(&self.room).acquire_many_owned(share).await else {
            return false;
        };
        self.queue.send((taken, share)).await.is_ok() && !failed
    }

    async fn say(&self, text: &str) {
        let text = text.to_owned();
        self.send(Some(Ok(Answers { text, after: 0 }))).await;
    }
}

async fn read(boards: Boards, board: Arc<Board>, body: Body, queue: AnswerQueue) {
    let mut lines = Lines::new(boards.max_line);
    let mut ending = boards.ending();
    let mut pieces = body.into_data_stream();
    loop {
        let piece = tokio::select! {
            piece = timeout(boards.idle, pieces.next()) => match piece {
                Ok(piece) => piece,
                Err(_) => return queue.say(IDLE).await,
            },
            () = ended(&mut ending) => return queue.say(ENDING).await,
            // Whoever waited for answers has gone.
            () = queue.queue.closed() => return,
        };
        let piece = match piece {
            Some(Ok(piece)) => piece,
            // Cut off: a line that is not whole is none.
            Some(Err(_)) => return,
            None => {
                let taken = lines.finish(|l, n| board.take(l, n));
                queue.send(taken).await;
                return;
            }
        };
        for part in piece.chunks(PART) {
            let taken = lines.push(part, |l, n| board.take(l, n));
            if !queue.send(taken).await {
                return;
            }
        }
    }
}

/// Answers, each once it is on the disk.
fn answers(
    board: Arc<Board>,
    waiting: mpsc::Receiver<WaitingAnswers>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((board, waiting)), |state| async {
        let (board, mut waiting) = state?;
        let (taken, _share) = waiting.recv().await?;
        let answers = match taken {
            Ok(answers) => answers,
            Err(error) => return Some((Ok(failed(&error)), None)),
        };
        match board.durable(answers.after).await {
            Ok(()) => Some((Ok(answers.text.into()), Some((board, waiting)))),
            Err(error) => Some((Ok(failed(&error)), None)),
        }
    })
}

fn failed(error: &Error) -> Bytes {
    let said = json!({
        "error": error.to_string(),
        "remedy": "send it again with its \"t\" when /ready says so: a step that was taken does \
                   not count twice",
    });
    format!("{said}\n").into()
}

async fn websocket(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    Extension(connection): Extension<Connection>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    let (most, ending) = (boards.max_line, boards.ending());
    let longest = most.max(1 << 20);
    // A frame takes the memory that its head claims.
    let upgrade = upgrade.max_message_size(longest).max_frame_size(longest);
    Ok(upgrade.on_upgrade(move |socket| converse(board, most, ending, connection, socket)))
}

/// When to send pings. Whoever says nothing from one to the next, not even that it is there,
/// has been silent for too long.
fn pings(silence: Duration) -> Interval {
    let period = (silence / 2).max(Duration::from_millis(1));
    let mut pings = tokio::time::interval_at(Instant::now() + period, period);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Each message is one line or several; answers come as messages of lines.
async fn converse(
    board: Arc<Board>,
    max_line: usize,
    mut ending: watch::Receiver<bool>,
    connection: Connection,
    mut socket: WebSocket,
) {
    let mut number = 0;
    let (mut ping, mut was_heard) = (pings(connection.silence), true);
    loop {
        let message = tokio::select! {
            // What has come counts before the time that has passed.
            biased;
            () = ended(&mut ending) => {
                let _ = socket.send(ws::Message::Text(ENDING.into())).await;
                return;
            }
            message = socket.recv() => message,
            _ = ping.tick() => {
                let is_there = std::mem::take(&mut was_heard);
                if !is_there || socket.send(ws::Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
                continue;
            }
        };
        was_heard = true;
        let text = match message {
            Some(Ok(ws::Message::Text(text))) => Bytes::from(text),
            Some(Ok(ws::Message::Binary(bytes))) => bytes,
            Some(Ok(ws::Message::Ping(_) | ws::Message::Pong(_))) => continue,
            Some(Ok(ws::Message::Close(_)) | Err(_)) | None => return,
        };
        // Each message stands alone: what it ends with is a whole line.
        let mut lines = Lines::starting(max_line, number);
        let mut parts = text.chunks(PART);
        let mut is_over = false;
        while !is_over {
            let mut said = Answers {
                text: String::new(),
                after: 0,
            };
            while !is_over && said.text.len() < WAITING {
                let taken = match parts.next() {
                    Some(part) => lines.push(part, |l, n| board.take(l, n)),
                    None => {
                        is_over = true;
                        lines.finish(|l, n| board.take(l, n))
                    }
                };
                match taken {
                    Some(Ok(answers)) => {
                        said.text += &answers.text;
                        said.after = said.after.max(answers.after);
                    }
                    Some(Err(error)) => return last_words(socket, &error).await,
                    None => {}
                }
            }
            if said.text.is_empty() {
                continue;
            }
            if let Err(error) = board.durable(said.after).await {
                return last_words(socket, &error).await;
            }
            let text = ws::Message::Text(said.text.into());
            if socket.send(text).await.is_err() {
                return;
            }
        }
        number = lines.number();
    }
}

/// Says why nothing more is answered, and hangs up.
async fn last_words(mut socket: WebSocket, error: &Error) {
    let text = String::from_utf8_lossy(&failed(error)).into_owned();
    let _ = socket.send(ws::Message::Text(text.into())).await;
}
