//! Sessions: the states of language models between requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unpadded_recipes::TextSession;

use super::failure::Failure;
use super::models::{ModelVersion, Models};

/// The state of a model after the texts that a session has read and written.
pub(crate) struct Text {
    pub(crate) model: Arc<ModelVersion>,
    pub(crate) session: TextSession,
    pub(crate) tokens: usize,
}

impl Text {
    /// Begins a text of a language model.
    pub(crate) fn begin(model: &Arc<ModelVersion>) -> Result<Self, Failure> {
        let session = model.model.begin().map_err(|error| Failure::invalid(format!("{error:#}")))?;
        Ok(Self { model: model.clone(), session, tokens: 0 })
    }
}

struct Entry {
    model: Arc<ModelVersion>,
    /// `None` while a request uses the session.
    text: Option<Text>,
    used: Instant,
}

pub(crate) struct Sessions {
    entries: Mutex<HashMap<String, Entry>>,
    most: usize,
    time: Duration,
}

impl Sessions {
    pub(crate) fn new(most: usize, time: Duration) -> Self {
        Self { entries: Mutex::default(), most, time }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session and returns its name, which cannot be guessed.
    pub(crate) fn add(&self, text: Text) -> Result<String, Failure> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| Failure::internal())?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut entries = self.lock();
        entries.retain(|_, entry| entry.text.is_none() || entry.used.elapsed() < self.time);
        if entries.len() >= self.most {
            return Err(Failure::overloaded(format!("expected at most {} sessions at once", self.most)));
        }
        entries.insert(
            name.clone(),
            Entry { model: text.model.clone(), text: Some(text), used: Instant::now() },
        );
        Ok(name)
    }

    pub(crate) fn model(&self, name: &str) -> Result<Arc<ModelVersion>, Failure> {
        self.lock().get(name).map(|entry| entry.model.clone()).ok_or_else(Self::unknown)
    }

    /// Takes a session for a request; [`Self::put_back`] ends the use.
    pub(crate) fn take(&self, name: &str) -> Result<Text, Failure> {
        let mut entries = self.lock();
        let lives = |entry: &&mut Entry| entry.used.elapsed() < self.time;
        let entry = entries.get_mut(name).filter(lives).ok_or_else(Self::unknown)?;
        entry.text.take().ok_or_else(|| Failure::overloaded("another request uses the session"))
    }

    /// Returns the number of tokens of a session, and the name of its model.
    pub(crate) fn tokens(&self, name: &str) -> Result<(usize, String), Failure> {
        let entries = self.lock();
        let text = entries.get(name).ok_or_else(Self::unknown)?.text.as_ref();
        let text = text.ok_or_else(|| Failure::overloaded("another request uses the session"))?;
        Ok((text.tokens, text.model.name.clone()))
    }

    /// Puts a session back, unless it was deleted meanwhile.
    pub(crate) fn put_back(&self, name: &str, text: Text) {
        if let Some(entry) = self.lock().get_mut(name) {
            (entry.text, entry.used) = (Some(text), Instant::now());
        }
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), Failure> {
        self.lock().remove(name).map(drop).ok_or_else(Self::unknown)
    }

    fn unknown() -> Failure {
        Failure::not_found("session: expected one that lives, got one that ended, was deleted or never began")
    }

    /// Ends the sessions whose time is over, and the sessions of models that a reload has replaced.
    pub(crate) fn sweep(&self, models: &Models) {
        self.lock().retain(|_, entry| match &entry.text {
            Some(_) => entry.used.elapsed() < self.time && models.contains(&entry.model),
            None => true,
        });
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }
}
