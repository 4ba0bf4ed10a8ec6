//! The way of all routes of models through the queue.

use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;

use super::super::body::Times;
use super::super::failure::Failure;
use super::super::input::Input;
use super::super::memory::MemoryPermit;
use super::super::models::ModelVersion;
use super::super::queue::{Job, Output, Work};
use super::super::state::State;

/// The task of the model that answered, for the metrics.
#[derive(Clone, Copy)]
pub(super) struct Task(pub(super) &'static str);

/// Adds the task of a model to its answer, or to its error.
pub(super) fn of_task(model: &ModelVersion, answer: Result<Response, Failure>) -> Response {
    let mut response = answer.into_response();
    response.extensions_mut().insert(Task(model.task()));
    response
}

/// Queues the texts of a request, and returns what the model found for each.
pub(super) async fn ask(
    state: &State,
    model: &Arc<ModelVersion>,
    work: Work,
    input: &Input,
    held: &MemoryPermit,
    times: Times,
) -> Result<Vec<Output>, Failure> {
    let (reply, answer) = oneshot::channel();
    let queue = if model.is_slow() { &state.slow } else { &state.queue };
    queue.push(Job {
        model: model.clone(),
        work,
        texts: input.texts.clone(),
        tokens: input.tokens,
        _held: held.clone(),
        queued: Instant::now(),
        reply,
    });
    match tokio::time::timeout_at(times.due, answer).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => Err(Failure::internal()),
        Err(_) => Err(Failure::no_answer()),
    }
}
