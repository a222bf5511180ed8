//! Which path leads to which handler, and who may ask for it.

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post, put};
use tokio::time::Instant;

use super::labels::labels;
use super::problem::problem;
use super::rules::{
    events, openapi, page, prometheus, ready, renew, rotate, rule, rules, status, wanted,
};
use super::streams::{observe, streams};
use super::websocket::websocket;
use crate::access::{Role, authorised};
use crate::same_origin::{Gate, from_here};
use crate::served_rules::ServedRules;

pub(super) fn router(rules: &ServedRules) -> Router {
    let observing = Router::new()
        .route("/{name}/streams", post(streams))
        .route("/{name}/ws", get(websocket))
        .route("/{name}/observe", post(observe))
        .with_state(rules.clone());
    let routes = rules
        .only(Role::Observe, observing)
        .merge(rules.all_routes());
    rules.behind(Gate::of_pages(&rules.hosts), with_fallbacks(routes))
}

/// Says what is wrong with requests that no route takes.
fn with_fallbacks(routes: Router) -> Router {
    let see = "see /openapi.json";
    routes
        .fallback(async move || {
            problem(StatusCode::NOT_FOUND, "there is nothing at this path", see)
        })
        .method_not_allowed_fallback(async move || {
            let error = "this path does not take that method";
            problem(StatusCode::METHOD_NOT_ALLOWED, error, see)
        })
}

impl ServedRules {
    /// The paths that do not depend on where streams come from: status, metrics, labels. Each
    /// needs a token with its role, except the page. Pages of other sites get no answer.
    pub fn routes(&self) -> Router {
        self.behind(
            Gate::of_pages(&self.hosts),
            with_fallbacks(self.all_routes()),
        )
    }

    /// Routes that want no token: no page of another site gets an answer from them, whatever
    /// name it has, and no link leads there.
    pub fn closed_to_other_sites(&self, routes: Router) -> Router {
        self.behind(Gate::of_strangers(&self.hosts), routes)
    }

    fn behind(&self, gate: Gate, routes: Router) -> Router {
        let from_here = middleware::from_fn_with_state(gate, from_here);
        let timed = middleware::from_fn_with_state(self.clone(), timed);
        routes.layer(from_here).route_layer(timed)
    }

    /// Routes for clients that show a token with a role.
    pub fn only(&self, role: Role, routes: Router) -> Router {
        let who = (self.tokens.clone(), role);
        routes.layer(middleware::from_fn_with_state(who, authorised))
    }

    fn all_routes(&self) -> Router {
        let labelling = Router::new()
            .route("/{name}/labels", post(labels))
            .route("/{name}/labels/wanted", get(wanted));
        let reading = Router::new()
            .route("/metrics", get(prometheus))
            .route("/{name}/events", get(events))
            .route("/{name}/status", get(status))
            .route("/{name}/rule", get(rule));
        let administering = Router::new()
            .route("/{name}/rule", put(renew))
            .route("/{name}/rotate", post(rotate));
        let only = |role, routes: Router<Self>| self.only(role, routes.with_state(self.clone()));
        Router::new()
            .route("/", get(page))
            .route("/rules", get(rules))
            .route("/health", get(|| async { "alive\n" }))
            .route("/ready", get(ready))
            .route("/openapi.json", get(openapi))
            .with_state(self.clone())
            .merge(only(Role::Label, labelling))
            .merge(only(Role::Read, reading))
            .merge(only(Role::Administer, administering))
    }
}

/// The name of a method in metrics. A client may invent methods, and each one that is new would
/// take memory for good.
fn metric_name(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::CONNECT
        | Method::TRACE => method.as_str(),
        _ => "other",
    }
}

/// Counts how long requests take.
async fn timed(State(rules): State<ServedRules>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map(|path| format!("{} {}", metric_name(request.method()), path.as_str()));
    let begun = Instant::now();
    let response = next.run(request).await;
    if let Some(route) = route {
        rules.process.request(&route, begun.elapsed());
    }
    response
}
