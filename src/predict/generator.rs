//! Turns a trained model into a generator: each step feeds the last generated tokens to the model's step block.

use std::sync::Arc;

use super::checks::listed;
use super::generate::{Beam, Generation, Hypotheses, Steps, beam, sample};
use super::predictor::Predictor;
use super::sampling::Sampling;
use super::stepping::{Engine, StepStart, Stepping};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::lod::Lod;
use crate::operator::VarId;
use crate::tensor::{DType, Variable, with_element};

/// A generator of token sequences. At each step, a model that was trained to predict the next token gets the last
/// chosen token as its input, and scores the next token. The model itself needs no code for generation.
///
/// The result of a source depends neither on the other sources in the batch nor on the number of threads.
///
/// ```
/// # use unpadded::checkpoint::Checkpoint;
/// # use unpadded::predict::{Beam, Generation, Predictor, Sampling};
/// # use unpadded::{Builder, DType, Variable, executor::Scope, layers::{Embedding, Gru}, ops};
/// # let net = Builder::new();
/// # let source = net.feed("source", DType::I64, &[], 1).embedding(Embedding::new(9, 4));
/// # let start = net.gru_states(source, Gru::new(4)).1;
/// # let words = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(7, 4));
/// # let logits = net.gru_states(words, Gru::new(4).initial(start)).0.linear(7);
/// # let (outputs, program) = ([("logits".to_owned(), net.name_of(logits))], net.finish()?);
/// # let mut checkpoint = Checkpoint::of(program, outputs);
/// # let mut scope = Scope::of(&checkpoint.program)?;
/// # for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
/// #     checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name)?);
/// # }
/// # let predictor = Predictor::new(checkpoint, &ops::catalogue())?;
/// let generator = predictor.generator("words", "logits")?; // `words` are fed back; `logits` score the next word
/// let sources = Variable::from_sequences(&[vec![1i64, 2, 3], vec![4]])?;
/// let options = Generation::new(0).stop(1).max_steps(20);
/// let likeliest = generator.greedy(&[("source", &sources)], &options)?;
/// assert_eq!(likeliest.sources(), 2);
/// let drawn = generator.sample(&[("source", &sources)], &options, Sampling::default().top_p(0.9), 7)?;
/// let searched = generator.beam(&[("source", &sources)], &options, &Beam::new(4).n_best(2))?;
/// assert!(searched.hypotheses(0)?.len() <= 2 && drawn.sources() == 2);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator {
    predictor: Predictor,
    stepping: Arc<Stepping>,
    tokens: VarId,
    classes: usize,
}

impl Predictor {
    /// Makes a generator. `tokens` is the feed of the tokens so far: i64, one token per row, one LoD level. `logits` is the
    /// output that has, for each row, the scores of the next token; its dtype is f32.
    ///
    /// # Errors
    /// As [`Self::session`]. Also if the feed `tokens` or the output `logits` does not have this dtype and shape, or if each
    /// step of the model needs a feed other than `tokens`.
    #[track_caller]
    pub fn generator(&self, tokens: &str, logits: &str) -> Result<Generator> {
        Generator::of(self, tokens, &[logits]).at_caller()
    }
}

impl Generator {
    fn of(predictor: &Predictor, tokens: &str, outputs: &[&str]) -> Result<Self> {
        let stepping = predictor.stepping(outputs)?;
        let program = &stepping.stepped.step;
        let rows = stepping.names(&stepping.rows);
        let &[fed] = &stepping.rows[..] else {
            let expected = format!("only `{tokens}`");
            return Err(Error::of(ErrorKind::Program, "feeds of a step", expected, listed(rows.into_iter())));
        };
        if rows != [tokens] {
            let what = "feed of the tokens";
            return Err(Error::of(ErrorKind::Program, what, listed(rows.into_iter()), format!("`{tokens}`")));
        }
        let spec = program.spec(fed)?;
        if spec.dtype != DType::I64 || spec.shape.len() != 1 {
            let error = Error::new("feed of the tokens", "one i64 per row", spec.to_string());
            return Err(error.variable(tokens));
        }
        let scores = program.spec(stepping.stepped.outputs[0])?;
        if scores.dtype != DType::F32 || scores.shape.len() != 2 || !scores.lod.is_empty() {
            let error = Error::new("logits of a generator", "a row of f32 at each step", scores.to_string());
            return Err(error.variable(outputs[0]));
        }
        let classes = scores.width();
        Ok(Self { predictor: predictor.clone(), tokens: fed, classes, stepping })
    }

