//! A request for a model, from its body over the queue to its answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::body::{self, off_thread};
use super::failure::Failure;
use super::input::{Input, Truncate};
use super::json;
use super::memory::MemoryPermit;
use super::models::ModelVersion;
use super::queue::{Job, Output, Work};
use super::state::State;

/// The task of the model that a request asks, for the metrics; empty before the model is known.
#[derive(Clone, Default)]
pub(crate) struct Task(Arc<OnceLock<&'static str>>);

impl Task {
    pub(crate) fn name(&self) -> &'static str {
        self.0.get().copied().unwrap_or("none")
    }
}

/// A request for a model, with its slot among the requests in work and the memory that is counted for it.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) model: Arc<ModelVersion>,
    pub(crate) held: MemoryPermit,
    /// The time at which the request began, and the time at which its answer is due.
    pub(crate) began: Instant,
    pub(crate) due: Instant,
    _slot: Slot,
}

impl Call {
    /// Reads the body as JSON, and finds the model that it names; the error names the place in the JSON.
    pub(crate) async fn read<T: DeserializeOwned + Send + 'static>(
        state: Arc<State>,
        request: Request,
        find: impl FnOnce(&T, &State) -> Result<Arc<ModelVersion>, Failure>,
    ) -> Result<(Self, T), Failure> {
        state.opened()?;
        let (head, body) = request.into_parts();
        body::is_json(&head.headers)?;
        let began = Instant::now();
        let due = began + state.settings.deadline;
        let (bytes, held) = tokio::select! {
            biased;
            read = body::read(&state, &head.headers, body) => read?,
            () = tokio::time::sleep_until(due) => return Err(Failure::no_body()),
            () = ended(&state) => return Err(Failure::unavailable("the server ends")),
        };
        // A slow body takes no slot.
        let slot = Slot::take(&state)?;
        let value = off_thread(bytes.len(), &held, move || body::parse(&bytes)).await??;
        let model = find(&value, &state)?;
        if let Some(Task(task)) = head.extensions.get() {
            let _ = task.set(model.task()); // a request has one model
        }
        Ok((Self { state, model, held, began, due, _slot: slot }, value))
    }

    /// Checks texts against the limits, and cuts those that are too long if the request asks for it.
    pub(crate) async fn input(
        &self,
        texts: Vec<String>,
        truncate: Option<Truncate>,
    ) -> Result<Input, Failure> {
        let settings = &self.state.settings;
        if texts.len() > settings.texts {
            let (most, got) = (settings.texts, texts.len());
            return Err(Failure::too_large(format!("texts: expected at most {most} a request, got {got}")));
        }
        let bytes = texts.iter().map(String::len).sum();
        let (model, most) = (self.model.clone(), settings.text_tokens);
        let fit = move || Input::new(&model.model, texts, most, truncate);
        let input = off_thread(bytes, &self.held, fit).await??;
        self.held.add(self.model.answer_bytes(input.texts.len(), input.tokens))?;
        let shortened = input.truncated.iter().filter(|&&count| count > 0).count();
        self.state.metrics.truncated.inc_by(shortened as u64);
        Ok(input)
    }

    /// Queues texts, and returns what the model found for each.
    pub(crate) async fn ask(&self, work: Work, input: &Input) -> Result<Vec<Output>, Failure> {
        let (reply, answer) = oneshot::channel();
        let state = &self.state;
        let queue = if self.model.is_slow() { &state.slow } else { &state.queue };
        queue.push(Job {
            model: self.model.clone(),
            work,
            texts: input.texts.clone(),
            tokens: input.tokens,
            _held: self.held.clone(),
            queued: std::time::Instant::now(),
            reply,
        });
        self.in_time(async { answer.await.unwrap_or_else(|_| Err(Failure::internal())) }).await
    }

    /// Waits for work until the answer is due.
    pub(crate) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::time::timeout_at(self.due, work).await.unwrap_or_else(|_| Err(Failure::no_answer()))
    }

    /// Returns an answer as JSON; `bytes` is about its size. The memory of the request is counted until the answer is sent.
    pub(crate) async fn answer<T: Serialize>(
        self,
        bytes: usize,
        value: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response, Failure> {
        struct SentBytes(Vec<u8>, #[allow(dead_code, reason = "dropped with the bytes")] MemoryPermit);
        impl AsRef<[u8]> for SentBytes {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let bytes = off_thread(bytes, &self.held, move || serde_json::to_vec(&value())).await?;
        let bytes = SentBytes(bytes.map_err(|_| Failure::internal())?, self.held);
        Ok(json::response(StatusCode::OK, Bytes::from_owner(bytes)))
    }
}

/// A slot among the requests in work; it is free again when it is dropped, also because the client has left.
struct Slot {
    _permit: OwnedSemaphorePermit,
    state: Arc<State>,
}

impl Slot {
    fn take(state: &Arc<State>) -> Result<Self, Failure> {
        let permit = state.slots.clone().try_acquire_owned().map_err(|_| {
            state.metrics.reject("requests");
            Failure::overloaded(format!("expected at most {} requests at once", state.settings.requests))
        })?;
        state.metrics.in_work.inc();
        Ok(Self { _permit: permit, state: state.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.state.metrics.in_work.dec();
    }
}

/// Waits until the server ends, and then for the bodies that are on the way.
async fn ended(state: &State) {
    const EACH: Duration = Duration::from_millis(250);
    while !state.ends() {
        tokio::time::sleep(EACH).await;
    }
    tokio::time::sleep(4 * EACH).await;
}
