//! The server: HTTP, WebSocket and events around boards.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, stream};
use haltwise::Rule;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, watch};

use crate::board::{Answers, Board};
use crate::desk::{Fault, FaultKind, Settings};
use crate::error::Error;
use crate::lines::Lines;
use crate::metrics;
use crate::mqtt::{self, Mqtt};
use crate::store::Store;

/// A rule to serve.
#[derive(Debug)]
pub struct Served {
    /// The path it is served at.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// The text of its file.
    pub json: String,
}

/// Told what whoever runs the server should know.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// What to serve, and how.
pub struct Options {
    /// The rules.
    pub rules: Vec<Served>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The folder of all stores.
    pub store: PathBuf,
    /// What clients must show; needed unless only this machine can connect.
    pub token: Option<String>,
    /// How streams are audited and watched.
    pub settings: Settings,
    /// The most bytes of a line.
    pub max_line: usize,
    /// How often labelled audits go into trace files.
    pub rotate: Duration,
    /// What chance is drawn from.
    pub seed: u64,
    /// A broker to take lines from and to give answers to.
    pub mqtt: Option<Mqtt>,
    /// Told of alarms and failures.
    pub notice: Notice,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's business.
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The most bytes of a body that is no stream.
const MOST_BODY: usize = 16 << 20;

/// How long streams may take to end when the server does.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
struct App {
    boards: Arc<Vec<Arc<Board>>>,
    token: Option<Arc<str>>,
    max_line: usize,
    /// Whether the server is to end.
    ending: watch::Receiver<bool>,
}

impl App {
    fn board(&self, name: &str) -> Result<Arc<Board>, Problem> {
        let found = self.boards.iter().find(|board| board.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.boards.iter().map(|b| b.name.as_str()).collect();
            problem(
                StatusCode::NOT_FOUND,
                &format!("there is no rule {name:?}"),
                &format!("ask for one of: {}", names.join(", ")),
            )
        })
    }
}

/// Serves until `stop` is done, then stores all.
///
/// `started` is told the address once clients can connect.
pub async fn serve(
    options: Options,
    started: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    if options.token.is_none() && !options.listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{} can be reached from other machines; set a token that clients must show, or listen \
             on 127.0.0.1",
            options.listen
        )));
    }
    let mut boards = Vec::new();
    for (i, served) in options.rules.into_iter().enumerate() {
        let folder = options.store.join(&served.name);
        let (store, desk) = Store::open(
            &folder,
            served.rule,
            served.json,
            options.settings,
            crate::board::now(),
            options.seed.wrapping_add(i as u64),
        )?;
        boards.push(Arc::new(Board::new(served.name, desk, store)));
    }
    let boards = Arc::new(boards);
    let (end, ending) = watch::channel(false);
    let app = App {
        boards: Arc::clone(&boards),
        token: options.token.map(Into::into),
        max_line: options.max_line,
        ending: ending.clone(),
    };
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|e| Error::new(format!("cannot listen on {}: {e}", options.listen)))?;
    let address = listener
        .local_addr()
        .map_err(|e| Error::new(e.to_string()))?;
    let notice = Arc::clone(&options.notice);
    let kept = keep(Arc::clone(&boards), options.rotate, notice, ending.clone());
    let keeping = tokio::spawn(kept);
    if let Some(broker) = options.mqtt {
        // The same server is the same client to the broker, after a restart too.
        let folder = options.store.canonicalize().unwrap_or(options.store);
        let digest = crate::desk::digest(&folder.to_string_lossy());
        let id = format!("haltwise-{}", &digest[..16]);
        let most = options.max_line;
        let boards = Arc::clone(&boards);
        let listening = mqtt::run(broker, boards, id, most, options.notice, ending.clone());
        tokio::spawn(listening);
    }
    started(address);
    let mut heard = ending.clone();
    let serving = axum::serve(listener, router(app))
        .with_graceful_shutdown(async move { ended(&mut heard).await });
    let serving = tokio::spawn(serving.into_future());
    stop.await;
    end.send_replace(true);
    // Who does not end in time is cut off; nothing that was answered is lost.
    let _ = tokio::time::timeout(LAST_WORDS, serving).await;
    keeping.abort();
    for board in boards.iter() {
        board.close()?;
    }
    Ok(())
}

/// Closes idle streams, rotates logs, and tells of alarms and failures.
async fn keep(
    boards: Arc<Vec<Arc<Board>>>,
    rotate: Duration,
    notice: Notice,
    mut ending: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut rotated = tokio::time::Instant::now();
    let mut told = vec![(false, false); boards.len()];
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = ending.changed() => return,
        }
        let due = rotated.elapsed() >= rotate;
        if due {
            rotated = tokio::time::Instant::now();
        }
        for (board, (alarmed, failed)) in boards.iter().zip(&mut told) {
            let name = &board.name;
            let alarm = board.with_desk(|desk| desk.monitor().is_some_and(|m| m.alarm().is_some()));
            if alarm && !*alarmed {
                notice(&format!(
                    "alarm: the promise of {name} does not hold any more; see /"
                ));
            }
            *alarmed = alarm;
            let kept = Arc::clone(board);
            let work = tokio::task::spawn_blocking(move || {
                kept.tick()?;
                if due || kept.is_long() {
                    kept.rotate()?;
                }
                Ok::<(), Error>(())
            });
            // A store that cannot be written says so to every client as well.
            let done = work
                .await
                .unwrap_or_else(|e| Err(Error::new(e.to_string())));
            if let Err(error) = &done
                && !*failed
            {
                notice(&error.to_string());
            }
            *failed = done.is_err();
        }
    }
}

