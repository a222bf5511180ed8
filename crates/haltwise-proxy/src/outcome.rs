//! How a request came out, by the names in the metrics.

use axum::http::StatusCode;

/// How a request came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was voted on, and the rule promises something about it.
    Promised,
    /// It was voted on, but the promise is not about it.
    Unpromised(Difference),
    /// It was not for votes.
    PassedThrough(Purpose),
    /// It was refused, or failed.
    Failed(Cause),
    /// The client hung up before there was an answer.
    Abandoned,
}

/// Why the promise is not about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The rule promises nothing, or is about plain completions.
    Rule,
    /// Its messages are of other roles, or more of them.
    Messages,
    /// Other words stand around the question.
    Words,
    /// It wants votes of another length.
    MaxTokens,
    /// It has fields that may change the answer.
    Fields,
}

/// What a request is for that is not voted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A path without votes.
    OtherPath,
    /// It is no request for a chat completion, which the server may say better.
    Unknown,
    /// Another model.
    OtherModel,
    /// Several choices.
    Choices,
    /// Something else than an answer in words.
    Kind,
    /// The client wants no votes.
    OptedOut,
    /// The promise is not about it, and votes are for requests with a promise.
    Unpromised(Difference),
}

impl Difference {
    /// Its name in the metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Messages => "messages",
            Self::Words => "words",
            Self::MaxTokens => "max_tokens",
            Self::Fields => "fields",
        }
    }
}

/// Why there is no good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client shows no key of the proxy.
    Key,
    /// The path may lead out of `/v1`.
    Path,
    /// The body cannot be read.
    BrokenBody,
    /// The body comes too slowly.
    LateBody,
    /// The body is too long.
    LongBody,
    /// All bodies together are too long.
    Room,
    /// The server cannot be reached.
    Unreachable,
    /// The server takes too long.
    Late,
    /// The server's answer is no completion.
    Nonsense,
    /// The server answered with this error.
    Answered(StatusCode),
    /// The store cannot be written.
    Store,
    /// The proxy is wrong.
    Internal,
}

impl Cause {
    /// The status that a client sees.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Key => StatusCode::UNAUTHORIZED,
            Self::Path | Self::BrokenBody => StatusCode::BAD_REQUEST,
            Self::LateBody => StatusCode::REQUEST_TIMEOUT,
            Self::LongBody => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Room | Self::Store => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::Nonsense => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Answered(status) => status,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether it is the client's mistake.
    fn is_of_client(self) -> bool {
        matches!(
            self,
            Self::Key | Self::Path | Self::BrokenBody | Self::LateBody | Self::LongBody
        )
    }
}

impl Outcome {
    /// All of them; what the server answers with stands for itself once.
    pub(crate) const ALL: [Self; 30] = [
        Self::Promised,
        Self::Unpromised(Difference::Rule),
        Self::Unpromised(Difference::Messages),
        Self::Unpromised(Difference::Words),
        Self::Unpromised(Difference::MaxTokens),
        Self::Unpromised(Difference::Fields),
        Self::PassedThrough(Purpose::OtherPath),
        Self::PassedThrough(Purpose::Unknown),
        Self::PassedThrough(Purpose::OtherModel),
        Self::PassedThrough(Purpose::Choices),
        Self::PassedThrough(Purpose::Kind),
        Self::PassedThrough(Purpose::OptedOut),
        Self::PassedThrough(Purpose::Unpromised(Difference::Rule)),
        Self::PassedThrough(Purpose::Unpromised(Difference::Messages)),
        Self::PassedThrough(Purpose::Unpromised(Difference::Words)),
        Self::PassedThrough(Purpose::Unpromised(Difference::MaxTokens)),
        Self::PassedThrough(Purpose::Unpromised(Difference::Fields)),
        Self::Failed(Cause::Key),
        Self::Failed(Cause::Path),
        Self::Failed(Cause::BrokenBody),
        Self::Failed(Cause::LateBody),
        Self::Failed(Cause::LongBody),
        Self::Failed(Cause::Room),
        Self::Failed(Cause::Unreachable),
        Self::Failed(Cause::Late),
        Self::Failed(Cause::Nonsense),
        Self::Failed(Cause::Answered(StatusCode::OK)),
        Self::Failed(Cause::Store),
        Self::Failed(Cause::Internal),
        Self::Abandoned,
    ];

    /// The outcome and the reason, as labels of metrics.
    pub(crate) fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Promised => ("promised", "none"),
            Self::Unpromised(difference) => ("unpromised", difference.name()),
            Self::PassedThrough(purpose) => {
                let reason = match purpose {
                    Purpose::OtherPath => "path",
                    Purpose::Unknown => "body",
                    Purpose::OtherModel => "model",
                    Purpose::Choices => "choices",
                    Purpose::Kind => "kind",
                    Purpose::OptedOut => "opted_out",
                    Purpose::Unpromised(difference) => difference.name(),
                };
                ("passed_through", reason)
            }
            Self::Failed(cause) => {
                let reason = match cause {
                    Cause::Key => "key",
                    Cause::Path => "path",
                    Cause::BrokenBody => "broken_body",
                    Cause::LateBody => "late_body",
                    Cause::LongBody => "long_body",
                    Cause::Room => "room",
                    Cause::Unreachable => "unreachable",
                    Cause::Late => "timeout",
                    Cause::Nonsense => "nonsense",
                    Cause::Answered(_) => "status",
                    Cause::Store => "store",
                    Cause::Internal => "internal",
                };
                let refused = cause.is_of_client() || cause == Cause::Room;
                (if refused { "refused" } else { "failed" }, reason)
            }
            Self::Abandoned => ("abandoned", "none"),
        }
    }

    /// The histogram that counts its time: votes take longer than requests passed through, and
    /// refused requests do not wait.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Promised | Self::Unpromised(_) => Kind::Voted,
            Self::PassedThrough(_) => Kind::PassedThrough,
            Self::Failed(_) | Self::Abandoned => Kind::Failed,
        }
    }

    /// Its place among all.
    pub(crate) fn place(self) -> Option<usize> {
        Self::ALL
            .iter()
            .position(|outcome| outcome.labels() == self.labels())
    }
}

/// What the time of a request is counted among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Voted,
    PassedThrough,
    Failed,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Voted, Self::PassedThrough, Self::Failed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Voted => "voted",
            Self::PassedThrough => "passed_through",
            Self::Failed => "failed",
        }
    }
}

/// Why a request to the server failed, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamError {
    /// It cannot be reached, or cut the connection.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It has too much to do: 429.
    Busy,
    /// It refused the request: another 4xx.
    Refused,
    /// It failed: 5xx.
    Failed,
    /// It answered with something that is no completion.
    Nonsense,
}

impl UpstreamError {
    pub(crate) const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Busy,
        Self::Refused,
        Self::Failed,
        Self::Nonsense,
    ];

    /// The error that a status is, if it is one.
    pub(crate) fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Some(Self::Busy),
            status if status.is_client_error() => Some(Self::Refused),
            status if status.is_server_error() => Some(Self::Failed),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Nonsense => "nonsense",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        let names: HashSet<_> = Outcome::ALL
            .iter()
            .map(|outcome| outcome.labels())
            .collect();
        assert_eq!(names.len(), Outcome::ALL.len());
        let answered = Outcome::Failed(Cause::Answered(StatusCode::IM_A_TEAPOT));
        assert!(answered.place().is_some());
    }
}
