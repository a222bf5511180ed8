//! Requests that are watched: each is told to the board, and of audited ones all
//! votes are cast, after the reply.

use std::sync::Arc;

use axum::http::HeaderMap;
use haltwise::Rule;
use haltwise::stream::Reason;
use haltwise::votes::Tally;
use haltwise_serve::{Board, Error, Told};

use crate::ask::Ask;
use crate::outcome::Cause;
use crate::settings::Voting;
use crate::upstream::{Failure, Upstream};
use crate::voted::{Vote, internal, wave};

/// What is predicted where nobody answers: classes of traces have names.
const NO_ANSWER: &str = "(no answer)";

/// A request that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    told: Told,
    tally: Tally,
    cast: u32,
    early: bool,
}

impl Watched {
    /// A request begins.
    pub(crate) fn begin(board: &Arc<Board>) -> Result<Self, Failure> {
        let told = Told::begin(board).map_err(broken)?;
        Ok(Self {
            tally: Tally::new(told.rule().t_max()).map_err(internal)?,
            told,
            cast: 0,
            early: false,
        })
    }

    /// The rule that it began with.
    pub(crate) fn rule(&self) -> Arc<Rule> {
        Arc::clone(self.told.rule())
    }

    /// Whether all votes are cast because of an alarm.
    pub(crate) fn reads_on(&self) -> bool {
        self.told.reads_on()
    }

    /// The id for its label, where it is audited.
    pub(crate) fn id(&self) -> Option<&str> {
        self.told.is_audited().then(|| self.told.id())
    }

    pub(crate) fn vote(&mut self, vote: &Vote) -> Result<(), Failure> {
        self.cast += 1;
        if self.told.is_audited() {
            let standing = self.tally.vote(&vote.answer).map_err(internal)?;
            let leader = self.tally.leader().unwrap_or(NO_ANSWER);
            self.told.step(leader, standing.score, vote.tokens as f32);
        }
        Ok(())
    }

    /// It is answered. Done when that is on the disk, where it is audited.
    pub(crate) async fn halt(&mut self, reason: Reason) -> Result<(), Failure> {
        self.early = reason == Reason::Threshold;
        self.told.halt(self.cast, reason).await.map_err(broken)
    }

    /// Whether there are votes to be cast after the reply.
    pub(crate) fn goes_on(&self) -> bool {
        self.told.is_audited() && self.early
    }

    /// Casts the votes that are left. Returns how many tokens they took.
    pub(crate) async fn finish(
        mut self,
        voting: &Voting,
        upstream: &Arc<Upstream>,
        headers: &Arc<HeaderMap>,
        ask: &Ask,
    ) -> Result<u64, Failure> {
        let cast = self.cast as usize;
        let left = self.told.rule().t_max() - cast;
        let mut tokens = 0_u64;
        for body in wave(upstream, headers, ask, cast, left).await? {
            let vote = Vote::new(&body, voting)?;
            tokens = tokens.saturating_add(vote.tokens);
            self.vote(&vote)?;
        }
        self.told.end().map_err(broken)?;
        Ok(tokens)
    }
}

/// The store cannot be written.
fn broken(error: Error) -> Failure {
    let problem = format!("{error}; whoever runs the proxy must make room and start it again");
    Failure::new(Cause::Store, &problem)
}