fn router(app: App) -> Router {
    let closed = Router::new()
        .route("/metrics", get(prometheus))
        .route("/{name}/streams", post(streams))
        .route("/{name}/ws", get(websocket))
        .route("/{name}/observe", post(observe))
        .route("/{name}/labels", post(labels))
        .route("/{name}/labels/wanted", get(wanted))
        .route("/{name}/events", get(events))
        .route("/{name}/status", get(status))
        .route("/{name}/rule", get(rule).put(renew))
        .route("/{name}/rotate", post(rotate))
        .layer(middleware::from_fn_with_state(app.clone(), authorised));
    Router::new()
        .route("/", get(page))
        .route("/rules", get(rules))
        .route("/health", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .route("/openapi.json", get(openapi))
        .merge(closed)
        .fallback(|| async {
            problem(
                StatusCode::NOT_FOUND,
                "there is nothing at this path",
                "see /openapi.json",
            )
        })
        .method_not_allowed_fallback(|| async {
            problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path does not take that method",
                "see /openapi.json",
            )
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(app)
}

/// A mistake, and what to do about it.
#[derive(Debug)]
struct Problem {
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

fn problem(status: StatusCode, error: &str, remedy: &str) -> Problem {
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
        "whoever runs the server must make room and start it again; send it again then",
    )
}

/// Lets in who shows the token.
async fn authorised(State(app): State<App>, request: Request, next: Next) -> Response {
    if let Some(token) = &app.token {
        let shown = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if !shown.is_some_and(|shown| same(shown, token)) {
            let mut response = problem(
                StatusCode::UNAUTHORIZED,
                "a token is needed, and the one that came is none or another",
                "send it as a header: Authorization: Bearer TOKEN",
            )
            .into_response();
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
            return response;
        }
    }
    next.run(request).await
}

/// Whether two secrets are the same, in a time that does not tell where they
/// differ.
fn same(a: &str, b: &str) -> bool {
    let differing = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differing == 0
}

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; img-src data:";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("page.html")),
    )
        .into_response()
}

async fn openapi() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], include_str!("openapi.json")).into_response()
}

async fn rules(State(app): State<App>) -> Json<Vec<String>> {
    Json(app.boards.iter().map(|board| board.name.clone()).collect())
}

async fn ready(State(app): State<App>) -> Response {
    for board in app.boards.iter() {
        if let Err(problem) = board.ready() {
            return broken(&Error::new(problem)).into_response();
        }
    }
    "ready\n".into_response()
}

async fn prometheus(State(app): State<App>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], metrics::text(&app.boards)).into_response()
}

async fn status(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let status = board.status();
    let mut said = serde_json::to_value(&status).unwrap_or_default();
    if let Value::Object(fields) = &mut said {
        board.with_desk(|desk| {
            let rule = desk.rule();
            fields.insert("alpha".into(), json!(rule.alpha().get()));
            fields.insert("t_max".into(), json!(rule.t_max()));
            fields.insert(
                "expected_t_avg".into(),
                json!(rule.expected().map(|e| e.t_avg)),
            );
            let line = desk.monitor().map(|m| 1.0 / m.watch().delta().get());
            fields.insert("alarm_line".into(), json!(line));
        });
        fields.insert("history".into(), json!(board.history()));
    }
    Ok(Json(said).into_response())
}

async fn wanted(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    Ok(Json(board.with_desk(crate::desk::Desk::labels_wanted)).into_response())
}

async fn rule(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let json = app
        .board(&name)?
        .with_desk(|desk| desk.rule_json().to_owned());
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
}

async fn renew(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let parsed = haltwise_io::parse_rule(&body).map_err(|e| {
        let error = format!("the rule cannot be read: {e}");
        problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            &error,
            "send the file that haltwise calibrate wrote, as it is",
        )
    })?;
    let json = String::from_utf8_lossy(&body).into_owned();
    let (renewed, answers) = board.renew(parsed, json).map_err(|e| broken(&e))?;
    renewed.map_err(|fault| faulty(&fault))?;
    board.durable(answers.after).await.map_err(|e| broken(&e))?;
    let renewal = board.with_desk(crate::desk::Desk::renewal);
    Ok(Json(json!({"renewal": renewal})).into_response())
}

async fn rotate(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let rotated = tokio::task::spawn_blocking(move || board.rotate()).await;
    match rotated {
        Ok(Ok(())) => Ok(Json(json!({"rotated": true})).into_response()),
        Ok(Err(error)) => Err(broken(&error)),
        Err(error) => Err(broken(&Error::new(error.to_string()))),
    }
}

