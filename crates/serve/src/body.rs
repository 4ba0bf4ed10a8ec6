//! Bodies of requests, read within their limits.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::memory::MemoryPermit;
use super::state::{PER_BYTE, State};

/// Checks that a body is announced as JSON, or not announced.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // `curl -d` announces a form.
    match kind.as_str() {
        "" | "application/json" | "application/x-www-form-urlencoded" => Ok(()),
        _ if kind.ends_with("+json") => Ok(()),
        _ => Err(Failure::not_json()),
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
pub(crate) async fn read(
    state: &State,
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

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
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
