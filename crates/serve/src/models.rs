//! The models of a server by their names, and their replacement while requests run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use unpadded::predict::Sampling;
use unpadded_recipes::Model;

use super::failure::Failure;
use super::memory;
use super::metrics::Metrics;
use super::settings::Settings;

/// A place from which a model is loaded, once at the start and again at each reload.
pub trait ModelSource: Send + Sync {
    /// Loads the model; the error is for the log.
    ///
    /// # Errors
    /// If the model cannot be loaded.
    fn load(&self) -> Result<Model, String>;

    /// Returns the files whose changes reload the model.
    fn files(&self) -> Vec<PathBuf>;
}

/// A checkpoint file as a source.
#[derive(Debug, Clone)]
pub struct CheckpointSource {
    path: PathBuf,
}

impl CheckpointSource {
    /// Makes a source of the checkpoint at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl ModelSource for CheckpointSource {
    fn load(&self) -> Result<Model, String> {
        Model::load(&self.path).map_err(|e| format!("{e:#}"))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

/// A loaded model. A reload replaces it as a whole; requests in work end with the old one.
pub(crate) struct ModelVersion {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// The seconds since 1970 at which the model was loaded.
    pub(crate) since: u64,
}

impl ModelVersion {
    pub(crate) fn task(&self) -> &'static str {
        self.model.task().name()
    }

    pub(crate) fn writes(&self) -> bool {
        self.model.task().continues_texts()
    }
}

type Stamp = Vec<Option<(SystemTime, u64)>>;

struct Entry {
    name: String,
    source: Arc<dyn ModelSource>,
    loaded: Arc<ModelVersion>,
    /// The times and sizes of the files at the last load, whether it succeeded or not.
    stamp: Stamp,
    /// The memory that the last load took at its peak.
    peak: u64,
}

/// The models in the order in which they were added.
#[derive(Default)]
pub(crate) struct Models {
    entries: Mutex<Vec<Entry>>,
    /// The memory of a batch in bytes; 0 before the bound is known.
    batch: AtomicU64,
    /// Locked during a reload, so that two reloads do not load the same model twice.
    reloading: Mutex<()>,
}

impl Models {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(
        &self,
        name: &str,
        source: Arc<dyn ModelSource>,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Result<(), String> {
        let printable = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if name.is_empty() || name.len() > 64 || !printable {
            return Err(format!(
                "model name `{name}`: expected up to 64 letters, digits, `-`, `_` and `.`, as they are part of addresses"
            ));
        }
        if self.find(Some(name)).is_ok() {
            return Err(format!("model name `{name}`: expected each name once, got it twice"));
        }
        let stamp = stamp(&*source);
        let (loaded, peak) = self.load(name, &*source, settings)?;
        metrics.reloaded(name, "loaded");
        self.lock().push(Entry { name: name.to_owned(), source, loaded, stamp, peak });
        Ok(())
    }

    fn load(
        &self,
        name: &str,
        source: &dyn ModelSource,
        settings: &Settings,
    ) -> Result<(Arc<ModelVersion>, u64), String> {
        let before = memory::reset_peak();
        let work = || -> Result<Model, String> {
            let model = source.load()?;
            model.set_memory_limit(self.batch_memory(settings));
            first_answer(&model).map_err(|e| format!("the first answer failed: {e:#}"))?;
            Ok(model)
        };
        let model = catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the load panicked".to_owned())??;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let loaded = Arc::new(ModelVersion { name: name.to_owned(), model, since });
        Ok((loaded, memory::peak().saturating_sub(before)))
    }

    /// Returns a model by its name, or the first model.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Arc<ModelVersion>, Failure> {
        let entries = self.lock();
        let entry = match name {
            None => entries.first(),
            Some(name) => entries.iter().find(|entry| entry.name == name),
        };
        entry.map(|entry| entry.loaded.clone()).ok_or_else(|| match name {
            Some(name) => {
                let known: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                Failure::not_found(format!("model: expected one of `{}`, got `{name}`", known.join("`, `")))
            }
            None => Failure::unavailable("the server loads its models"),
        })
    }

    pub(crate) fn all(&self) -> Vec<Arc<ModelVersion>> {
        self.lock().iter().map(|entry| entry.loaded.clone()).collect()
    }

    pub(crate) fn contains(&self, model: &Arc<ModelVersion>) -> bool {
        self.lock().iter().any(|entry| Arc::ptr_eq(&entry.loaded, model))
    }

    /// Returns the memory that a reload takes: the largest peak of a load.
    pub(crate) fn load_memory(&self) -> u64 {
        self.lock().iter().map(|entry| entry.peak).max().unwrap_or(0)
    }

    pub(crate) fn batch_memory(&self, settings: &Settings) -> u64 {
        match self.batch.load(Ordering::Relaxed) {
            0 => settings.batch_memory,
            bytes => bytes,
        }
    }

    /// Sets the memory of a batch for all models, also for the models of later reloads.
    pub(crate) fn set_batch_memory(&self, bytes: u64) {
        self.batch.store(bytes, Ordering::Relaxed);
        self.all().iter().for_each(|loaded| loaded.model.set_memory_limit(bytes));
    }

    /// Loads models again: all, or the models whose files have changed. Returns a message per model.
    pub(crate) fn reload(&self, changed: bool, settings: &Settings, metrics: &Metrics) -> Vec<String> {
        let _one = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = self.lock().iter().map(|entry| entry.name.clone()).collect();
        let mut messages = Vec::new();
        for name in names {
            let take = |entry: &mut Entry| {
                let now = stamp(&*entry.source);
                let is_new = entry.stamp != now && now.iter().all(Option::is_some);
                (!changed || is_new).then(|| {
                    entry.stamp = now;
                    entry.source.clone()
                })
            };
            let source = self.lock().iter_mut().find(|entry| entry.name == name).and_then(take);
            let Some(source) = source else { continue };
            let found = self.load(&name, &*source, settings);
            let mut entries = self.lock();
            let Some(entry) = entries.iter_mut().find(|entry| entry.name == name) else { continue };
            match found {
                Ok((loaded, peak)) => {
                    (entry.loaded, entry.peak) = (loaded, peak);
                    metrics.reloaded(&name, "loaded");
                    tracing::info!(model = name, "reloaded");
                    messages.push(format!("{name}: reloaded"));
                }
                Err(why) => {
                    metrics.reloaded(&name, "failed");
                    tracing::error!(model = name, reason = why, "not reloaded: the old model answers");
                    messages.push(format!("{name}: not reloaded, the old model answers: {why}"));
                }
            }
        }
        messages
    }
}

fn stamp(source: &dyn ModelSource) -> Stamp {
    let of_file = |path: PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    source.files().into_iter().map(of_file).collect()
}

/// Answers a text, so that everything is compiled and every thread has started before the first request.
fn first_answer(model: &Model) -> unpadded::Result<()> {
    if model.task().continues_texts() {
        return model.write("a", Sampling::default(), 1, 1).map(drop);
    }
    let text = match model.asking() {
        Some(unpadded_text::QuestionKind::Row) => "1:1",
        _ if model.trained_by().data.pair.is_some() => "a\ta",
        _ => "a",
    };
    model.predict(&[text]).map(drop)
}
