//! Keeps out requests that a browser sends on behalf of another site.
//!
//! A server on loopback needs no token, but any page that the same person opens can send requests
//! to it. Browsers say so: `Sec-Fetch-Site` and `Origin` tell where a request comes from. Against a
//! foreign name that is made to resolve to this machine (DNS rebinding), `Host` is checked.
//! Programs such as `curl` send none of the first two, and a `Host` that passes.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::server::{Problem, problem};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The names that a server answers to: addresses, names that nobody can register, and those that it
/// was told. A client with a token is no stranger, whatever the server's name.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    named: Arc<[String]>,
    has_token: bool,
}

impl Hosts {
    pub(crate) fn new(named: Vec<String>, has_token: bool) -> Self {
        let named = named.into();
        Self { named, has_token }
    }

    fn allow(&self, host: &str) -> bool {
        if self.has_token && self.named.is_empty() {
            return true;
        }
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name);
        // A foreign page has a registered name, and such a name has a dot.
        let is_local = !name.contains('.') || name.to_ascii_lowercase().ends_with(".localhost");
        is_local
            || name.parse::<IpAddr>().is_ok()
            || self
                .named
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(name))
    }
}

/// The name or address of a `Host`.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// What a browser may send to some routes.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    hosts: Hosts,
    /// Whether a person may follow a link that leads there.
    has_links: bool,
}

impl Gate {
    /// Routes that want a token, beside a page that links may lead to.
    pub(crate) fn of_pages(hosts: &Hosts) -> Self {
        Self {
            hosts: hosts.clone(),
            has_links: true,
        }
    }

    /// Routes that want none, even if others do, and that no link leads to.
    pub(crate) fn of_strangers(hosts: &Hosts) -> Self {
        let hosts = Hosts {
            has_token: false,
            ..hosts.clone()
        };
        Self {
            hosts,
            has_links: false,
        }
    }
}

/// Refuses requests that come from another site.
pub(crate) async fn from_here(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    match check(&gate, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn check(gate: &Gate, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let mut named = headers.get_all(header::HOST).iter();
    // No browser leaves it out.
    let host = named.next().map_or("", text);
    if named.next().is_some() || !gate.hosts.allow(host) {
        let name: String = without_port(host).chars().take(100).collect();
        return Err(problem(
            StatusCode::FORBIDDEN,
            &format!("this server does not answer to the name {name:?}"),
            "connect by IP address or as localhost; behind a reverse proxy, make clients show a \
             token or key, or name the server with --allow-host",
        ));
    }
    let is_foreign = match headers.get(SITE).map(text) {
        Some("same-origin" | "none") => false,
        // A link to the page, which a person follows.
        Some(_) => !(gate.has_links && is_link(method, headers)),
        // Not all browsers say the site, and none to a plain address of the network.
        None => headers
            .get(header::ORIGIN)
            .is_some_and(|origin| !is_same(text(origin), host)),
    };
    if is_foreign {
        return Err(problem(
            StatusCode::FORBIDDEN,
            "a page of another site sent this request",
            "open the server's own page, or put both behind one address with a reverse proxy",
        ));
    }
    Ok(())
}

/// The text of a header; what is no text is equal to nothing that is looked for.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("not.text")
}

fn is_link(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name, word: &str| headers.get(name).is_some_and(|value| value == word);
    method == Method::GET && says(MODE, "navigate") && says(DEST, "document")
}

/// Whether an origin, such as `http://localhost:7070`, is that of a host.
fn is_same(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(gate: &Gate, method: Method, pairs: &[(&str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        check(gate, &method, &headers).is_ok()
    }

    #[test]
    fn a_server_answers_to_its_addresses_and_to_the_names_it_was_told() {
        let gate = |named: &[&str], has_token| {
            Hosts::new(named.iter().map(|&n| n.into()).collect(), has_token)
        };
        let open = Gate::of_pages(&gate(&[], false));
        let named = Gate::of_pages(&gate(&["halt.example"], true));
        let with_token = Gate::of_pages(&gate(&[], true));
        // The token does not open these.
        let strangers = Gate::of_strangers(&gate(&[], true));
        let get = |gate, host| passes(gate, Method::GET, &[("host", host)]);
        for host in [
            "127.0.0.1:7070",
            "127.0.0.1",
            "[::1]:7070",
            "[::1]",
            "localhost:7070",
            "LOCALHOST.:7070",
            "a.localhost",
            "10.1.2.3:80",
            "haltwise:7070",
            "",
        ] {
            for gate in [&open, &named, &strangers] {
                assert!(get(gate, host), "{host}");
            }
        }
        for host in [
            "evil.example",
            "evil.example.:7070",
            "1.2.3.4.evil.example",
            "halt.example.evil.example",
        ] {
            for gate in [&open, &named, &strangers] {
                assert!(!get(gate, host), "{host}");
            }
            assert!(get(&with_token, host), "{host}");
        }
        assert!(get(&named, "Halt.Example:7070") && !get(&open, "halt.example"));
        let two = [("host", "localhost"), ("host", "localhost")];
        assert!(!passes(&open, Method::GET, &two));
        assert!(passes(&open, Method::POST, &[]), "HTTP/1.0 has no Host");
    }

    #[test]
    fn a_page_of_another_site_gets_no_answer() {
        let gate = Gate::of_pages(&Hosts::new(Vec::new(), false));
        let strangers = Gate::of_strangers(&Hosts::new(Vec::new(), false));
        let host = ("host", "localhost:7070");
        let with_host = |pairs: &[(&'static str, &'static str)]| [pairs, &[host]].concat();
        let passes = |method, pairs: &[_]| passes(&gate, method, &with_host(pairs));
        let (get, post) = (Method::GET, Method::POST);
        for origin in ["http://localhost:7070", "https://LOCALHOST:7070"] {
            assert!(passes(post.clone(), &[("origin", origin)]));
        }
        for origin in [
            "http://localhost:3000",
            "http://localhost",
            "https://evil.example",
            "null",
            "",
        ] {
            assert!(!passes(post.clone(), &[("origin", origin)]), "{origin}");
            assert!(!passes(get.clone(), &[("origin", origin)]), "{origin}");
        }
        for site in ["same-origin", "none"] {
            assert!(passes(post.clone(), &[("sec-fetch-site", site)]), "{site}");
        }
        let (mode, dest) = (
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        );
        for site in ["cross-site", "same-site", "ümlaut"] {
            let site = ("sec-fetch-site", site);
            assert!(!passes(post.clone(), &[site]), "{site:?}");
            assert!(!passes(get.clone(), &[site]), "{site:?}");
            assert!(!passes(post.clone(), &[site, mode, dest]), "{site:?}");
            assert!(!passes(
                get.clone(),
                &[site, mode, ("sec-fetch-dest", "iframe")]
            ));
            assert!(
                passes(get.clone(), &[site, mode, dest]),
                "a link to the page"
            );
            let link = with_host(&[site, mode, dest]);
            assert!(!super::tests::passes(&strangers, get.clone(), &link));
        }
    }
}