    /// Sets the attention output: at each step, this output has one weight (f32) for each row of the source. The
    /// [coverage penalty](Beam::coverage) of beam search requires an attention output.
    ///
    /// # Errors
    /// If the output is unknown, or does not have this dtype and shape.
    #[track_caller]
    pub fn attention(self, output: &str) -> Result<Self> {
        let tokens = self.stepping.names(&self.stepping.rows).join("");
        let logits = self.stepping.outputs[0].clone();
        let with = Self::of(&self.predictor, &tokens, &[&logits, output]).at_caller()?;
        let spec = with.stepping.stepped.step.spec(with.stepping.stepped.outputs[1])?;
        if spec.dtype != DType::F32 || spec.lod.len() != 1 {
            let error =
                Error::new("attention of a generator", "f32 for each row of the source", spec.to_string());
            return Err(error.variable(output).at_caller());
        }
        Ok(with)
    }

    /// Returns the names of the feeds of the source; empty for a model that needs only the tokens, such as a language model.
    pub fn feeds(&self) -> Vec<&str> {
        self.stepping.names(&self.stepping.once)
    }

    /// Returns the number of tokens that the model scores.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Greedy decoding: takes the likeliest token at each step; of equally likely tokens, it takes the first. The number of
    /// sources is the number of sequences in the feeds. Without feeds, it is the number of prefixes in the options, or 1.
    ///
    /// # Errors
    /// If a feed is missing or does not fit, an option is invalid, or a score is NaN or positive infinity.
    #[track_caller]
    pub fn greedy(&self, feeds: &[(&str, &Variable)], options: &Generation) -> Result<Hypotheses> {
        let likeliest = Sampling { temperature: 0.0, ..Sampling::default() };
        self.sample(feeds, options, likeliest, 0).at_caller()
    }

    /// Sampling: draws each token at random from the model's distribution. A random draw depends on the seed, the
    /// [index](Generation::first) of the source, and the step.
    ///
    /// # Errors
    /// As [`Self::greedy`].
    #[track_caller]
    pub fn sample(
        &self,
        feeds: &[(&str, &Variable)],
        options: &Generation,
        sampling: Sampling,
        seed: u64,
    ) -> Result<Hypotheses> {
        let threads = self.predictor.started().at_caller()?;
        let mut model = ModelSteps::new(self, feeds, options).at_caller()?;
        let sources = model.sources;
        let numbers: Vec<u64> = (0..sources as u64).map(|i| options.first.wrapping_add(i)).collect();
        let found = sample(&mut model, sources, &numbers, options, sampling, seed, threads);
        model.end();
        found.at_caller()
    }

    /// Beam search: returns the hypotheses with the best scores that the [beam](Beam) finds.
    ///
    /// # Errors
    /// As [`Self::greedy`], and if there is a coverage penalty without [`Self::attention`].
    #[track_caller]
    pub fn beam(
        &self,
        feeds: &[(&str, &Variable)],
        options: &Generation,
        search: &Beam,
    ) -> Result<Hypotheses> {
        let threads = self.predictor.started().at_caller()?;
        let mut model = ModelSteps::new(self, feeds, options).at_caller()?;
        let sources = model.sources;
        let found = beam(&mut model, sources, options, search, threads);
        model.end();
        found.at_caller()
    }
}

/// A model that runs step by step for a generation: the state of the model has one row for each hypothesis.
struct ModelSteps<'a> {
    generator: &'a Generator,
    engine: Option<Engine>,
    sources: usize,
    /// The values that are computed for each source before the first step.
    begun: StepStart,
    /// For each row of the state, the index of its source; `None` before the first step.
    rows: Option<Vec<usize>>,
    states: Vec<Variable>,
    logits: Vec<f32>,
    attention: Option<(Vec<f32>, Vec<usize>)>,
}

impl<'a> ModelSteps<'a> {
    #[track_caller]
    fn new(generator: &'a Generator, feeds: &[(&str, &Variable)], options: &Generation) -> Result<Self> {
        let stepping = &generator.stepping;
        let batched = |&&(name, _): &&(&str, &Variable)| {
            let before = &stepping.stepped.before;
            before.find(name).is_some_and(|id| before.spec(id).is_ok_and(crate::operator::Spec::batched))
        };
        let of_feeds = feeds.iter().find(batched).map(|(_, value)| value.batch_size());
        let sources = of_feeds.or(options.sources()).unwrap_or(1);
        let begun = stepping.begin(feeds, sources)?;
        let mut engine = stepping.take(0);
        engine.of = 0;
        Ok(Self {
            generator,
            engine: Some(engine),
            sources,
            begun,
            rows: None,
            states: Vec::new(),
            logits: Vec::new(),
            attention: None,
        })
    }

