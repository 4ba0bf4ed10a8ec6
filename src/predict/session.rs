//! Sessions: inference step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::checks::{numbers, unknown};
use super::predictor::Predictor;
use super::stepping::{Engine, StepStart, Stepping};
use crate::checkpoint::{feeds_from_bytes, feeds_to_bytes};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::MemoryUse;
use crate::lod::Lod;
use crate::operator::{LevelId, VarId};
use crate::tensor::Variable;

/// A session: streaming inference, one step at a time. One or several sequences are fed row by row, and the session
/// keeps the memories of the step block from row to row. The output of a step is bit-identical to the same row of the
/// output of a run over the whole sequence.
///
/// A session holds only its memories; it shares the predictor's weights and compiled steps. The predictor compiles one step for
/// each thread that runs a step at the same time as other threads, and reuses compiled steps. After the first step of a session,
/// a step allocates no memory.
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
/// let whole = predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2, 3])?)], &["h"])?;
/// let mut session = predictor.session(&["h"])?;
/// for (row, word) in whole[0].as_slice::<f32>()?.chunks(4).zip([1i64, 2, 3]) {
///     session.step(&[("x", &Variable::dense(ndarray::array![word]))])?;
///     assert_eq!(session.output("h")?.as_slice::<f32>()?, row);
/// }
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Session {
    stepping: Arc<Stepping>,
    /// The id that a compiled step stores with this session's constant values; the session gets a new id each time
    /// these values change.
    id: u64,
    sequences: usize,
    begun: Option<StepStart>,
    outputs: Vec<Variable>,
    /// Whether `outputs` has the outputs of the last step.
    computed: bool,
    steps: u64,
    most_steps: u64,
}

/// The id of the next session; 0 is no session's id.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Predictor {
    /// Makes a session over one sequence; every step computes the given outputs. The outputs must have the rows of the sequence,
    /// and every operator between the sequence's feed and the outputs must run forward from the first row. [`Session::begin`]
    /// takes the inputs that are not fed row by row, such as the text to translate.
    ///
    /// # Errors
    /// If an output is unknown, or if an operator cannot run row by row. Such operators are loops that run from the end, and
    /// operators that read later rows or the whole sequence. The error names the operator.
    #[track_caller]
    pub fn session(&self, outputs: &[&str]) -> Result<Session> {
        self.sessions(1, outputs)
    }

    /// Makes a session over several sequences; every step takes one row of each sequence.
    ///
    /// # Errors
    /// As [`Self::session`].
    #[track_caller]
    pub fn sessions(&self, sequences: usize, outputs: &[&str]) -> Result<Session> {
        let stepping = self.stepping(outputs).at_caller()?;
        let outputs = vec![Variable::from(ndarray::Array1::<f32>::zeros(0)); outputs.len()];
        Ok(Session {
            stepping,
            id: fresh(),
            sequences,
            begun: None,
            outputs,
            computed: false,
            steps: 0,
            most_steps: u64::MAX,
        })
    }
}

impl Session {
    /// Sets the maximum number of steps after [`begin`](Self::begin); each further step is an error.
    #[must_use]
    pub fn most_steps(self, steps: u64) -> Self {
        Self { most_steps: steps, ..self }
    }

    /// Starts the session again from its beginning, with the feeds that are not fed row by row: whole sequences that the
    /// steps read, and initial values of states. Carried states start from zeros, unless their values are among the feeds. If
    /// a session needs no such feeds, its first step begins the session, without a call of `begin`.
    ///
    /// # Errors
    /// If a feed is missing, unknown or does not fit, or if a feed does not have as many sequences as the session.
    #[track_caller]
    pub fn begin(&mut self, feeds: &[(&str, &Variable)]) -> Result<()> {
        let begun = self.stepping.begin(feeds, self.sequences).at_caller()?;
        self.begun = Some(begun);
        (self.id, self.steps, self.computed) = (fresh(), 0, false);
        Ok(())
    }

