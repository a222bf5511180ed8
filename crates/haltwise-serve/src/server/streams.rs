//! Lines of streams in the bodies of requests, and their answers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::body::BodyPieces;
use super::problem::{Problem, fault_problem, last_line, store_problem};
use super::{ended, find_rule};
use crate::error::Error;
use crate::lines::Lines;
use crate::served_rule::{Answers, ServedRule};
use crate::served_rules::ServedRules;
use tokio::time::timeout;

/// How much of what came is answered at a time: the answer to a line of one letter has a hundred
/// and fifty.
pub(super) const PART: usize = 16 << 10;

/// How many bytes of answers wait for a client to take them, besides those to one part.
pub(super) const WAITING: usize = 256 << 10;

pub(super) const ENDING: &str = "{\"error\":\"the server ends\",\"remedy\":\"connect again; streams that the \
                      server knows go on\"}\n";

const IDLE: &str = "{\"error\":\"nothing came for too long, so all streams are closed\",\"remedy\":\
                    \"connect again and begin them again; see --idle of the server\"}\n";

pub(super) async fn observe(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let body = BodyPieces::of(request, &rules.unfinished);
    let body = body.whole(rules.max_line).await?;
    let (taken, answers) = served
        .take_one(Ok(body.bytes.trim_ascii()))
        .map_err(|e| store_problem(&e))?;
    served
        .durable(answers.after)
        .await
        .map_err(|e| store_problem(&e))?;
    taken.map_err(|fault| fault_problem(&fault))?;
    let said: Vec<Value> = answers
        .text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let halted = said.iter().any(|answer| answer.get("reason").is_some());
    Ok(Json(json!({"halted": halted, "answers": said})).into_response())
}

/// Lines in, answers out, on one connection.
pub(super) async fn streams(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let (queue, waiting) = mpsc::channel(64);
    let queue = AnswerQueue {
        queue,
        room: Arc::new(Semaphore::new(WAITING)),
    };
    let pieces = BodyPieces::of(request, &rules.unfinished);
    let reading = read(rules.clone(), Arc::clone(&served), pieces, queue);
    tokio::spawn(reading);
    let kind = HeaderValue::from_static("application/x-ndjson");
    let body = Body::from_stream(answers(served, waiting));
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

async fn read(
    rules: ServedRules,
    served: Arc<ServedRule>,
    mut pieces: BodyPieces,
    queue: AnswerQueue,
) {
    let mut lines = Lines::new(rules.max_line);
    let mut ending = rules.ending();
    loop {
        let piece = tokio::select! {
            piece = timeout(rules.idle, pieces.next_in_time()) => match piece {
                Ok(piece) => piece,
                Err(_) => return queue.say(IDLE).await,
            },
            () = ended(&mut ending) => return queue.say(ENDING).await,
            // The client that waited for answers has gone.
            () = queue.queue.closed() => return,
        };
        let piece = match piece {
            Ok(Some(piece)) => piece,
            // A line that is not whole is none.
            Err(problem) => return queue.say(&problem.line()).await,
            Ok(None) => {
                let taken = lines.finish(|l, n| served.take(l, n));
                queue.send(taken).await;
                return;
            }
        };
        for part in piece.chunks(PART) {
            let taken = lines.push(part, |l, n| served.take(l, n));
            let unfinished = pieces.wait_for_line(&lines, taken.is_some());
            if !queue.send(taken).await {
                return;
            }
            if let Err(problem) = unfinished {
                return queue.say(&problem.line()).await;
            }
        }
    }
}

/// Answers, each once it is on the disk.
fn answers(
    served: Arc<ServedRule>,
    waiting: mpsc::Receiver<WaitingAnswers>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((served, waiting)), |state| async {
        let (served, mut waiting) = state?;
        let (taken, _share) = waiting.recv().await?;
        let answers = match taken {
            Ok(answers) => answers,
            Err(error) => return Some((Ok(last_line(&error)), None)),
        };
        match served.durable(answers.after).await {
            Ok(()) => Some((Ok(answers.text.into()), Some((served, waiting)))),
            Err(error) => Some((Ok(last_line(&error)), None)),
        }
    })
}
