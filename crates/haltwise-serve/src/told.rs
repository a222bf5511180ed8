//! Streams whose steps a program takes itself, such as votes on a request: it asks
//! the rule, and tells the board where a stream began, halted and ended.

use std::sync::Arc;

use haltwise::Rule;
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
    rule: Arc<Rule>,
    reads_on: bool,
    audit: bool,
    kept: Kept,
    ended: bool,
}

impl Told {
    /// A stream begins: now, in the order of all.
    pub fn begin(board: &Arc<Board>) -> Result<Self, Error> {
        let (((id, audit), rule, reads_on), _) = board.change(|desk, now, out| {
            let begun = desk.begin_told(now, out);
            (begun, Arc::clone(desk.rule()), desk.reading_on())
        })?;
        Ok(Self {
            board: Arc::clone(board),
            id,
            rule,
            reads_on,
            audit,
            kept: Kept::default(),
            ended: false,
        })
    }

    /// What it is called, for its label.
    pub fn id(&self) -> &str {
        self.id.trim_matches('"')
    }

    /// The rule that it began with. It ends with it, whichever is in use then.
    pub fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Whether the rule is not asked because of an alarm.
    pub fn reads_on(&self) -> bool {
        self.reads_on
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
        let (id, rule) = (self.id.as_str(), &self.rule);
        let halted = self
            .board
            .change(|desk, now, out| desk.halt_told(now, id, t, reason, rule, out));
        let (is_audited, answers) = halted?;
        // Audits of a rule end when another takes its place.
        self.audit = is_audited;
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
            .note(|desk, now, out| desk.end_told(now, id, kept, out));
        ended.map(drop)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if self.audit && !self.ended {
            let id = self.id.as_str();
            // Once the store is closed, nothing is under way any more.
            let _lost = self.board.note(|desk, _, out| desk.lose(id, out));
        }
    }
}
