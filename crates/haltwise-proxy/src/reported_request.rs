//! Requests that are watched: each is told to the served rule, and of audited ones all
//! votes are cast, after the reply.

use std::sync::Arc;

use axum::http::HeaderMap;
use haltwise::Rule;
use haltwise::stream::Reason;
use haltwise::votes::Tally;
use haltwise_serve::{Error, ReportedStream, ServedRule};

use crate::outcome::Cause;
use crate::settings::Voting;
use crate::upstream::{Failure, Upstream};
use crate::vote_request::VoteRequest;
use crate::voted_reply::{Vote, internal, wave};

/// The prediction where nothing has an answer: classes of traces have names.
pub(crate) const NO_ANSWER: &str = "(no answer)";

/// A request that is watched.
#[derive(Debug)]
pub(crate) struct ReportedRequest {
    stream: ReportedStream,
    tally: Tally,
    cast: u32,
    early: bool,
}

impl ReportedRequest {
    /// A request begins.
    pub(crate) fn begin(served: &Arc<ServedRule>) -> Result<Self, Failure> {
        let stream = ReportedStream::begin(served).map_err(broken)?;
        Ok(Self {
            tally: Tally::new(stream.rule().t_max()).map_err(internal)?,
            stream,
            cast: 0,
            early: false,
        })
    }

    /// The rule that it began with.
    pub(crate) fn rule(&self) -> Arc<Rule> {
        Arc::clone(self.stream.rule())
    }

    /// Whether all votes are cast because of an alarm.
    pub(crate) fn reads_on(&self) -> bool {
        self.stream.reads_on()
    }

    /// The id for its label, where it is audited.
    pub(crate) fn id(&self) -> Option<&str> {
        self.stream.is_audited().then(|| self.stream.id())
    }

    pub(crate) fn vote(&mut self, vote: &Vote) -> Result<(), Failure> {
        self.cast += 1;
        if self.stream.is_audited() {
            let standing = self.tally.vote(&vote.answer).map_err(internal)?;
            let leader = self.tally.leader().unwrap_or(NO_ANSWER);
            self.stream.step(leader, standing.score, vote.tokens as f32);
        }
        Ok(())
    }

    /// It is answered. Done when that is on the disk, where it is audited.
    pub(crate) async fn halt(&mut self, reason: Reason) -> Result<(), Failure> {
        self.early = reason == Reason::Threshold;
        self.stream.halt(self.cast, reason).await.map_err(broken)
    }

    /// Whether there are votes to be cast after the reply.
    pub(crate) fn goes_on(&self) -> bool {
        self.stream.is_audited() && self.early
    }

    /// Casts the votes that are left. Returns how many tokens they took.
    pub(crate) async fn finish(
        mut self,
        voting: &Voting,
        upstream: &Arc<Upstream>,
        headers: &Arc<HeaderMap>,
        request: &VoteRequest,
    ) -> Result<u64, Failure> {
        let cast = self.cast as usize;
        let left = self.stream.rule().t_max() - cast;
        let mut tokens = 0_u64;
        for body in wave(upstream, headers, request, cast, left).await? {
            let vote = Vote::new(&body, voting)?;
            tokens = tokens.saturating_add(vote.tokens);
            self.vote(&vote)?;
        }
        self.stream.end().map_err(broken)?;
        Ok(tokens)
    }
}

/// The store cannot be written.
pub(crate) fn broken(error: Error) -> Failure {
    let problem = format!("{error}; whoever runs the proxy must make room and start it again");
    Failure::new(Cause::Store, &problem)
}
