//! `additive_attention`: attention with one query per sequence; a one-layer perceptron computes the scores.

use crate::kernels::{
    Additive, AdditiveGradients, AdditiveResult, additive_attention, additive_attention_backward,
};
use crate::ops::prelude::*;

builder_methods! { Builder, Var;
    /// Additive attention: one query per sequence attends to the rows of the sequence: Σ_j softmax_j(v · tanh(query + key_j))
    /// · value_j.
    ///
    /// [`additive_attention_with`](Self::additive_attention_with) also returns the weights, and its page lists the shapes of
    /// all arguments.
    ///
    /// ```
    /// use unpadded::layers::Linear;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let source = net.feed("source", DType::F32, &[6], 1); // an encoder's states
    /// let target = net.feed("target", DType::F32, &[3], 1);
    /// let v = net.parameter("v", DType::F32, &[4], unpadded::layers::init::uniform(-0.1, 0.1));
    /// let states = net.recurrent(target, |step, x| {
    ///     let h = step.memory(5);
    ///     // The keys are computed once, before the loop; their gradient is computed after the loop.
    ///     let context = h.linear(4).additive_attention(source.linear(4), source, v);
    ///     step.update(h, (step.concat(&[x, context]).linear(5) + h.linear(5)).tanh());
    ///     h
    /// });
    /// assert_eq!(net.spec(states).map(|spec| spec.width()), Some(5));
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`additive_attention_with`](Self::additive_attention_with).
    #[doc(alias = "bahdanau")]
    pub fn additive_attention(&self, query: Var, keys: Var, values: Var, v: Var) -> Var {
        self.additive_attention_with(query, keys, values, v).0
    }

    /// Computes additive attention, and also returns the weight of each key: one number per row of `keys`, with the LoD of
    /// `keys`.
    ///
    /// The shapes: `query` is `[rows, a]`, with one row for each sequence of `keys`, like the state of a decoder in a step
    /// block; `keys` is `[rows, a]`; `values` has the number of rows and the LoD of `keys`; `v` is a constant `[a]`, or
    /// `[rows, a]` with one row per query. For sequence i of `keys`, and each key j of sequence i:
    ///
    /// s_j = Σ_c v_c · tanh(query_ic + key_jc); weight_j = exp(s_j) / Σ_k exp(s_k); out_i = Σ_j weight_j · value_j.
    ///
    /// Source: Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (2015); in
    /// this paper, the keys are a linear function of the encoder's states, and the query is a linear function of the decoder's
    /// state. For a sequence without keys, the output row is zeros.
    ///
    /// A constant `v` is first expanded to one row per query, by [`fill_like`](Self::fill_like) and `add`. So the backward pass
    /// computes one row of v's gradient per query, and the sequences in a step block stay independent.
    ///
    /// # Errors
    /// It is an error if `keys` has no LoD; if the numbers of rows or the widths do not match; if the dtypes differ or
    /// are not floats.
    pub fn additive_attention_with(&self, query: Var, keys: Var, values: Var, v: Var) -> (Var, Var) {
        let rows = self.spec(v).is_some_and(|spec| spec.batched());
        let v = if rows { v } else { self.add(self.fill_like(query, 0.0), v) };
        self.additive_attention_of_rows(query, keys, values, v)
    }
}

operator! {
    /// Additive attention with one row of `v` per query: see
    /// [`additive_attention_with`](crate::Builder::additive_attention_with).
    ///
    /// For row i of `query` and of `v`, and the keys j of sequence i of `keys`: s_j = Σ_c v_ic · tanh(query_ic + key_jc);
    /// weight_j = exp(s_j) / Σ_k exp(s_k); out_i = Σ_j weight_j · value_j.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let of = |rows| Variable::sequences(rows, Lod::from_lengths1(&[2, 0, 1])?);
    /// let op = ops::catalogue().parse("additive_attention", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("query", array![[1.0], [0.0], [0.5]]),
    ///     Operand::batch("keys", of(array![[0.5], [0.5], [-3.0]])?),
    ///     Operand::batch("values", of(array![[1.0], [3.0], [7.0]])?),
    ///     Operand::batch("v", array![[2.0], [2.0], [2.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 0.0, 7.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [0.5, 0.5, 1.0]);
    /// assert_eq!(out[1].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `keys` has no LoD; if `query` and `v` do not have one row for each sequence of `keys`; if the widths
    /// or the dtypes do not match.
    pub(in crate::ops) struct AdditiveAttention = additive_attention {}
    inputs { QUERY = query: one, KEYS = keys: one, VALUES = values: one, V = v: one }
    outputs { OUT = out: one, WEIGHTS = weights: one }
    impl Builder, Var {
        fn additive_attention_of_rows(&self, query: Var, keys: Var, values: Var, v: Var) -> (Var, Var);
    }
}

