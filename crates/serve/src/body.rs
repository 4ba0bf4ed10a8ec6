//! Bodies of requests, read within their limits, and answers as JSON. The memory of both is counted until the answer is sent.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::State;
use super::failure::Failure;

/// The unit in which the memory of requests is counted, in bytes.
pub(crate) const UNIT: u64 = 1024;

/// The memory of a request for each byte of its body: the body, the text in it, the answer with a tag for each word, and its JSON.
pub(crate) const PER_BYTE: u64 = 24;

pub(crate) fn units(bytes: u64) -> usize {
    usize::try_from(bytes / UNIT).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS)
}

/// Counted memory; it is free again when the last clone is dropped.
pub(crate) type Held = Arc<OwnedSemaphorePermit>;

/// A body with the memory that is counted for its request.
pub(crate) struct Request<T> {
    pub(crate) value: T,
    pub(crate) held: Held,
}

/// Reads a body as JSON; the error names the place in the JSON.
pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Request<T>, Failure> {
    let (bytes, held) = read(state, headers, body).await?;
    let value = off_thread(bytes.len(), move || parse(&bytes)).await??;
    Ok(Request { value, held })
}

/// Runs `work` on a thread of its own if a text of this size would keep other requests waiting.
pub(crate) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    const LARGE: usize = 1 << 15;
    if bytes < LARGE {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal())
}

async fn read(state: &Arc<State>, headers: &HeaderMap, body: Body) -> Result<(Bytes, Held), Failure> {
    let most = state.settings.body;
    let too_long =
        |got: String| Failure::too_large(format!("body: expected at most {most} bytes, got {got}"));
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if let Some(length) = length.filter(|&length| length > most) {
        return Err(too_long(length.to_string()));
    }
    // A body of unknown length takes the memory of the longest.
    let cost = (length.unwrap_or(most) as u64).saturating_mul(PER_BYTE) / UNIT + 2;
    let cost = u32::try_from(cost).unwrap_or(u32::MAX);
    let held = state.bytes.clone().try_acquire_many_owned(cost).map_err(|_| {
        state.metrics.reject("memory");
        Failure::overloaded("the bodies of the requests in work fill the memory for requests")
    })?;
    let read = tokio::time::timeout(state.settings.deadline, Limited::new(body, most).collect());
    match read.await {
        Err(_) => Err(Failure::no_body()),
        Ok(Ok(all)) => Ok((all.to_bytes(), Arc::new(held))),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(too_long("more".into())),
        Ok(Err(_)) => Err(Failure::invalid("the body ended before its announced length, or is malformed")),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|e| {
        // The path is looked for only after an error, because it costs time.
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let path = serde_path_to_error::deserialize::<_, T>(&mut reader).err().map(|e| e.path().to_string());
        let path =
            path.filter(|path| path != ".").map_or_else(|| "body".to_owned(), |path| format!("`{path}`"));
        Failure::invalid(format!("{path}: {e}"))
    })
}

/// Returns an answer as JSON. The memory of the request is counted until the answer is sent.
pub(crate) fn answer(value: &impl Serialize, held: Held) -> Result<Response, Failure> {
    struct Sent(Vec<u8>, #[allow(dead_code, reason = "dropped with the bytes")] Held);
    impl AsRef<[u8]> for Sent {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let bytes = serde_json::to_vec(value).map_err(|_| Failure::internal())?;
    Ok(of_json(StatusCode::OK, Body::from(Bytes::from_owner(Sent(bytes, held)))))
}

/// Returns a small answer as JSON, whose memory need not be counted.
pub(crate) fn small(value: &impl Serialize) -> Response {
    of_json(StatusCode::OK, Body::from(serde_json::to_vec(value).unwrap_or_default()))
}

pub(crate) fn of_json(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
