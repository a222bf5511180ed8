//! The server: HTTP, WebSocket and events around boards.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, watch};

use crate::board::{Answers, Board};
use crate::boards::{Boards, Watching};
use crate::desk::{Fault, FaultKind};
use crate::error::Error;
use crate::lines::Lines;
use crate::metrics;
use crate::mqtt::{self, Mqtt};

/// What to serve, and how.
#[derive(Debug)]
pub struct Options {
    /// What is audited and watched.
    pub watching: Watching,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The most bytes of a line.
    pub max_line: usize,
    /// A broker to take lines from and to give answers to.
    pub mqtt: Option<Mqtt>,
}

/// The most bytes of a body that is no stream.
const MOST_BODY: usize = 16 << 20;

/// How long streams may take to end when the server does.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
struct App {
    boards: Boards,
    max_line: usize,
}

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
        mqtt,
    } = options;
    if watching.token.is_none() && !listen.ip().is_loopback() {
        return Err(Error::new(format!(
            "{listen} can be reached from other machines; set a token that clients must show, or \
             listen on 127.0.0.1"
        )));
    }
    let (store, notice) = (watching.store.clone(), Arc::clone(&watching.notice));
    let (boards, keeping) = Boards::start(watching)?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|e| Error::new(format!("cannot listen on {listen}: {e}")))?;
    let address = listener
        .local_addr()
        .map_err(|e| Error::new(e.to_string()))?;
    if let Some(broker) = mqtt {
        // The same server is the same client to the broker, after a restart too.
        let folder = store.canonicalize().unwrap_or(store);
        let digest = crate::desk::digest(&folder.to_string_lossy());
        let id = format!("haltwise-{}", &digest[..16]);
        let all = Arc::clone(&boards.all);
        tokio::spawn(mqtt::run(
            broker,
            all,
            id,
            max_line,
            notice,
            boards.ending(),
        ));
    }
    started(address);
    let mut heard = boards.ending();
    let app = App {
        boards: boards.clone(),
        max_line,
    };
    let serving = axum::serve(listener, router(app))
        .with_graceful_shutdown(async move { ended(&mut heard).await });
    let serving = tokio::spawn(serving.into_future());
    stop.await;
    boards.end();
    // Who does not end in time is cut off; nothing that was answered is lost.
    let _ = tokio::time::timeout(LAST_WORDS, serving).await;
    boards.close(&keeping)
}

fn router(app: App) -> Router {
    let boards = app.boards.clone();
    let taking = Router::new()
        .route("/{name}/streams", post(streams))
        .route("/{name}/ws", get(websocket))
        .route("/{name}/observe", post(observe))
        .with_state(app);
    let renewing = Router::new()
        .route("/{name}/rule", put(renew))
        .with_state(boards.clone());
    let closed = taking
        .merge(renewing)
        .layer(middleware::from_fn_with_state(boards.clone(), authorised));
    closed
        .merge(boards.routes())
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
}

impl Boards {
    /// What can be asked for wherever the streams come from: how it goes, the
    /// metrics, labels. All but a look at the page wants the token.
    pub fn routes(&self) -> Router {
        let closed = Router::new()
            .route("/metrics", get(prometheus))
            .route("/{name}/labels", post(labels))
            .route("/{name}/labels/wanted", get(wanted))
            .route("/{name}/events", get(events))
            .route("/{name}/status", get(status))
            .route("/{name}/rule", get(rule))
            .route("/{name}/rotate", post(rotate))
            .layer(middleware::from_fn_with_state(self.clone(), authorised));
        Router::new()
            .route("/", get(page))
            .route("/rules", get(rules))
            .route("/health", get(|| async { "alive\n" }))
            .route("/ready", get(ready))
            .route("/openapi.json", get(openapi))
            .merge(closed)
            .with_state(self.clone())
    }
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
async fn authorised(State(boards): State<Boards>, request: Request, next: Next) -> Response {
    if let Some(token) = &boards.token {
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

async fn rules(State(boards): State<Boards>) -> Json<Vec<String>> {
    Json(boards.all.iter().map(|board| board.name.clone()).collect())
}

async fn ready(State(boards): State<Boards>) -> Response {
    for board in boards.all.iter() {
        if let Err(problem) = board.ready() {
            return broken(&Error::new(problem)).into_response();
        }
    }
    "ready\n".into_response()
}

async fn prometheus(State(boards): State<Boards>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, kind)], metrics::text(&boards.all)).into_response()
}

async fn status(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
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

async fn wanted(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
    Ok(Json(board.with_desk(crate::desk::Desk::labels_wanted)).into_response())
}

async fn rule(State(boards): State<Boards>, Path(name): Path<String>) -> Result<Response, Problem> {
    let json = find(&boards, &name)?.with_desk(|desk| desk.rule_json().to_owned());
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
}

async fn renew(
    State(boards): State<Boards>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
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

async fn rotate(
    State(boards): State<Boards>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
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
    let board = find(&app.boards, &name)?;
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
    State(boards): State<Boards>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let board = find(&boards, &name)?;
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

/// Lines in, answers out, on one connection.
async fn streams(
    State(app): State<App>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let board = find(&app.boards, &name)?;
    // Few answers wait at a time: who does not read them is not read from.
    let (queue, waiting) = mpsc::channel(16);
    let reading = read(
        Arc::clone(&board),
        app.max_line,
        app.boards.ending(),
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
    let board = find(&app.boards, &name)?;
    let (most, ending) = (app.max_line, app.boards.ending());
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
