//! The body of a request, which comes in pieces.

use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::problem::{Problem, problem};
use crate::connections::{Connection, ConnectionLimits};

/// The body of a request, piece by piece.
pub(super) struct BodyPieces {
    body: BodyDataStream,
    /// How long the next one may take to come.
    silence: Duration,
}

impl BodyPieces {
    pub(super) fn of(request: Request) -> Self {
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
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
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

    /// All pieces, of at most `most` bytes together.
    pub(super) async fn whole(mut self, most: usize) -> Result<Vec<u8>, Problem> {
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