async fn observe(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let (taken, answers) = board.take_one(body.trim_ascii()).map_err(|e| broken(&e))?;
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

async fn labels(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let (mut taken, mut last, mut faults) = (0, 0, Vec::new());
    let lines = (1_u64..).zip(body.split(|&b| b == b'\n'));
    for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let (labelled, answers) = board.label(line).map_err(|e| broken(&e))?;
        match labelled {
            Ok(()) => (taken, last) = (taken + 1, answers.after),
            Err(fault) => faults.push((number, fault)),
        }
    }
    board.durable(last).await.map_err(|e| broken(&e))?;
    match &faults[..] {
        [(_, only)] if taken == 0 => Err(faulty(only)),
        _ => {
            let said: Vec<Value> = faults
                .iter()
                .filter_map(|(number, fault)| serde_json::from_str(&fault.json(Some(*number))).ok())
                .collect();
            Ok(Json(json!({"labels": taken, "refused": said})).into_response())
        }
    }
}

/// Events as they happen; who is too slow is told how many were missed.
async fn events(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let heard = app.board(&name)?.listen();
    let ending = app.ending.clone();
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

/// Lines in, answers out, on one connection.
async fn streams(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    // Few answers wait at a time: who does not read them is not read from.
    let (queue, waiting) = mpsc::channel(16);
    let reading = read(
        Arc::clone(&board),
        app.max_line,
        app.ending.clone(),
        body,
        queue,
    );
    tokio::spawn(reading);
    let kind = HeaderValue::from_static("application/x-ndjson");
    let body = Body::from_stream(answers(board, waiting));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

async fn read(
    board: Arc<Board>,
    max_line: usize,
    mut ending: watch::Receiver<bool>,
    body: Body,
    queue: mpsc::Sender<Result<Answers, Error>>,
) {
    let mut lines = Lines::new(max_line);
    let mut pieces = body.into_data_stream();
    loop {
        let piece = tokio::select! {
            piece = pieces.next() => piece,
            () = ended(&mut ending) => {
                let text = ENDING.to_owned();
                let _ = queue.send(Ok(Answers { text, after: 0 })).await;
                return;
            }
            // Whoever waited for answers has gone.
            () = queue.closed() => return,
        };
        let (taken, last) = match piece {
            Some(Ok(piece)) => (lines.push(&piece, |l, n| board.take(l, n)), false),
            // Cut off: a line that is not whole is none.
            Some(Err(_)) => return,
            None => (lines.finish(|l, n| board.take(l, n)), true),
        };
        if let Some(taken) = taken {
            let silent = taken.as_ref().is_ok_and(|answers| answers.text.is_empty());
            let failed = taken.is_err();
            if !silent && queue.send(taken).await.is_err() || failed {
                return;
            }
        }
        if last {
            return;
        }
    }
}

/// Answers, each once it is on the disk.
fn answers(
    board: Arc<Board>,
    waiting: mpsc::Receiver<Result<Answers, Error>>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((board, waiting)), |state| async {
        let (board, mut waiting) = state?;
        let answers = match waiting.recv().await? {
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
        "remedy": "nothing was decided; send it again when the server is ready",
    });
    format!("{said}\n").into()
}

async fn websocket(
    State(app): State<App>,
    Path(name): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let board = app.board(&name)?;
    let (most, ending) = (app.max_line, app.ending.clone());
    let upgrade = upgrade.max_message_size(most.max(1 << 20));
    Ok(upgrade.on_upgrade(move |socket| converse(board, most, ending, socket)))
}

/// Each message is one line or several; answers come as messages of lines.
async fn converse(
    board: Arc<Board>,
    max_line: usize,
    mut ending: watch::Receiver<bool>,
    mut socket: WebSocket,
) {
    let mut number = 0;
    loop {
        let message = tokio::select! {
            message = socket.recv() => message,
            () = ended(&mut ending) => {
                let _ = socket.send(ws::Message::Text(ENDING.into())).await;
                return;
            }
        };
        let text = match message {
            Some(Ok(ws::Message::Text(text))) => Bytes::from(text),
            Some(Ok(ws::Message::Binary(bytes))) => bytes,
            Some(Ok(ws::Message::Ping(_) | ws::Message::Pong(_))) => continue,
            Some(Ok(ws::Message::Close(_)) | Err(_)) | None => return,
        };
        // Each message stands alone: what it ends with is a whole line.
        let mut lines = Lines::starting(max_line, number);
        let mut said = Vec::new();
        said.extend(lines.push(&text, |l, n| board.take(l, n)));
        said.extend(lines.finish(|l, n| board.take(l, n)));
        number = lines.number();
        for taken in said {
            let told = match taken {
                Err(error) => Err(error),
                Ok(answers) => board.durable(answers.after).await.map(|()| answers.text),
            };
            let (text, over) = match told {
                Ok(text) if text.is_empty() => continue,
                Ok(text) => (Bytes::from(text), false),
                Err(error) => (failed(&error), true),
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            if socket.send(ws::Message::Text(text.into())).await.is_err() || over {
                return;
            }
        }
    }
}
