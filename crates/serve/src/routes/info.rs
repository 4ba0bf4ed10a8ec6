//! What the server says about itself: models, limits, health, metrics, its description, and the page to type into.

use std::sync::Arc;

use axum::extract::State as Of;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::super::failure::Failure;
use super::super::json::small;
use super::super::memory::resident;
use super::super::state::State;
use super::{generate, open_inference, openai, predict, sessions};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "unpadded",
        description = "Trained models of text over HTTP. Each error is `{\"error\", \"error_type\"}`."
    ),
    paths(
        predict::predict,
        predict::invocations,
        generate::generate,
        sessions::begin,
        sessions::show,
        sessions::end,
        openai::completions,
        openai::embeddings,
        openai::models,
        openai::model,
        open_inference::server,
        open_inference::model,
        open_inference::ready,
        open_inference::infer,
        info,
        live,
        ready,
        metrics,
    )
)]
struct Description;

/// Returns the models, the limits and the memory of the server
#[utoipa::path(get, path = "/info", responses((status = 200, description = "Models, limits and memory")))]
pub(crate) async fn info(Of(state): Of<Arc<State>>) -> Response {
    let settings = &state.settings;
    let of_model = |model: &Arc<super::super::models::ModelVersion>| {
        let labels = model.model.predictor().vocabulary("labels").ok();
        let labels: Option<Vec<&str>> =
            labels.filter(|labels| labels.len() <= 1000).map(|l| l.tokens().collect());
        json!({
            "name": model.name, "task": model.task(), "loaded": model.since, "labels": labels,
            "texts_per_record": model.model.columns(),
            "embeds": model.model.embeds(),
            "rows": model.model.asking() == Some(unpadded_text::QuestionKind::Row),
        })
    };
    let models: Vec<Value> = state.models.all().iter().map(of_model).collect();
    small(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "models": models,
        "limits": {
            "requests": settings.requests, "batch_tokens": settings.batch_tokens, "texts": settings.texts,
            "body_bytes": settings.body, "text_tokens": settings.text_tokens, "new_tokens": settings.new_tokens,
            "deadline_seconds": settings.deadline.as_secs_f64(), "sessions": settings.sessions,
        },
        "memory": {"resident": resident(), "batch": state.models.batch_memory(settings)},
    }))
}

/// Returns whether the process lives
#[utoipa::path(get, path = "/health/live", responses((status = 200, description = "The process lives")))]
pub(crate) async fn live() -> Response {
    small(&json!({"live": true}))
}

/// Returns whether the server takes requests: all models have answered, and it does not end
#[utoipa::path(
    get, path = "/health/ready",
    responses((status = 200, description = "The server takes requests")),
)]
pub(crate) async fn ready(Of(state): Of<Arc<State>>) -> Result<Response, Failure> {
    state.ready()?;
    Ok(small(&json!({"ready": true})))
}

/// Returns the metrics in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "Metrics", content_type = "text/plain")))]
pub(crate) async fn metrics(Of(state): Of<Arc<State>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], state.metrics.text()).into_response()
}

/// Returns the description of all routes, with the errors that they share.
pub(crate) async fn openapi() -> Response {
    let mut found = serde_json::to_value(Description::openapi()).unwrap_or_default();
    let error = json!({
        "type": "object", "required": ["error", "error_type"],
        "properties": {"error": {"type": "string"}, "error_type": {"type": "string"}},
    });
    let paths = &mut found["paths"];
    for (path, other) in [
        ("/health/ready", "/ping"),
        ("/health/ready", "/v2/health/ready"),
        ("/health/live", "/v2/health/live"),
    ] {
        paths[other] = paths[path].clone();
    }
    let paths = paths.as_object_mut().into_iter().flatten();
    for (path, (method, operation)) in paths
        .flat_map(|(path, methods)| methods.as_object_mut().into_iter().flatten().map(move |one| (path, one)))
    {
        operation["operationId"] = format!("{method}{}", path.replace(['/', '{', '}', '.'], "_")).into();
        operation["responses"]["default"] =
            json!({"description": "An error", "content": {"application/json": {"schema": error}}});
    }
    small(&found)
}

/// Returns the page; its scripts and styles are in it, so that no other address is called.
pub(crate) async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
    ];
    (headers, include_str!("../page.html")).into_response()
}
