//! `POST /sessions`: the state of a language model, kept between requests of `POST /generate`.

use std::sync::Arc;

use axum::extract::{Path, Request, State as Of};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::call::Call;
use super::super::failure::Failure;
use super::super::json::{response, small};
use super::super::sessions::Text;
use super::super::state::State;

/// A session to begin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRequest {
    /// The name of the model; the first model without it.
    model: Option<String>,
}

/// Begins a session of a language model
#[utoipa::path(
    post, path = "/sessions", request_body = SessionRequest,
    responses((status = 201, description = "The name of the session", body = Object, example = json!({"session": "0f3a", "expires_in": 600}))),
)]
pub(crate) async fn begin(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    state.opened()?;
    let headers = request.headers();
    let empty = headers.get("content-length").is_none_or(|length| length == "0")
        && !headers.contains_key("transfer-encoding");
    let find = |value: &SessionRequest, state: &State| state.models.find(value.model.as_deref());
    let model = match empty {
        true => state.models.find(None)?,
        false => Call::read(state.clone(), request, find).await?.0.model,
    };
    let text = Text::begin(&model)?;
    let name = state.sessions.add(text).inspect_err(|_| state.metrics.reject("sessions"))?;
    let found = json!({"session": name, "expires_in": state.sessions.time().as_secs()});
    Ok(response(StatusCode::CREATED, found.to_string()))
}

/// Returns the number of tokens that a session has read and written
#[utoipa::path(
    get, path = "/sessions/{session}", params(("session" = String, Path)),
    responses((status = 200, description = "The model and the number of tokens")),
)]
pub(crate) async fn show(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let (tokens, model) = state.sessions.tokens(&name)?;
    Ok(small(&json!({"session": name, "model": model, "tokens": tokens})))
}

/// Ends a session
#[utoipa::path(
    delete, path = "/sessions/{session}", params(("session" = String, Path)),
    responses((status = 204, description = "The session has ended")),
)]
pub(crate) async fn end(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    state.sessions.delete(&name).map(|()| StatusCode::NO_CONTENT)
}