impl Op for AdditiveAttention {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::KEYS))
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        match sizes.pass() {
            Pass::Backward => {
                with_float!(sizes.dtype(Self::KEYS), T => Ok(memory::<T>(sizes))).unwrap_or_default()
            }
            Pass::Forward => CallMemory::default(),
        }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::QUERY)?;
        for slot in [Self::KEYS, Self::VALUES, Self::V] {
            s.same_dtype(Self::QUERY, slot)?;
        }
        s.has_lod(Self::KEYS)?;
        s.same_rows(Self::KEYS, Self::VALUES)?;
        for slot in [Self::QUERY, Self::KEYS, Self::VALUES, Self::V] {
            if s.input(slot).shape.len() != 2 {
                return Err(s.mismatch(slot, "rows of numbers"));
            }
        }
        let (query, keys, values) = (s.input(Self::QUERY), s.input(Self::KEYS), s.input(Self::VALUES));
        for slot in [Self::QUERY, Self::V] {
            s.row_for_each_sequence(slot, Self::KEYS)?;
            if s.input(slot).width() != keys.width() {
                return Err(s.mismatch(slot, &format!("the width of `keys`, {}", keys.width())));
            }
        }
        s.set(Self::OUT, query.with_width(values.width()));
        s.set(Self::WEIGHTS, keys.with_width(1));
        Ok(())
    }

    float_passes!(Self::QUERY, T: (self, run) => forward::<T>(run), backward::<T>(run));

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        let inputs = Gradient::reads_nothing().input(Self::QUERY).input(Self::KEYS);
        inputs.input(Self::VALUES).input(Self::V).output(Self::WEIGHTS)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |sample: CheckCase, lod: Arc<Lod>, widths: [usize; 2]| -> Result<CheckCase> {
            let rows = |salt| {
                let rows = Dense::from(numbers(lod.last_len(), widths[0], salt));
                Variable::new(rows, lod.upper().cloned())
            };
            let keys = |width, salt| Variable::sequences(numbers(lod.rows(), width, salt), lod.clone());
            Ok(sample
                .batch("query", rows(0)?)
                .batch("keys", keys(widths[0], 3)?)
                .batch("values", keys(widths[1], 5)?)
                .batch("v", rows(7)?))
        };
        let mut samples =
            CheckCase::of_sequences(&Attributes::new(), |empty, lod| sample(empty, lod, [3, 2]))?;
        // This check case has more columns than the kernel computes at once.
        let wide = CheckCase::new("wide", Attributes::new());
        samples.push(sample(wide, Lod::from_lengths1(&[2, 0, 1])?, [33, 34])?);
        Ok(samples)
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    type Slots = AdditiveAttention;
    let inputs = Additive {
        query: run.input::<T>(Slots::QUERY)?,
        columns: run.input::<T>(Slots::V)?,
        keys: run.input::<T>(Slots::KEYS)?,
        values: run.input::<T>(Slots::VALUES)?,
        offsets: run.sequences(Slots::KEYS)?.offsets(),
    };
    let (weights, out) = (run.output::<T>(Slots::WEIGHTS)?, run.output::<T>(Slots::OUT)?);
    additive_attention(inputs, weights, out);
    Ok(())
}

/// Scratch memory of a call: one number per key of the longest sequence.
struct Scratch<T>(Vec<T>);

fn memory<T: RowValue>(sizes: &CallSizes<'_>) -> CallMemory {
    let room = sizes.longest(AdditiveAttention::KEYS).saturating_mul(size_of::<T>());
    CallMemory::default().scratch::<Scratch<T>>(sizes.threads().saturating_mul(room))
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    type Slots = AdditiveAttention;
    let gradients = AdditiveGradients {
        query: run.gradient::<T>(Slots::QUERY)?,
        columns: run.gradient::<T>(Slots::V)?,
        keys: run.gradient::<T>(Slots::KEYS)?,
        values: run.gradient::<T>(Slots::VALUES)?,
    };
    let result = AdditiveResult {
        weights: run.output::<T>(Slots::WEIGHTS)?,
        dout: run.output_gradient::<T>(Slots::OUT)?,
        dweights: run.output_gradient::<T>(Slots::WEIGHTS)?,
    };
    let inputs = Additive {
        query: run.input::<T>(Slots::QUERY)?,
        columns: run.input::<T>(Slots::V)?,
        keys: run.input::<T>(Slots::KEYS)?,
        values: run.input::<T>(Slots::VALUES)?,
        offsets: run.sequences(Slots::KEYS)?.offsets(),
    };
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    additive_attention_backward(inputs, result, gradients, &mut room.0);
    *run.scratch().get::<Scratch<T>>() = room;
    Ok(())
}
