//! The body of a request, which comes in pieces.

use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::problem::{Problem, problem};
use crate::connections::{Connection, ConnectionLimits};
use crate::lines::Lines;
use crate::unfinished::{NoRoom, UnfinishedRoom, UnfinishedShare};

/// The body of a request, piece by piece.
pub(super) struct BodyPieces {
    body: BodyDataStream,
    /// How long a piece may take to come, and how long what is not complete.
    silence: Duration,
    unfinished: UnfinishedShare,
    /// When what is not complete must be, if there is anything.
    due: Option<Instant>,
}

impl BodyPieces {
    pub(super) fn of(request: Request, room: &UnfinishedRoom) -> Self {
        let connection = request.extensions().get::<Connection>();
        let silence = connection.map_or_else(
            || ConnectionLimits::default().silence,
            |connection| connection.silence,
        );
        Self {
            body: request.into_body().into_data_stream(),
            silence,
            unfinished: room.share(),
            due: None,
        }
    }

    /// The next piece, until there is none.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let late = self.late("nothing of the body came for");
        let next = timeout(self.silence, self.next_in_time()).await;
        next.unwrap_or(Err(late))
    }

    /// The next piece, however long it takes to come if nothing waits for its rest.
    pub(super) async fn next_in_time(&mut self) -> Result<Option<Bytes>, Problem> {
        let piece = match self.due {
            None => self.body.next().await,
            Some(due) => timeout_at(due, self.body.next())
                .await
                .map_err(|_| self.late("the body, or a line of it, was not complete within"))?,
        };
        piece.transpose().map_err(|error| {
            problem(
                StatusCode::BAD_REQUEST,
                &format!("the body broke off: {error}"),
                "send the request again",
            )
        })
    }

    fn late(&self, what: &str) -> Problem {
        problem(
            StatusCode::REQUEST_TIMEOUT,
            &format!("{what} {} s", self.silence.as_secs_f64()),
            "send the request again; see --client-timeout of the server",
        )
    }

    /// So many bytes of something are not complete. `is_new` if it has begun since the last time.
    fn wait_for_the_rest_of(&mut self, bytes: usize, is_new: bool) -> Result<(), Problem> {
        self.unfinished.hold(bytes).map_err(|NoRoom| {
            problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server has no memory for more bodies and lines that are not complete",
                "send the request again later",
            )
        })?;
        if is_new {
            self.due = None;
        }
        if bytes > 0 {
            let due = Instant::now() + self.silence;
            self.due = self.due.or(Some(due));
        }
        Ok(())
    }

    /// A piece went into lines; `is_new` if it ended one of them.
    pub(super) fn wait_for_line(&mut self, lines: &Lines, is_new: bool) -> Result<(), Problem> {
        let bytes = lines.unfinished();
        self.wait_for_the_rest_of(bytes, is_new || bytes == 0)
    }

    /// All pieces, of at most `most` bytes together.
    pub(super) async fn whole(mut self, most: usize) -> Result<WholeBody, Problem> {
        let mut bytes = Vec::new();
        self.due = Some(Instant::now() + self.silence);
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > most {
                return Err(problem(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    &format!("the body has more than {most} bytes"),
                    "send less, or start the server with a larger --max-line if it is one line",
                ));
            }
            self.wait_for_the_rest_of(bytes.len() + piece.len(), false)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(WholeBody {
            bytes,
            _share: self.unfinished,
        })
    }
}

/// A body in memory, and its share of that.
pub(super) struct WholeBody {
    pub(super) bytes: Vec<u8>,
    _share: UnfinishedShare,
}