    /// Makes a step with one row of each sequence: each feed is a value without LoD that has one row per sequence.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - A feed is missing, unknown or does not fit.
    /// - An operator rejects its data, or an output has a NaN.
    /// - The limit of steps is reached.
    /// - [`begin`](Self::begin) must be called first.
    ///
    /// After an error, the memories of the session are unchanged.
    #[track_caller]
    pub fn step(&mut self, feeds: &[(&str, &Variable)]) -> Result<()> {
        if self.steps >= self.most_steps {
            let expected = format!("at most {}, the limit of this session", self.most_steps);
            let got = format!("another step after {}", self.steps);
            return Err(Error::new("steps of a session", expected, got));
        }
        if self.begun.is_none() {
            self.begin(&[]).at_caller()?;
        }
        let mut engine = self.stepping.take(self.id);
        let ran = self.run(&mut engine, feeds);
        self.stepping.put_back(engine);
        self.steps = self.steps.saturating_add(u64::from(ran.is_ok()));
        ran.at_caller()
    }

    fn run(&mut self, engine: &mut Engine, feeds: &[(&str, &Variable)]) -> Result<()> {
        let Self { stepping, id, sequences, begun, outputs, computed, .. } = self;
        let (program, stepped) = (&stepping.stepped.step, &stepping.stepped);
        let Some(begun) = begun else { return Ok(()) };
        let find = |name: &str| stepping.rows.iter().copied().find(|&id| program.var(id).name == name);
        for (position, (name, _)) in feeds.iter().enumerate() {
            if feeds[..position].iter().any(|(before, _)| before == name) {
                let got = format!("`{name}` twice");
                return Err(Error::of(ErrorKind::Program, "feeds of a step", "each once", got));
            }
            if find(name).is_none() {
                return Err(unknown("feed of a step", name, stepping.names(&stepping.rows).into_iter()));
            }
        }
        for &row in &stepping.rows {
            let name = &program.var(row).name;
            let given = feeds.iter().find(|(given, _)| given == name);
            let Some((_, value)) = given else {
                let expected = format!("`{name}` among them");
                return Err(Error::of(ErrorKind::Program, "feeds of a step", expected, "none of this name"));
            };
            let rows = engine.keep_feed(row, value)?;
            if rows != Some(*sequences) {
                let what = "rows of a feed of a step";
                let expected = format!("{sequences}, one for each sequence");
                return Err(Error::new(what, expected, value.rows().to_string()).variable(name));
            }
        }
        if engine.of != *id {
            engine.of = 0;
            for (&kept, value) in stepped.kept.iter().zip(&begun.kept) {
                engine.keep_feed(kept, value)?;
            }
            engine.of = *id;
        }
        for (memory, value) in stepped.memories.iter().zip(&begun.states) {
            engine.keep_feed(memory.fed, value)?;
        }
        engine.run(*sequences)?;
        *computed = false;
        for (&output, to) in stepped.outputs.iter().zip(&mut *outputs) {
            engine.copy(output, to)?;
        }
        numbers(outputs, &stepping.outputs)?;
        for (memory, to) in stepped.memories.iter().zip(&mut begun.states) {
            engine.copy(memory.left, to)?;
        }
        *computed = true;
        Ok(())
    }

    /// Returns an output of the last step: one row for each sequence of the session.
    ///
    /// # Errors
    /// If `name` is not an output of the session; if no step was made since the session began or was restored; or if an output
    /// of the last step had a NaN.
    #[track_caller]
    pub fn output(&self, name: &str) -> Result<&Variable> {
        let at = self.stepping.outputs.iter().position(|known| known == name);
        let known = self.stepping.outputs.iter().map(String::as_str);
        let at = at.ok_or_else(|| unknown("output of the session", name, known)).at_caller()?;
        match self.computed {
            true => Ok(&self.outputs[at]),
            false => Err(Error::new("output of a session", "a step before the output is read", "none")),
        }
    }

    /// Returns the names of the feeds that [`begin`](Self::begin) needs.
    pub fn begin_feeds(&self) -> Vec<&str> {
        self.stepping.names(&self.stepping.once)
    }

    /// Returns the names of the feeds that each [`step`](Self::step) needs.
    pub fn step_feeds(&self) -> Vec<&str> {
        self.stepping.names(&self.stepping.rows)
    }

