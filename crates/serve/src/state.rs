//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::failure::Failure;
use super::metrics::Metrics;
use super::models::Models;
use super::queue::Queue;
use super::sessions::Sessions;
use super::settings::Settings;

/// What all requests share.
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) models: Models,
    pub(crate) queue: Arc<Queue>,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Metrics,
    /// The requests that may be in work at once.
    pub(crate) slots: Arc<Semaphore>,
    /// The bytes that bodies, parsed texts and answers may take at once, in units of [`UNIT`].
    pub(crate) bytes: Arc<Semaphore>,
    /// The texts that may be written at once.
    pub(crate) streams: Arc<Semaphore>,
    /// Whether requests are let in.
    pub(crate) open: AtomicBool,
    /// Whether the server ends: it answers what it has accepted, and closes each connection after its answer.
    pub(crate) ends: AtomicBool,
}

/// The unit in which the memory of requests is counted, in bytes.
pub(crate) const UNIT: u64 = 1024;

impl State {
    pub(crate) fn new(settings: Settings) -> Self {
        let metrics = Metrics::default();
        let units = usize::try_from(settings.request_memory / UNIT).unwrap_or(usize::MAX);
        Self {
            models: Models::default(),
            queue: Queue::start(settings.clone(), metrics.clone()),
            sessions: Sessions::new(settings.sessions, settings.session_time),
            slots: Arc::new(Semaphore::new(settings.requests)),
            bytes: Arc::new(Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS))),
            streams: Arc::new(Semaphore::new(settings.streams)),
            open: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            metrics,
            settings,
        }
    }

    /// Reloads models: all, or only those whose files have changed.
    pub(crate) fn reload(&self, changed: bool) -> Vec<String> {
        let found = self.models.reload(changed, &self.settings, &self.metrics);
        self.sessions.sweep(&self.models);
        found
    }

    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Checks that the server takes requests.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        match self.open.load(Ordering::Relaxed) {
            false => Err(Failure::unavailable("the server loads its models")),
            true if self.ends() => Err(Failure::unavailable("the server ends")),
            true => Ok(()),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.queue.close();
    }
}
