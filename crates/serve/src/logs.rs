//! Names of requests, which the log and the header `x-request-id` have.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderValue};

pub(crate) const HEADER: &str = "x-request-id";

/// Returns the name of a request: as the client gives it, or a new one.
pub(crate) fn name(headers: &HeaderMap) -> HeaderValue {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let plain = |name: &&HeaderValue| name.len() <= 64 && name.to_str().is_ok();
    headers
        .get(HEADER)
        .filter(plain)
        .cloned()
        .unwrap_or_else(|| HeaderValue::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}