    /// Returns the number of steps since the session began.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of sequences of the session.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Returns the memory of the session in bytes. [`MemoryUse::state`] is what each session holds: its memories, constant values
    /// and outputs. `parameters` is what the whole predictor shares. The other parts are the memory of a compiled step, which
    /// only sessions that step at the same time need for themselves.
    ///
    /// # Errors
    /// If the session has not begun: the errors of [`begin`](Self::begin).
    #[track_caller]
    pub fn memory(&mut self) -> Result<MemoryUse> {
        if self.begun.is_none() {
            self.begin(&[]).at_caller()?;
        }
        let memory = |begun| self.stepping.memory(begun, self.sequences);
        self.begun.as_ref().map_or_else(|| Ok(MemoryUse::default()), memory).at_caller()
    }

    /// Serializes the session's memories and constant values to bytes, from which [`Self::restore`] continues, in this process
    /// or in another.
    ///
    /// # Errors
    /// If the session has not begun: the errors of [`begin`](Self::begin).
    #[track_caller]
    pub fn save(&mut self) -> Result<Vec<u8>> {
        if self.begun.is_none() {
            self.begin(&[]).at_caller()?;
        }
        let begun = self.begun.iter();
        let names = |id: VarId| self.stepping.stepped.step.var(id).name.as_str();
        let values = begun.flat_map(|begun| begun.kept.iter().chain(&begun.states));
        feeds_to_bytes(self.steps, self.stepping.fed().map(names).zip(values)).at_caller()
    }

    /// Continues from bytes that [`Self::save`] returned for a session of the same model. The names and the shapes of
    /// the states are checked against the model. Whether the model has the same parameters is not checked.
    ///
    /// # Errors
    /// If the bytes are damaged, or if the model or the number of sequences of the saved session differs from this session. After
    /// an error, the session is unchanged.
    #[track_caller]
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let program = &self.stepping.stepped.step;
        let of_another_model = |name: &str| {
            let (expected, got) = ("a state of this model", "a state of another model");
            Error::of(ErrorKind::Format, "saved state", expected, got).variable(name)
        };
        let (steps, mut values) = feeds_from_bytes(program, bytes).at_caller()?;
        let mut all = Vec::with_capacity(values.len());
        let mut levels: Vec<(LevelId, Arc<Lod>)> = Vec::new();
        for id in self.stepping.fed() {
            let name = &program.var(id).name;
            let value = values.remove(name).ok_or_else(|| of_another_model(name)).at_caller()?;
            let count = value.lod().map_or(value.rows(), |lod| lod.sequences());
            if program.spec(id)?.batched() && count != self.sequences {
                let expected = format!("{}, as the session has", self.sequences);
                let error = Error::new("sequences of a saved state", expected, count.to_string());
                return Err(error.variable(name));
            }
            let mut part = value.lod();
            for &level in program.spec(id)?.lod.iter().rev() {
                let Some(lod) = part else { break };
                match levels.iter().find(|(known, _)| *known == level) {
                    Some((_, known)) if !Lod::same(Some(known), Some(lod)) => {
                        let expected = format!("{known:.8}, as another state has");
                        let (what, got) = ("LoD of a saved state", format!("{lod:.8}"));
                        return Err(Error::of(ErrorKind::Format, what, expected, got).variable(name));
                    }
                    Some(_) => {}
                    None => levels.push((level, lod.clone())),
                }
                part = lod.upper();
            }
            all.push(value);
        }
        if let Some(name) = values.keys().next() {
            return Err(of_another_model(name));
        }
        let states = all.split_off(self.stepping.stepped.kept.len());
        self.begun = Some(StepStart { kept: all.into(), states: states.into() });
        (self.id, self.steps, self.computed) = (fresh(), steps, false);
        Ok(())
    }
}

/// A clone continues from the current state; its later steps do not change the original.
impl Clone for Session {
    fn clone(&self) -> Self {
        Self {
            stepping: self.stepping.clone(),
            id: fresh(),
            begun: self.begun.clone(),
            outputs: self.outputs.clone(),
            ..*self
        }
    }
}
