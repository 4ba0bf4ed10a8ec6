//! `POST /sessions`: the state of a language model, kept between requests of `POST /generate`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State as Of};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::body;
use super::super::failure::Failure;
use super::super::sessions::Text;
use super::super::state::State;

/// A session to begin.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRequest {
    /// The name of the model; the first model without it.
    model: Option<String>,
}

/// Begins a session of a language model
#[utoipa::path(
    post, path = "/sessions", request_body = SessionRequest,
    responses((status = 201, description = "The name of the session"), (status = 422), (status = 429)),
)]
pub(crate) async fn begin(
    Of(state): Of<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let empty = headers.get("content-length").is_none_or(|length| length == "0")
        && !headers.contains_key("transfer-encoding");
    let request = match empty {
        true => SessionRequest::default(),
        false => body::json::<SessionRequest>(&state, &headers, body).await?.value,
    };
    let text = Text::begin(&state.models.find(request.model.as_deref())?)?;
    let name = state.sessions.add(text).inspect_err(|_| state.metrics.reject("sessions"))?;
    let found = json!({"session": name, "expires_in": state.sessions.time().as_secs()});
    Ok(body::of_json(StatusCode::CREATED, Body::from(found.to_string())))
}

/// Returns the number of tokens that a session has read and written
#[utoipa::path(
    get, path = "/sessions/{session}", params(("session" = String, Path)),
    responses((status = 200, description = "The model and the number of tokens"), (status = 404), (status = 429)),
)]
pub(crate) async fn show(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let (tokens, model) = state.sessions.tokens(&name)?;
    Ok(body::small(&json!({"session": name, "model": model, "tokens": tokens})))
}

/// Ends a session
#[utoipa::path(
    delete, path = "/sessions/{session}", params(("session" = String, Path)),
    responses((status = 204, description = "The session has ended"), (status = 404)),
)]
pub(crate) async fn end(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    state.sessions.delete(&name).map(|()| StatusCode::NO_CONTENT)
}