    fn end(&mut self) {
        if let Some(engine) = self.engine.take() {
            self.generator.stepping.put_back(engine);
        }
    }
}

impl Steps for ModelSteps<'_> {
    fn classes(&self) -> usize {
        self.generator.classes
    }

    fn advance(&mut self, parents: &[usize], tokens: &[i64]) -> Result<()> {
        let Self { generator, engine, begun, rows, states, logits, attention, .. } = self;
        let Generator { stepping, tokens: fed, .. } = generator;
        let Some(engine) = engine else { return Ok(()) };
        let stepped = &stepping.stepped;
        let origins: Vec<usize> = match rows {
            None => parents.to_vec(),
            Some(rows) => parents.iter().map(|&parent| rows[parent]).collect(),
        };
        if states.is_empty() {
            states.extend_from_slice(&begun.states);
        }
        for (memory, state) in stepped.memories.iter().zip(&mut *states) {
            let next = match rows {
                None => select(state, parents)?,
                Some(_) => gathered(engine, memory.left, state, parents)?,
            };
            engine.keep_feed(memory.fed, &next)?;
            *state = next;
        }
        if rows.as_ref() != Some(&origins) {
            for (&kept, value) in stepped.kept.iter().zip(&begun.kept) {
                let batched = stepped.step.spec(kept)?.batched();
                match batched {
                    true => engine.keep_feed(kept, &select(value, &origins)?)?,
                    false => engine.keep_feed(kept, value)?,
                };
            }
            *rows = Some(origins);
        }
        engine.keep_feed(*fed, &Variable::from(ndarray::Array1::from(tokens.to_vec())))?;
        engine.run(tokens.len())?;
        engine.numbers::<f32, _>(stepped.outputs[0], |scores| {
            logits.clear();
            logits.extend_from_slice(scores);
        })?;
        if let Some(&output) = stepped.outputs.get(1) {
            let weights = engine.fetch(output)?;
            let width = weights.as_slice::<f32>()?.len() / weights.rows().max(1);
            let mean = |row: &[f32]| row.iter().sum::<f32>() / width as f32;
            let means = weights.as_slice::<f32>()?.chunks_exact(width.max(1)).map(mean).collect();
            let offsets = weights.lod().map_or_else(Vec::new, |lod| lod.offsets().to_vec());
            *attention = Some((means, offsets));
        }
        Ok(())
    }

    fn logits(&self) -> Result<&[f32]> {
        Ok(&self.logits)
    }

    fn attention(&self) -> Result<Option<(&[f32], &[usize])>> {
        Ok(self.attention.as_ref().map(|(weights, offsets)| (&weights[..], &offsets[..])))
    }
}

/// Returns the rows of the variable `left` at the indices `rows`, in this order, after the last step. An index may
/// occur several times.
fn gathered(engine: &mut Engine, left: VarId, like: &Variable, rows: &[usize]) -> Result<Variable> {
    let mut shape = like.shape().to_vec();
    let width: usize = shape.iter().skip(1).product();
    shape[0] = rows.len();
    with_element!(like.dtype(), T => {
        let numbers = engine.numbers::<T, Vec<T>>(left, |from| {
            let mut to = Vec::with_capacity(rows.len() * width);
            rows.iter().for_each(|row| to.extend_from_slice(&from[row * width..(row + 1) * width]));
            to
        })?;
        Ok(Variable::dense(crate::tensor::Dense::from_vec(&shape, numbers)?))
    })
}

/// Returns a variable with the sequences at the indices `sequences`, in this order; an index may occur several times.
fn select(value: &Variable, sequences: &[usize]) -> Result<Variable> {
    let mut entries = sequences.to_vec();
    let mut levels = Vec::new();
    if let Some(lod) = value.lod() {
        for k in 0..lod.levels() {
            let offsets = lod.level(k)?;
            let mut ends = vec![0];
            let mut below = Vec::new();
            for &entry in &entries {
                below.extend(offsets[entry]..offsets[entry + 1]);
                ends.push(below.len());
            }
            entries = below;
            levels.push(ends);
        }
    }
    let rows = value.storage().as_dense()?.gather_rows(&entries)?;
    Variable::new(rows, if levels.is_empty() { None } else { Some(Lod::new(levels)?) })
}
