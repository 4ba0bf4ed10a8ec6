//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::failure::Failure;
use super::memory::RequestMemory;
use super::metrics::Metrics;
use super::models::Models;
use super::queue::Queue;
use super::sessions::Sessions;
use super::settings::Settings;

/// The memory of a request for each byte of its body: the body, its values and its texts.
pub(crate) const PER_BYTE: u64 = 24;

/// What all requests share.
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) models: Models,
    pub(crate) queue: Arc<Queue>,
    /// The queue of language models and translators, which search for so long that other models would wait.
    pub(crate) slow: Arc<Queue>,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Metrics,
    /// The requests that may be in work at once.
    pub(crate) slots: Arc<Semaphore>,
    /// The memory that bodies, parsed texts and answers may take at once.
    pub(crate) memory: RequestMemory,
    /// The texts that may be written at once.
    pub(crate) streams: Arc<Semaphore>,
    /// Whether requests are let in.
    pub(crate) open: AtomicBool,
    /// Whether the server ends: it answers what it has accepted, and closes each connection after its answer.
    pub(crate) ends: AtomicBool,
}

impl State {
    pub(crate) fn new(mut settings: Settings) -> Self {
        let metrics = Metrics::default();
        // Two of the longest bodies fit at once.
        settings.request_memory = settings.request_memory.max(2 * PER_BYTE * settings.body as u64);
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            models: Models::default(),
            queue: Queue::start(settings.clone(), metrics.clone()),
            slow: Queue::start(settings.clone(), metrics.clone()),
            sessions: Sessions::new(settings.sessions, settings.session_time),
            slots: semaphore(settings.requests),
            memory: RequestMemory::new(settings.request_memory),
            streams: semaphore(settings.streams),
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

    /// Checks that all models are loaded.
    pub(crate) fn opened(&self) -> Result<(), Failure> {
        match self.open.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Failure::unavailable("the server loads its models")),
        }
    }

    /// Checks that the server takes requests. A server that ends answers what it has accepted.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        self.opened()?;
        if self.ends() { Err(Failure::unavailable("the server ends")) } else { Ok(()) }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.queue.close();
        self.slow.close();
    }
}
