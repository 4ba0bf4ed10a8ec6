//! The models of a server by their names, and their replacement while requests run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use unpadded::memory::shown;
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
    /// The width of a vector of a text; 0 for a model without vectors.
    width: usize,
}

impl ModelVersion {
    pub(crate) fn task(&self) -> &'static str {
        self.model.task().name()
    }

    /// Returns the memory of the answers to texts with this number of tokens, as values and as JSON, in bytes.
    pub(crate) fn answer_bytes(&self, texts: usize, tokens: usize) -> u64 {
        let predictor = self.model.predictor();
        let labels = predictor.vocabulary("labels").map_or(0, |labels| labels.len());
        // A word with its tag is two strings and a span; a label is a string with its probability.
        let per_token = if predictor.vocabulary("tags").is_ok() { 200 } else { 24 };
        (texts.saturating_mul(256 + labels.saturating_mul(100) + self.width * 20) as u64)
            .saturating_add(tokens.saturating_mul(per_token) as u64)
    }

    /// Returns whether the model writes token by token, for so long that other models would wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.writes() || self.task() == "translate"
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
    /// The memory that the first load took at its peak, and the size of its files, beyond which a reload does not fit the bound.
    peak: u64,
    size: u64,
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
        let (stamp, before) = (stamp(&*source), memory::reset_peak());
        let loaded = self.load(name, &*source, settings)?;
        let peak = memory::peak().saturating_sub(before);
        metrics.reloaded(name, "loaded");
        let size = size(&stamp);
        self.lock().push(Entry { name: name.to_owned(), source, loaded, stamp, peak, size });
        Ok(())
    }

    fn load(
        &self,
        name: &str,
        source: &dyn ModelSource,
        settings: &Settings,
    ) -> Result<Arc<ModelVersion>, String> {
        let work = || -> Result<(Model, usize), String> {
            let model = source.load()?;
            model.set_memory_limit(self.batch_memory(settings));
            let width = first_answer(&model).map_err(|e| format!("the first answer failed: {e:#}"))?;
            Ok((model, width))
        };
        let loaded = catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the load panicked".to_owned())?;
        let (model, width) = loaded?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Ok(Arc::new(ModelVersion { name: name.to_owned(), model, since, width }))
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
        let of_entry = |entry: &Entry| {
            let most = entry.size + entry.size / 4 + 1_000_000;
            (entry.name.clone(), entry.source.clone(), entry.stamp.clone(), most)
        };
        let known: Vec<_> = self.lock().iter().map(of_entry).collect();
        let mut messages = Vec::new();
        for (name, source, before, most) in known {
            // The lock is free while files are read, because requests need it.
            let now = stamp(&*source);
            if changed && (before == now || now.iter().any(Option::is_none)) {
                continue;
            }
            let found = match size(&now) {
                size if size > most => Err(format!(
                    "its files grew to {}, and the memory bound counts {}: start the server again",
                    shown(size.into()),
                    shown(most.into())
                )),
                _ => self.load(&name, &*source, settings),
            };
            let mut entries = self.lock();
            let Some(entry) = entries.iter_mut().find(|entry| entry.name == name) else { continue };
            entry.stamp = now;
            match found {
                Ok(loaded) => {
                    entry.loaded = loaded;
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

fn size(stamp: &Stamp) -> u64 {
    stamp.iter().flatten().map(|(_, size)| size).sum()
}

fn stamp(source: &dyn ModelSource) -> Stamp {
    let of_file = |path: PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    source.files().into_iter().map(of_file).collect()
}

/// Answers a text, so that everything is compiled and every thread has started before the first request. Returns the width of a
/// vector of a text.
fn first_answer(model: &Model) -> unpadded::Result<usize> {
    if model.task().continues_texts() {
        return model.write("a", Sampling::default(), 1, 1).map(|_| 0);
    }
    let text = match model.asking() {
        Some(unpadded_text::QuestionKind::Row) => "1:1".to_owned(),
        _ => vec!["a"; model.columns()].join("\t"),
    };
    model.predict(&[&text])?;
    let vectors = if model.embeds() { model.embed(&[&text])? } else { Vec::new() };
    Ok(vectors.first().map_or(0, Vec::len))
}
