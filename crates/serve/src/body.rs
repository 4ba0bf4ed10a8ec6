//! Bodies of requests, read within their limits, and answers as JSON. The memory of both is counted until the answer is sent.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::failure::Failure;
use super::memory::MemoryPermit;
use super::state::{PER_BYTE, State};

/// A body with the memory that is counted for its request, and with its slot among the requests in work.
pub(crate) struct Request<T> {
    pub(crate) value: T,
    pub(crate) held: MemoryPermit,
    pub(crate) slot: Slot,
    pub(crate) times: Times,
}

/// The time at which a request began, and the time at which its answer is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) began: Instant,
    pub(crate) due: Instant,
}

/// A slot among the requests in work; it is free again when it is dropped, also because the client has left.
pub(crate) struct Slot {
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

/// Reads a body as JSON; the error names the place in the JSON.
pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Request<T>, Failure> {
    is_json(headers)?;
    let began = Instant::now();
    let times = Times { began, due: began + state.settings.deadline };
    let (bytes, held) = tokio::select! {
        biased;
        read = read(state, headers, body) => read?,
        () = tokio::time::sleep_until(times.due) => return Err(Failure::no_body()),
        () = ended(state) => return Err(Failure::unavailable("the server ends")),
    };
    // A slow body takes no slot.
    let slot = Slot::take(state)?;
    let value = off_thread(bytes.len(), &held, move || parse(&bytes)).await??;
    Ok(Request { value, held, slot, times })
}

/// Checks that a body is announced as JSON, or not announced.
fn is_json(headers: &HeaderMap) -> Result<(), Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // `curl -d` announces a form.
    match kind.as_str() {
        "" | "application/json" | "application/x-www-form-urlencoded" => Ok(()),
        _ if kind.ends_with("+json") => Ok(()),
        _ => Err(Failure {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            kind: "validation",
            message: "content-type: expected `application/json`".into(),
        }),
    }
}

/// Runs `work` on a thread of its own if a text of this size would keep other requests waiting. The memory of the request is counted
/// until the end of the work, even if the client leaves.
pub(crate) async fn off_thread<T: Send + 'static>(
    bytes: usize,
    held: &MemoryPermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    const LARGE: usize = 1 << 15;
    if bytes < LARGE {
        return Ok(work());
    }
    let held = held.clone();
    let work = move || {
        let _held = held;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal())
}

/// Reads a body, and counts its memory as it arrives, so that a slow client holds only what it has sent.
async fn read(
    state: &Arc<State>,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, MemoryPermit), Failure> {
    let most = state.settings.body;
    let too_long =
        |got: String| Failure::too_large(format!("body: expected at most {most} bytes, got {got}"));
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if let Some(length) = length.filter(|&length| length > most) {
        return Err(too_long(length.to_string()));
    }
    let (held, mut all) = (state.memory.permit()?, Vec::new());
    while let Some(frame) = body.frame().await {
        let broken = "the body ended before its announced length, or is malformed";
        let Ok(part) = frame.map_err(|_| Failure::invalid(broken))?.into_data() else { continue };
        if all.len() + part.len() > most {
            return Err(too_long("more".into()));
        }
        held.add(part.len() as u64 * PER_BYTE)?;
        all.extend_from_slice(&part);
    }
    Ok((all, held))
}

/// Waits until the server ends, and then for the bodies that are on the way.
async fn ended(state: &State) {
    const EACH: Duration = Duration::from_millis(250);
    while !state.ends() {
        tokio::time::sleep(EACH).await;
    }
    tokio::time::sleep(4 * EACH).await;
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    // Without this check, a list would be read as the fields of the object in their order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Failure::invalid("body: expected a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|e| {
        // The path is looked for only after an error, because it costs time.
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let path = serde_path_to_error::deserialize::<_, T>(&mut reader).err().map(|e| e.path().to_string());
        let path =
            path.filter(|path| path != ".").map_or_else(|| "body".to_owned(), |path| format!("`{path}`"));
        Failure::invalid(format!("{path}: {e}"))
    })
}

/// Returns an answer as JSON; `bytes` is about its size. The memory of the request is counted until the answer is sent.
pub(crate) async fn answer<T: Serialize>(
    bytes: usize,
    held: MemoryPermit,
    value: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, Failure> {
    struct SentBytes(Vec<u8>, #[allow(dead_code, reason = "dropped with the bytes")] MemoryPermit);
    impl AsRef<[u8]> for SentBytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let json = off_thread(bytes, &held, move || serde_json::to_vec(&value())).await?;
    let json = json.map_err(|_| Failure::internal())?;
    Ok(of_json(StatusCode::OK, Body::from(Bytes::from_owner(SentBytes(json, held)))))
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
