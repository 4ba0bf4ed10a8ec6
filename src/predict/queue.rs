//! A queue that joins the requests of several threads into one ragged batch.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::checks::lock;
use super::predictor::Predictor;
use crate::error::{AtCaller, Result};
use crate::operator::{Extent, Reach, Spec, VarId};
use crate::program::OpDesc;
use crate::tensor::{StorageKind, Variable};

/// A queue of prediction requests from many threads: requests that arrive while a batch runs are joined into one batch. The
/// results of each request are bit-identical to a run of the request alone. A request starts at once if no other request is
/// running.
///
/// Requests are joined if all these conditions are true:
/// - The requests have the same outputs and the same feeds.
/// - Every feed and every output has one row or one sequence per sample.
/// - No operator for these outputs reads the whole batch or draws random numbers.
///
/// All other requests run alone, one after another. If a joined batch fails, each of its requests is run alone. An error, or a
/// panic in an operator, therefore fails only the request that causes it. Carried states start from zeros in each request.
///
/// ```
/// # use unpadded::checkpoint::Checkpoint;
/// # use unpadded::predict::Predictor;
/// # use unpadded::{Builder, DType, Variable, executor::Scope, layers::Embedding, ops};
/// # let net = Builder::new();
/// # let h = net.feed("x", DType::I64, &[], 1).embedding(Embedding::new(5, 4)).gru(4);
/// # let (outputs, program) = ([("h".to_owned(), net.name_of(h))], net.finish()?);
/// # let mut checkpoint = Checkpoint::of(program, outputs);
/// # let mut scope = Scope::of(&checkpoint.program)?;
/// # for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
/// #     checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name)?);
/// # }
/// # let predictor = Predictor::new(checkpoint, &ops::catalogue())?;
/// let queue = predictor.clone().queue();
/// std::thread::scope(|scope| {
///     for word in 0..4i64 {
///         let (queue, predictor) = (&queue, &predictor);
///         scope.spawn(move || {
///             let x = Variable::from_sequence(vec![word; 3]).unwrap();
///             let alone = predictor.run(&[("x", &x)], &["h"]).unwrap();
///             assert_eq!(queue.run(&[("x", &x)], &["h"]).unwrap(), alone);
///         });
///     }
/// });
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Queue {
    predictor: Predictor,
    state: Mutex<State>,
    /// Notifies the waiting threads when requests are answered; one of these threads may then run the next requests.
    changed: Condvar,
    /// For each list of outputs, whether these outputs are computed for each sample independently of the other samples.
    by_sample: Mutex<HashMap<Vec<String>, bool>>,
}

#[derive(Default)]
struct State {
    /// Whether a thread is running requests at the moment.
    led: bool,
    waiting: VecDeque<Arc<Request>>,
}

struct Request {
    feeds: Vec<(String, Variable)>,
    outputs: Vec<String>,
    /// The number of samples of the request; `None` if the request must run alone.
    samples: Option<usize>,
    /// The source line that called [`Queue::run`].
    caller: &'static Location<'static>,
    answer: Mutex<Option<Answer>>,
}

enum Answer {
    Done(Result<Vec<Variable>>),
    /// A panic of an operator, which is resumed in the thread that made the request.
    Panicked(Box<dyn Any + Send>),
}

/// The number of rows at which a batch is full: no more requests are added, since a batch of this size already runs fast.
const ROWS: usize = 8192;

/// The maximum number of lists of outputs for which the queue remembers whether requests can be joined.
const KNOWN: usize = 256;

impl Predictor {
    /// Makes a queue of requests from many threads. The queue runs one batch at a time, on the predictor's
    /// [threads](Self::threads).
    pub fn queue(self) -> Queue {
        let (state, changed, by_sample) = (Mutex::default(), Condvar::new(), Mutex::default());
        Queue { predictor: self, state, changed, by_sample }
    }
}

