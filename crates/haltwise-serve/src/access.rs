//! Tokens, and the role that each one has.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::server::problem;

/// What a token lets a client do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Send observations.
    Observe,
    /// Send labels, and ask which are wanted.
    Label,
    /// See the status, the events, the metrics and the rule.
    Read,
    /// Do all of that, replace the rule and rotate the log.
    Administer,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Observe, Self::Label, Self::Read, Self::Administer];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Label => "label",
            Self::Read => "read",
            Self::Administer => "administer",
        }
    }

    /// Whether a client with this role may act in another.
    fn may(self, wanted: Self) -> bool {
        self == wanted || self == Self::Administer
    }
}

/// The tokens of a server. Without any, everyone who can connect may do everything.
#[derive(Clone, Default)]
pub struct Tokens(Arc<[(Role, String)]>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens stay out of messages and logs.
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Tokens with their roles. Empty ones are left out.
    pub fn new(tokens: impl IntoIterator<Item = (Role, String)>) -> Self {
        let tokens = tokens.into_iter();
        Self(tokens.filter(|(_, token)| !token.is_empty()).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request may be answered, by its headers.
    fn check(&self, wanted: Role, headers: &HeaderMap) -> Result<(), StatusCode> {
        if self.is_empty() {
            return Ok(());
        }
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .ok_or(StatusCode::UNAUTHORIZED)?;
        let mut found = Err(StatusCode::UNAUTHORIZED);
        // All are compared, so that the time does not tell which one it was.
        for (role, token) in self.0.iter() {
            if !is_same(shown, token) {
                continue;
            }
            if role.may(wanted) {
                found = Ok(());
            } else if found.is_err() {
                found = Err(StatusCode::FORBIDDEN);
            }
        }
        found
    }
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
fn is_same(a: &str, b: &str) -> bool {
    let differing = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differing == 0
}

/// Lets in who shows a token with the role that is wanted.
pub(crate) async fn authorised(
    State((tokens, wanted)): State<(Tokens, Role)>,
    request: Request,
    next: Next,
) -> Response {
    let status = match tokens.check(wanted, request.headers()) {
        Ok(()) => return next.run(request).await,
        Err(status) => status,
    };
    if status == StatusCode::FORBIDDEN {
        let error = format!("the token does not have the role \"{}\"", wanted.name());
        let remedy = "use a token with that role, or one that administers";
        return problem(status, &error, remedy).into_response();
    }
    let mut response = problem(
        status,
        "a token is needed, and none came that this server has",
        "send it as a header: Authorization: Bearer TOKEN",
    )
    .into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_what_its_role_may_do_and_nothing_else() {
        let tokens = Tokens::new(Role::ALL.map(|role| (role, format!("{}-secret", role.name()))));
        let check = |wanted, shown: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, shown.parse().unwrap());
            tokens.check(wanted, &headers)
        };
        for wanted in Role::ALL {
            for role in Role::ALL {
                let found = check(wanted, &format!("Bearer {}-secret", role.name()));
                let may = role == wanted || role == Role::Administer;
                let expected = if may {
                    Ok(())
                } else {
                    Err(StatusCode::FORBIDDEN)
                };
                assert_eq!(found, expected, "{role:?} {wanted:?}");
            }
            for shown in [
                "Bearer secret",
                "Bearer ",
                "read-secret",
                "Basic read-secret",
            ] {
                assert_eq!(
                    check(wanted, shown),
                    Err(StatusCode::UNAUTHORIZED),
                    "{shown}"
                );
            }
            let nothing = HeaderMap::new();
            assert_eq!(
                tokens.check(wanted, &nothing),
                Err(StatusCode::UNAUTHORIZED)
            );
            assert_eq!(Tokens::default().check(wanted, &nothing), Ok(()));
        }
        // One word may be the token of several roles.
        let both = Tokens::new([Role::Observe, Role::Label].map(|role| (role, "x".to_owned())));
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(both.check(Role::Observe, &headers), Ok(()));
        assert_eq!(both.check(Role::Label, &headers), Ok(()));
        assert_eq!(both.check(Role::Read, &headers), Err(StatusCode::FORBIDDEN));
        assert!(Tokens::new([(Role::Read, String::new())]).is_empty());
    }
}
