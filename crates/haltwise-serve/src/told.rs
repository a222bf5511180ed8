//! Streams whose steps a program takes itself, such as votes on a request: it asks
//! the rule, and tells the board where a stream began, halted and ended.

use std::sync::Arc;

use haltwise::stream::Reason;

use crate::board::Board;
use crate::error::Error;
use crate::kept::Kept;

/// A stream that is told of. One that is dropped before its end was lost: it
/// counts as one without a loss.
#[derive(Debug)]
pub struct Told {
    board: Arc<Board>,
    id: String,
    audit: bool,
    kept: Kept,
    ended: bool,
}

impl Told {
    /// A stream begins: now, in the order of all.
    pub fn begin(board: &Arc<Board>) -> Result<Self, Error> {
        let ((id, audit), _) = board.change(|desk, now, out| desk.begin_told(now, out))?;
        Ok(Self {
            board: Arc::clone(board),
            id,
            audit,
            kept: Kept::default(),
            ended: false,
        })
    }

    /// What it is called, for its label.
    pub fn id(&self) -> &str {
        self.id.trim_matches('"')
    }

    /// Whether it is to be read to its end, wherever it halts.
    pub fn is_audited(&self) -> bool {
        self.audit
    }

    /// It takes a step, which matters where it is audited: what is predicted, in words,
    /// with which score, at what cost.
    pub fn step(&mut self, prediction: &str, score: f32, cost: f32) {
        let prediction = serde_json::Value::from(prediction).to_string();
        self.kept.add(prediction, score, cost);
    }

    /// It halts at step `t`, counted from 1. Done when that is on the disk, where it is
    /// audited: what happened to another is a count and no more, and not waited for as
    /// long as the disk takes all.
    pub async fn halt(&mut self, t: u32, reason: Reason) -> Result<(), Error> {
        let id = self.id.as_str();
        let halted = self
            .board
            .change(|desk, now, out| desk.halt_told(now, id, t, reason, out));
        let (_, answers) = halted?;
        self.kept.halt();
        if self.audit && reason != Reason::Threshold {
            self.end()?;
        }
        match self.audit {
            true => self.board.durable(answers.after).await,
            false => self.board.ready().map_err(Error::new),
        }
    }

    /// It was read to its end.
    pub fn end(&mut self) -> Result<(), Error> {
        self.ended = true;
        let kept = std::mem::take(&mut self.kept);
        let id = self.id.as_str();
        let ended = self
            .board
            .change(|desk, now, out| desk.end_told(now, id, kept, out));
        ended.map(drop)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if self.audit && !self.ended {
            let id = self.id.as_str();
            // Where that cannot be stored, whoever is served next is told.
            let _lost = self.board.change(|desk, _, out| desk.lose(id, out));
        }
    }
}
