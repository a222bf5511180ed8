//! Requests about the rules: their state, their metrics, their events, another rule.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::body::BodyPieces;
use super::problem::{Problem, fault_problem, problem, store_problem};
use super::{ended, find_rule};
use crate::error::Error;
use crate::exposition::Exposition;
use crate::served_rule::ServedRule;
use crate::served_rules::ServedRules;
use crate::status::Status;

/// The most bytes of a rule.
const MOST_RULE: usize = 16 << 20;

pub(super) async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; \
                  form-action 'none'";
    (
        [(header::CONTENT_SECURITY_POLICY, policy)],
        Html(include_str!("../page.html")),
    )
        .into_response()
}

pub(super) async fn openapi(State(rules): State<ServedRules>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], rules.openapi.to_string()).into_response()
}

pub(super) async fn rules(State(rules): State<ServedRules>) -> Json<Vec<String>> {
    Json(rules.all.iter().map(|served| served.name.clone()).collect())
}

pub(super) async fn ready(State(rules): State<ServedRules>) -> Response {
    if let Some(error) = rules.dead.problem() {
        let remedy = "it heals if the task goes on; if not, start the server again";
        return problem(StatusCode::SERVICE_UNAVAILABLE, &error, remedy).into_response();
    }
    for served in rules.all.iter() {
        if let Err(problem) = served.ready() {
            return store_problem(&Error::new(problem)).into_response();
        }
    }
    "ready\n".into_response()
}

pub(super) async fn prometheus(State(rules): State<ServedRules>) -> Response {
    let text = tokio::task::spawn_blocking(move || rules.metrics().into_text()).await;
    let kind = HeaderValue::from_static(Exposition::CONTENT_TYPE);
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => store_problem(&Error::new(error.to_string())).into_response(),
    }
}

/// The state of a rule, worked out where it keeps nobody waiting.
async fn status_of(served: &Arc<ServedRule>) -> Result<Arc<Status>, Problem> {
    let served = Arc::clone(served);
    let status = tokio::task::spawn_blocking(move || served.status()).await;
    status.map_err(|e| store_problem(&Error::new(e.to_string())))
}

pub(super) async fn status(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let status = status_of(&served).await?;
    let mut said = serde_json::to_value(&*status).unwrap_or_default();
    if let Value::Object(fields) = &mut said {
        fields.insert("history".into(), json!(served.history()));
    }
    Ok(Json(said).into_response())
}

pub(super) async fn wanted(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    Ok(Json(&status_of(&served).await?.labels_wanted).into_response())
}

pub(super) async fn rule(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let json = find_rule(&rules, &name)?.with_state(|state| state.rule_json().to_owned());
    let kind = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
}

pub(super) async fn renew(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let body = BodyPieces::of(request, &rules.unfinished);
    let body = body.whole(MOST_RULE).await?;
    // To read a rule is to audit it, which takes a while.
    let parsed = off_thread(move || haltwise_io::parse_rule_text(&body.bytes));
    let (parsed, json) = parsed.await?.map_err(|e| {
        let error = format!("the rule cannot be read: {e}");
        problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            &error,
            "send the file that haltwise calibrate wrote, as it is",
        )
    })?;
    let renewed = served
        .renew(parsed, json)
        .await
        .map_err(|e| store_problem(&e))?;
    let renewal = renewed.map_err(|fault| fault_problem(&fault))?;
    Ok(Json(json!({"renewal": renewal})).into_response())
}

/// Does what takes long on a thread of its own, so that other requests are answered meanwhile.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| store_problem(&Error::new(e.to_string())))
}

pub(super) async fn rotate(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    if !served.is_stored() {
        return Err(problem(
            StatusCode::NOT_FOUND,
            "nothing is stored here",
            "start the program with --store",
        ));
    }
    let rotated = off_thread(move || served.rotate()).await?;
    rotated.map_err(|e| store_problem(&e))?;
    Ok(Json(json!({"rotated": true})).into_response())
}

/// Events as they happen; who is too slow is told how many were missed.
pub(super) async fn events(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let heard = find_rule(&rules, &name)?.listen();
    let ending = rules.ending();
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
