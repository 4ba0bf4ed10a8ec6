//! Requests of several threads, joined into one ragged batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::predictor::Predictor;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::{Extent, OpDesc, Reach, Spec, VarId};
use crate::tensor::{StorageKind, Variable};

/// A predictor that many threads ask at once: requests that come while others run are joined into one batch, and each is answered
/// with the bits that it would have alone. A request that finds nobody there runs at once.
///
/// Requests are joined if they ask for the same outputs and give the same feeds, all of them with a row or a sequence of its own
/// for each sample, and no operator between reaches over the batch or draws random numbers. Others run by themselves, in turn. If a
/// joined batch fails, each of its requests runs alone, so that an error is its own request's. States that are carried start from
/// zeros in each request.
///
/// ```
/// # use unpadded::checkpoint::Checkpoint;
/// # use unpadded::predict::Predictor;
/// # use unpadded::{Builder, DType, Variable, executor::Scope, layers::Embedding, ops};
/// # let net = Builder::new();
/// # let h = net.feed("x", DType::I64, &[], 1).embedding(Embedding::new(5, 4)).gru(4);
/// # let (outputs, program) = ([("h".to_owned(), net.name_of(h))].into(), net.finish()?);
/// # let mut checkpoint = Checkpoint { outputs, program, ..Checkpoint::default() };
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
    /// Somebody was answered, or may take the lead.
    changed: Condvar,
    /// By outputs: whether they are computed for each sample by itself.
    by_sample: Mutex<BTreeMap<Vec<String>, bool>>,
}

#[derive(Default)]
struct State {
    /// Whether a thread runs requests.
    led: bool,
    waiting: VecDeque<Arc<Request>>,
}

/// A request that waits.
struct Request {
    feeds: Vec<(String, Variable)>,
    outputs: Vec<String>,
    answer: Mutex<Option<Result<Vec<Variable>>>>,
}

/// Rows of a joined batch: about as many as make it fast.
const ROWS: usize = 8192;

impl Predictor {
    /// A queue for many threads. To use all cores, give the predictor [threads](Self::threads): one batch runs at a time.
    pub fn queue(self) -> Queue {
        Queue {
            predictor: self,
            state: Mutex::default(),
            changed: Condvar::new(),
            by_sample: Mutex::default(),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs while it is held.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to run requests, which passes on when it ends, also by a panic.
struct Lead<'a> {
    queue: &'a Queue,
    /// What is being run.
    requests: Vec<Arc<Request>>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        for request in &self.requests {
            let lost = || Error::of(ErrorKind::Program, "request", "an answer", "a panic in an operator");
            lock(&request.answer).get_or_insert_with(|| Err(lost()));
        }
        lock(&self.queue.state).led = false;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// The values of the outputs, as [`Predictor::run`] has them.
    ///
    /// # Errors
    /// As [`Predictor::run`].
    #[track_caller]
    pub fn run(&self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        let mut state = lock(&self.state);
        if !state.led && state.waiting.is_empty() {
            state.led = true;
            drop(state);
            let _lead = Lead { queue: self, requests: Vec::new() };
            return self.predictor.run(feeds, outputs).at_caller();
        }
        let request = Arc::new(Request {
            feeds: feeds.iter().map(|&(name, value)| (name.to_owned(), value.clone())).collect(),
            outputs: outputs.iter().map(|&name| name.to_owned()).collect(),
            answer: Mutex::default(),
        });
        state.waiting.push_back(request.clone());
        loop {
            if let Some(answer) = lock(&request.answer).take() {
                return answer.at_caller();
            }
            if state.led {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.led = true;
            let requests = self.next(&mut state.waiting);
            drop(state);
            let lead = Lead { queue: self, requests };
            self.answer(&lead.requests);
            drop(lead);
            state = lock(&self.state);
        }
    }

    /// The requests that run next: the first one, and of those behind it all that can be joined with it.
    fn next(&self, waiting: &mut VecDeque<Arc<Request>>) -> Vec<Arc<Request>> {
        let Some(first) = waiting.pop_front() else { return Vec::new() };
        let mut requests = vec![first.clone()];
        if !self.can_be_joined(&first) {
            return requests;
        }
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

    /// Whether a request may be one of several in a batch.
    fn can_be_joined(&self, request: &Request) -> bool {
        let program = &self.predictor.model().program;
        let of_samples = |(name, _): &(String, Variable)| {
            program.find(name).is_some_and(|id| program.spec(id).is_ok_and(of_samples))
        };
        let mut known = lock(&self.by_sample);
        let by_sample = match known.get(&request.outputs) {
            Some(&by_sample) => by_sample,
            None => {
                let by_sample = self.computed_by_sample(&request.outputs).unwrap_or(false);
                known.insert(request.outputs.clone(), by_sample);
                by_sample
            }
        };
        by_sample && request.feeds.iter().all(of_samples)
    }

    /// Whether outputs are computed for each sample by itself; none if one is not known.
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
        let mut ops = part.blocks().flat_map(|(_, block)| &block.ops).filter(|op| op.step.is_none());
        let rows = ids?.into_iter().all(|id| part.spec(id).is_ok_and(of_samples));
        Some(rows && ops.all(by_itself))
    }

    /// Runs requests and writes down their answers.
    fn answer(&self, requests: &[Arc<Request>]) {
        if let Some(answers) = self.joined(requests) {
            for (request, answer) in requests.iter().zip(answers) {
                *lock(&request.answer) = Some(Ok(answer));
            }
            return;
        }
        for request in requests {
            let feeds: Vec<(&str, &Variable)> =
                request.feeds.iter().map(|(name, value)| (&**name, value)).collect();
            let outputs: Vec<&str> = request.outputs.iter().map(String::as_str).collect();
            let answer = self.predictor.run(&feeds, &outputs);
            *lock(&request.answer) = Some(answer);
        }
    }

    /// The answers to several requests from one batch; none if it fails.
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
        let mut from = 0;
        let part = |request: &Arc<Request>| {
            let count = request.feeds.first().map_or(0, |(_, value)| value.batch_size());
            let sequences = from..from + count;
            from += count;
            found.iter().map(|value| value.slice_sequences(sequences.clone()).ok()).collect()
        };
        requests.iter().map(part).collect()
    }
}

/// Whether two requests are of one kind.
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
    a.outputs == b.outputs && kind(a) == kind(b)
}

/// Whether each sample has a row or a sequence of its own.
fn of_samples(spec: &Spec) -> bool {
    (!spec.lod.is_empty() || spec.rows() == Extent::Batch) && spec.storage == StorageKind::Dense
}

fn rows_of(request: &Request) -> usize {
    request.feeds.iter().map(|(_, value)| value.rows()).max().unwrap_or(0)
}
