//! The queue that joins the texts of many requests into ragged batches, and the thread that runs the batches.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::oneshot;
use unpadded::predict::Beam;
use unpadded_recipes::{Answer, DecodingConfig, Model};

use super::failure::Failure;
use super::memory::MemoryPermit;
use super::metrics::Metrics;
use super::models::ModelVersion;
use super::settings::Settings;

/// What a model does with texts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    Predict(DecodingConfig),
    Embed,
    /// Searches continuations of at most this number of tokens.
    Search(Beam, usize),
}

/// What a model found for a text.
pub(crate) enum Output {
    Answer(Answer),
    Vector(Vec<f32>),
}

impl Output {
    pub(crate) fn answers(all: Vec<Self>) -> Vec<Answer> {
        let answer = |output| match output {
            Self::Answer(answer) => Some(answer),
            Self::Vector(_) => None,
        };
        all.into_iter().filter_map(answer).collect()
    }

    pub(crate) fn vector(self) -> Option<Vec<f32>> {
        match self {
            Self::Vector(vector) => Some(vector),
            Self::Answer(_) => None,
        }
    }
}

/// The texts of a request, which are answered together.
pub(crate) struct Job {
    pub(crate) model: Arc<ModelVersion>,
    pub(crate) work: Work,
    pub(crate) texts: Arc<[String]>,
    pub(crate) tokens: usize,
    /// The counted memory of the request, which the queue holds even if the client has left.
    pub(crate) _held: MemoryPermit,
    pub(crate) queued: Instant,
    pub(crate) reply: oneshot::Sender<Result<Vec<Output>, Failure>>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// The memory that a model may keep from its batches while other models compute, in bytes.
pub(crate) const KEPT: u64 = 4_000_000;

/// A queue with the thread that runs it. One batch runs at a time, so that the memory of a batch is taken once.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    settings: Settings,
    metrics: Metrics,
}

impl Queue {
    pub(crate) fn start(settings: Settings, metrics: Metrics) -> Arc<Self> {
        let queue = Arc::new(Self { waiting: Mutex::default(), changed: Condvar::new(), settings, metrics });
        let of_thread = queue.clone();
        std::thread::spawn(move || of_thread.run());
        queue
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, job: Job) {
        self.metrics.queued.inc_by(job.texts.len() as i64);
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Ends the thread after the requests that wait.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut last: Weak<ModelVersion> = Weak::new();
        while let Some(jobs) = self.next() {
            let model = jobs.first().map_or_else(Weak::new, |job| Arc::downgrade(&job.model));
            // The memory of a batch is taken once, so that a model does not keep it while others compute.
            if let Some(last) = last.upgrade().filter(|_| !Weak::ptr_eq(&last, &model)) {
                last.model.release_above(KEPT);
            }
            last = model;
            self.answer(jobs);
        }
    }

    /// Returns the requests of the next batch; `None` at the end.
    fn next(&self) -> Option<Vec<Job>> {
        let mut waiting = self.lock();
        loop {
            // Texts that no client waits for any more take no time of the model.
            waiting.jobs.retain(|job| {
                let left = job.reply.is_closed();
                if left {
                    self.metrics.queued.dec_by(job.texts.len() as i64);
                }
                !left
            });
            let Some(first) = waiting.jobs.front() else {
                if waiting.closed {
                    return None;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let joined: usize =
                waiting.jobs.iter().filter(|job| joins(first, job)).map(|job| job.tokens).sum();
            let left = self.settings.batch_wait.saturating_sub(first.queued.elapsed());
            if joined >= self.settings.batch_tokens || left.is_zero() || waiting.closed {
                return Some(self.take(&mut waiting.jobs));
            }
            let waited = self.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Removes the first request, and those behind it that fit into its batch. A request longer than a batch is alone.
    fn take(&self, jobs: &mut VecDeque<Job>) -> Vec<Job> {
        let Some(first) = jobs.pop_front() else { return Vec::new() };
        let (mut tokens, mut batch, mut left) = (first.tokens, vec![first], VecDeque::new());
        for job in jobs.drain(..) {
            let fits = tokens.saturating_add(job.tokens) <= self.settings.batch_tokens;
            if fits && batch.first().is_some_and(|first| joins(first, &job)) {
                tokens += job.tokens;
                batch.push(job);
            } else {
                left.push_back(job);
            }
        }
        *jobs = left;
        let texts: usize = batch.iter().map(|job| job.texts.len()).sum();
        self.metrics.queued.dec_by(texts as i64);
        self.metrics.batch_sequences.observe(texts as f64);
        self.metrics.batch_tokens.observe(tokens as f64);
        batch.iter().for_each(|job| self.metrics.waits.observe(job.queued.elapsed().as_secs_f64()));
        batch
    }

    /// Answers the requests together. After an error, each is answered alone, so that the error is its own.
    fn answer(&self, jobs: Vec<Job>) {
        match self.found(&jobs) {
            Ok(all) => {
                let mut all = all.into_iter();
                for job in jobs {
                    let own = all.by_ref().take(job.texts.len()).collect();
                    let _ = job.reply.send(Ok(own)); // the client may have left
                }
            }
            Err(_) if jobs.len() > 1 => {
                let waits = jobs.into_iter().filter(|job| !job.reply.is_closed());
                waits.for_each(|job| self.answer(vec![job]));
            }
            Err(failure) => jobs.into_iter().for_each(|job| drop(job.reply.send(Err(failure.clone())))),
        }
    }

    fn found(&self, jobs: &[Job]) -> Result<Vec<Output>, Failure> {
        let Some(first) = jobs.first() else { return Ok(Vec::new()) };
        let texts: Vec<&str> = jobs.iter().flat_map(|job| job.texts.iter().map(String::as_str)).collect();
        let model = &first.model.model;
        let found = catch_unwind(AssertUnwindSafe(|| first.work.run(model, &texts)));
        self.metrics.predicted.set(model.predictor().last_memory() as f64);
        found.map_err(|_| Failure::internal())?.map_err(|error| Failure::of_model(&error))
    }
}

impl Work {
    pub(crate) fn run(&self, model: &Model, texts: &[&str]) -> unpadded::Result<Vec<Output>> {
        let answers = |found: Vec<Answer>| found.into_iter().map(Output::Answer).collect();
        match self {
            Self::Predict(decoding) => model.predict_by(texts, decoding).map(answers),
            Self::Embed => Ok(model.embed(texts)?.into_iter().map(Output::Vector).collect()),
            Self::Search(beam, tokens) => {
                let search =
                    |text: &&str| Ok(Output::Answer(Answer::Ranked(model.search(text, *tokens, beam)?)));
                texts.iter().map(search).collect()
            }
        }
    }
}

fn joins(first: &Job, other: &Job) -> bool {
    // A language model answers one text after the other, so that nothing is gained.
    Arc::ptr_eq(&first.model, &other.model) && first.work == other.work && !first.model.writes()
}
