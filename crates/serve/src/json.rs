//! Answers as JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// Returns a small answer as JSON, whose memory need not be counted.
pub(crate) fn small(value: &impl Serialize) -> Response {
    response(StatusCode::OK, serde_json::to_vec(value).unwrap_or_default())
}

pub(crate) fn response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