/// The right to run the requests of the queue; it is released on drop, even after a panic.
struct Lead<'a> {
    queue: &'a Queue,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        lock(&self.queue.state).led = false;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// Returns the values of the outputs, as [`Predictor::run`] does.
    ///
    /// # Errors
    /// As [`Predictor::run`].
    #[track_caller]
    pub fn run(&self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        let free = {
            let mut state = lock(&self.state);
            let free = !state.led && state.waiting.is_empty();
            state.led |= free;
            free
        };
        if free {
            let _lead = Lead { queue: self };
            return self.predictor.run(feeds, outputs).at_caller();
        }
        let request = Arc::new(self.request(feeds, outputs, Location::caller()));
        let mut state = lock(&self.state);
        state.waiting.push_back(request.clone());
        loop {
            match lock(&request.answer).take() {
                Some(Answer::Done(answer)) => return answer,
                Some(Answer::Panicked(panic)) => {
                    drop(state);
                    resume_unwind(panic);
                }
                None => {}
            }
            if state.led {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.led = true;
            let requests = next(&mut state.waiting);
            drop(state);
            let lead = Lead { queue: self };
            self.answer(&requests);
            drop(lead);
            state = lock(&self.state);
        }
    }

    /// Makes a request, with copies of its feeds.
    fn request(
        &self,
        feeds: &[(&str, &Variable)],
        outputs: &[&str],
        caller: &'static Location<'static>,
    ) -> Request {
        let feeds: Vec<(String, Variable)> =
            feeds.iter().map(|&(name, value)| (name.to_owned(), value.clone())).collect();
        let outputs: Vec<String> = outputs.iter().map(|&name| name.to_owned()).collect();
        let program = &self.predictor.model().program;
        let by_sample = |(name, _): &(String, Variable)| {
            program.find(name).is_some_and(|id| program.spec(id).is_ok_and(of_samples))
        };
        // A request whose feeds have different numbers of samples is invalid: it runs alone and gets the error.
        let samples = feeds.first().map(|(_, value)| value.batch_size());
        let alike = feeds.iter().all(|(_, value)| Some(value.batch_size()) == samples);
        let joined = alike && feeds.iter().all(by_sample) && self.by_sample(&outputs);
        Request { samples: samples.filter(|_| joined), feeds, outputs, caller, answer: Mutex::default() }
    }

    /// Returns whether the outputs are computed for each sample independently of the other samples; caches the result.
    fn by_sample(&self, outputs: &[String]) -> bool {
        if let Some(&known) = lock(&self.by_sample).get(outputs) {
            return known;
        }
        let Some(found) = self.computed_by_sample(outputs) else { return false };
        let mut known = lock(&self.by_sample);
        // Each order of the same output names is a separate list, so there may be very many lists; at most `KNOWN`
        // lists are remembered.
        if known.len() < KNOWN {
            known.insert(outputs.to_vec(), found);
        }
        found
    }

    /// Returns whether the outputs are computed for each sample independently of the other samples; `None` if an output is
    /// unknown.
    fn computed_by_sample(&self, outputs: &[String]) -> Option<bool> {
        let model = self.predictor.model();
        let ids: Option<Vec<VarId>> = outputs.iter().map(|name| model.outputs.get(name).copied()).collect();
        let part = model.program.inference(&ids.clone()?).ok()?;
        let by_itself = |op: &OpDesc| {
            model.registry.parse(&op.kind, &op.attributes).is_ok_and(|parsed| {
                let facts = parsed.facts();
                let quiet = !facts.random || parsed.hints().draws_in_training;
                quiet && !facts.batch_dependent && facts.reach != Reach::Batch
            })
        };
        let mut ops = part.ops().filter(|op| op.step.is_none());
        let rows = ids?.into_iter().all(|id| part.spec(id).is_ok_and(of_samples));
        Some(rows && ops.all(by_itself))
    }

    /// Runs the requests, joined into one batch if possible, and stores their answers.
    fn answer(&self, requests: &[Arc<Request>]) {
        let joined = catch_unwind(AssertUnwindSafe(|| self.joined(requests)));
        if let Ok(Some(answers)) = joined {
            for (request, answer) in requests.iter().zip(answers) {
                *lock(&request.answer) = Some(Answer::Done(Ok(answer)));
            }
            return;
        }
        for request in requests {
            let feeds: Vec<(&str, &Variable)> =
                request.feeds.iter().map(|(name, value)| (&**name, value)).collect();
            let outputs: Vec<&str> = request.outputs.iter().map(String::as_str).collect();
            let ran =
                catch_unwind(AssertUnwindSafe(|| self.predictor.run_for(request.caller, &feeds, &outputs)));
            *lock(&request.answer) = Some(ran.map_or_else(Answer::Panicked, Answer::Done));
        }
    }

    /// Runs several requests as one batch; returns the outputs of each request. Returns `None` for fewer than two requests, if
    /// the feeds cannot be merged, if the batch fails, or if an output cannot be divided into one part per request.
    fn joined(&self, requests: &[Arc<Request>]) -> Option<Vec<Vec<Variable>>> {
        let first = requests.first().filter(|_| requests.len() > 1)?;
        let mut feeds = Vec::with_capacity(first.feeds.len());
        for (at, (name, _)) in first.feeds.iter().enumerate() {
            let parts: Vec<Variable> = requests.iter().map(|request| request.feeds[at].1.clone()).collect();
            feeds.push((name.as_str(), Variable::merge(&parts).ok()?));
        }
        let feeds: Vec<(&str, &Variable)> = feeds.iter().map(|(name, value)| (*name, value)).collect();
        let outputs: Vec<&str> = first.outputs.iter().map(String::as_str).collect();
        let found = self.predictor.run(&feeds, &outputs).ok()?;
        let all: usize = requests.iter().filter_map(|request| request.samples).sum();
        if found.iter().any(|value| value.batch_size() != all) {
            return None;
        }
        let mut from = 0;
        let part = |request: &Arc<Request>| {
            let samples = from..from + request.samples.unwrap_or(0);
            from = samples.end;
            found.iter().map(|value| value.slice_sequences(samples.clone()).ok()).collect()
        };
        requests.iter().map(part).collect()
    }
}

/// Removes and returns the requests that run next: the first request, and the later requests that can be joined with it.
fn next(waiting: &mut VecDeque<Arc<Request>>) -> Vec<Arc<Request>> {
    let Some(first) = waiting.pop_front() else { return Vec::new() };
    let mut requests = vec![first.clone()];
    let mut rows: usize = rows_of(&first);
    waiting.retain(|other| {
        let join = rows < ROWS && alike(&first, other);
        if join {
            rows += rows_of(other);
            requests.push(other.clone());
        }
        !join
    });
    requests
}

/// Returns whether two requests can be joined.
fn alike(a: &Request, b: &Request) -> bool {
    let kind = |request: &Request| {
        let kinds = request.feeds.iter().map(|(name, value)| {
            (
                name.clone(),
                value.dtype(),
                value.shape().get(1..).map(<[usize]>::to_vec),
                value.lod().map(|lod| lod.levels()),
            )
        });
        kinds.collect::<Vec<_>>()
    };
    a.samples.is_some() && b.samples.is_some() && a.outputs == b.outputs && kind(a) == kind(b)
}

/// Returns whether a variable has one row or one sequence for each sample.
fn of_samples(spec: &Spec) -> bool {
    (!spec.lod.is_empty() || spec.rows() == Extent::Batch) && spec.storage == StorageKind::Dense
}

fn rows_of(request: &Request) -> usize {
    request.feeds.iter().map(|(_, value)| value.rows()).max().unwrap_or(0)
}
