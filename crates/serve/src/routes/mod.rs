//! The routes: one file for each protocol that clients speak.

mod generate;
mod info;
mod open_inference;
mod openai;
mod predict;
mod sessions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State as Of};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_util::FutureExt;
use subtle::ConstantTimeEq;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use super::call::Task;
use super::failure::Failure;
use super::logs;
use super::models::ModelVersion;
use super::state::State;

pub(super) fn router(state: Arc<State>) -> Router {
    let mut router = Router::new()
        .route("/predict", post(predict::predict))
        .route("/invocations", post(predict::invocations))
        .route("/generate", post(generate::generate))
        .route("/sessions", post(sessions::begin))
        .route("/sessions/{session}", delete(sessions::end).get(sessions::show))
        .route("/v1/completions", post(openai::completions))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v2/models/{model}/infer", post(open_inference::infer))
        .route("/info", get(info::info))
        .route("/metrics", get(info::metrics))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{model}", get(openai::model))
        .route("/v2", get(open_inference::server))
        .route("/v2/models/{model}", get(open_inference::model));
    if state.settings.token.is_some() {
        router = router.route_layer(from_fn_with_state(state.clone(), allow));
    }
    // Probes and the page have no secrets, so they need no token.
    router = router
        .route("/", get(info::page))
        .route("/openapi.json", get(info::openapi))
        .route("/ping", get(info::ready))
        .route("/health/live", get(info::live))
        .route("/health/ready", get(info::ready))
        .route("/v2/health/live", get(info::live))
        .route("/v2/health/ready", get(info::ready))
        .route("/v2/models/{model}/ready", get(open_inference::ready))
        .fallback(async || Failure::not_found("no such path; `/openapi.json` lists all paths"))
        .method_not_allowed_fallback(async || Failure::wrong_method())
        .layer(from_fn_with_state(state.clone(), observe));
    if !state.settings.origins.is_empty() {
        let any = state.settings.origins.iter().any(|origin| origin == "*");
        let listed = state.settings.origins.iter().filter_map(|origin| origin.parse::<HeaderValue>().ok());
        let origins = if any { AllowOrigin::any() } else { AllowOrigin::list(listed) };
        let headers = [header::CONTENT_TYPE, header::AUTHORIZATION];
        router =
            router.layer(CorsLayer::new().allow_origin(origins).allow_methods(Any).allow_headers(headers));
    }
    router.with_state(state)
}

/// Counts and logs a request, names it, and turns a panic into an answer.
async fn observe(Of(state): Of<Arc<State>>, mut request: Request, next: Next) -> Response {
    let (started, name) = (Instant::now(), logs::name(request.headers()));
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or("other", MatchedPath::as_str).to_owned();
    let is_openai = request.uri().path().starts_with("/v1/");
    let task = Task::default();
    request.extensions_mut().insert(task.clone());
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| Failure::internal().into_response());
    if response.status() == StatusCode::BAD_REQUEST {
        // The router itself refuses a name in a path that is not UTF-8.
        response = Failure::not_found("the path is not UTF-8").into_response();
    }
    if let Some(failure) = response.extensions_mut().remove::<Failure>().filter(|_| is_openai) {
        response = failure.nested().into_response();
    }
    let (status, took) = (response.status().as_u16(), started.elapsed());
    let micros = took.as_micros() as u64;
    let request = name.to_str().unwrap_or_default();
    match status {
        500 | 504 => tracing::error!(request, route, status, micros, "failed"),
        400.. => tracing::info!(request, route, status, micros, "refused"),
        _ => tracing::debug!(request, route, status, micros, "answered"),
    }
    state.metrics.answered(task.name(), route, status, took);
    response.headers_mut().insert(logs::HEADER, name);
    if state.ends() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Lets a request pass if it has the token of the server.
async fn allow(Of(state): Of<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(token) = &state.settings.token else { return next.run(request).await };
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, given) = given.split_at_checked("Bearer ".len()).unwrap_or_default();
    let given = if scheme.eq_ignore_ascii_case(b"Bearer ") { given } else { b"" };
    match bool::from(given.ct_eq(token.as_bytes())) {
        true => next.run(request).await,
        false => Failure::unauthorized().into_response(),
    }
}

/// Returns the path and the body of a first request for a model, as arguments of `curl`.
pub(super) fn example(model: &ModelVersion) -> String {
    let (path, body) = match (model.model.asking(), model.model.columns()) {
        (None, _) => ("/generate", serde_json::json!({"prompt": "The", "max_tokens": 100})),
        (Some(unpadded_text::QuestionKind::Row), _) => {
            ("/predict", serde_json::json!({"rows": [{"1": 0.5, "3": 1}]}))
        }
        (Some(_), 1) => ("/predict", serde_json::json!({"texts": ["What a film!"]})),
        (Some(_), columns) => ("/predict", serde_json::json!({"texts": [vec!["What a film!"; columns]]})),
    };
    format!("{path} -d '{body}'")
}
