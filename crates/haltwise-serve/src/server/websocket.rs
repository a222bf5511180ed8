//! Lines and answers as messages of a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::ws::{self, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::problem::{Problem, last_line};
use super::streams::{ENDING, PART, WAITING};
use super::{ended, find_rule};
use crate::connections::Connection;
use crate::error::Error;
use crate::lines::Lines;
use crate::served_rule::{Answers, ServedRule};
use crate::served_rules::ServedRules;

pub(super) async fn websocket(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
    Extension(connection): Extension<Connection>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let (most, ending) = (rules.max_line, rules.ending());
    let longest = most.max(1 << 20);
    // A frame takes the memory that its head claims.
    let upgrade = upgrade.max_message_size(longest).max_frame_size(longest);
    Ok(upgrade.on_upgrade(move |socket| talk(served, most, ending, connection, socket)))
}

/// When to send pings. A client that sends nothing from one ping to the next, not even a pong,
/// has been silent for too long.
fn pings(silence: Duration) -> Interval {
    let period = (silence / 2).max(Duration::from_millis(1));
    let mut pings = tokio::time::interval_at(Instant::now() + period, period);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Each message is one line or several; answers come as messages of lines.
async fn talk(
    served: Arc<ServedRule>,
    max_line: usize,
    mut ending: watch::Receiver<bool>,
    connection: Connection,
    mut socket: WebSocket,
) {
    let mut number = 0;
    let (mut ping, mut was_heard) = (pings(connection.silence), true);
    loop {
        let message = tokio::select! {
            // A message that has arrived counts before the time that has passed.
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
                    Some(part) => lines.push(part, |l, n| served.take(l, n)),
                    None => {
                        is_over = true;
                        lines.finish(|l, n| served.take(l, n))
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
            if let Err(error) = served.durable(said.after).await {
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
    let text = String::from_utf8_lossy(&last_line(error)).into_owned();
    let _ = socket.send(ws::Message::Text(text.into())).await;
}
