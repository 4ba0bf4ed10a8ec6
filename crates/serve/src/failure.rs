//! The errors that clients get: a status, a message and a type, without paths, file names or panic texts.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use unpadded::ErrorKind;

use super::json;

/// An error as an answer: `{"error": message, "error_type": kind}`.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// Whether the message is in an object, where the clients of OpenAI look for it.
    nested: bool,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        /// The message may have a name that the client gave.
        const LONGEST: usize = 500;
        let message: String = message.into();
        let end = message.char_indices().nth(LONGEST).map(|(at, _)| at);
        let message = end.map_or_else(|| message.clone(), |end| format!("{}…", &message[..end]));
        Self { status, kind, message, nested: false }
    }

    /// Returns the error as the clients of OpenAI expect it.
    pub(crate) fn nested(self) -> Self {
        Self { nested: true, ..self }
    }

    /// 422: the request has a value that the server cannot use; the message has the place in the JSON.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation", message)
    }

    pub(crate) fn not_json() -> Self {
        let message = "content-type: expected `application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "validation", message)
    }

    /// 413: a body, a list or a text is longer than its limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 429: a limit of work at once is reached.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "expected the header `Authorization: Bearer TOKEN` with the token of the server";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn wrong_method() -> Self {
        let message = "the path has no such method; `/openapi.json` lists all methods";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// 503: the server starts or ends.
    pub(crate) fn unavailable(message: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn no_body() -> Self {
        let message = "the body of the request did not arrive within the deadline";
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    pub(crate) fn no_answer() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the model did not answer within the deadline")
    }

    pub(crate) fn internal() -> Self {
        let message = "the model could not answer; the log of the server has the reason";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let Self { message, kind, .. } = self;
        match self.nested {
            true => serde_json::json!({"error": {"message": message, "type": kind}, "error_type": kind}),
            false => serde_json::json!({"error": message, "error_type": kind}),
        }
    }

    /// Turns an error of a model into an answer. An error about the text is for the client; any other error is for the log.
    pub(crate) fn of_model(error: &unpadded::Error) -> Self {
        let message = format!("{error:#}");
        match error.kind() {
            // The note of the error is about the limit of a batch, and not about the bound of the server.
            _ if error.is_over_limit() => {
                let needs = message.split(';').next().unwrap_or_default();
                Self::too_large(format!(
                    "{needs}; shorten the text, or start the server with more `--memory`"
                ))
            }
            ErrorKind::Format | ErrorKind::Mismatch => Self::invalid(message),
            ErrorKind::NotFinite => {
                tracing::error!(reason = message, "a model computed a number that is not finite");
                Self::invalid(
                    "the model computed a number that is not finite: are numbers of the request too large?",
                )
            }
            _ => {
                tracing::error!(reason = message, "a model could not answer");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = json::response(self.status, self.json().to_string());
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
