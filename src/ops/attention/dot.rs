//! `dot_attention`: multi-head scaled dot-product attention of sequences.

use super::parts::{self, Geometry, Queries, Rooms};
use crate::kernels::AttentionResult;
use crate::ops::prelude::*;

/// Options of [`Builder::dot_attention_with`](crate::Builder::dot_attention_with); the default is one head, in which a query
/// attends to every key of the sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DotAttention {
    pub(crate) heads: usize,
    pub(crate) scale: Option<f64>,
    pub(crate) before: Option<usize>,
    pub(crate) after: Option<usize>,
    pub(crate) bias: Option<Var>,
}

impl Default for DotAttention {
    fn default() -> Self {
        Self { heads: 1, scale: None, before: None, after: None, bias: None }
    }
}

impl DotAttention {
    /// Makes options for attention with `heads` heads, in which a query attends to every key of the sequence.
    pub fn heads(heads: usize) -> Self {
        Self { heads, ..Self::default() }
    }

    /// Scale: the factor of each product of a query and a key (default: 1/√d, for heads of d columns).
    #[must_use]
    pub fn scale(self, scale: impl Into<Option<f64>>) -> Self {
        Self { scale: scale.into(), ..self }
    }

    /// Window to the left: a query attends to at most this number of keys before the position of the query (default: all).
    #[must_use]
    pub fn before(self, keys: impl Into<Option<usize>>) -> Self {
        Self { before: keys.into(), ..self }
    }

    /// Window to the right: a query attends to at most this number of keys after the position of the query (default: all).
    #[must_use]
    pub fn after(self, keys: impl Into<Option<usize>>) -> Self {
        Self { after: keys.into(), ..self }
    }

    /// Causal attention: a query attends to no key after the position of the query.
    #[must_use]
    pub fn causal(self) -> Self {
        Self { after: Some(0), ..self }
    }

    /// Window: a query attends to at most this number of keys before its position. The same bound is set for the keys
    /// after its position, unless `causal` or `after` was called before `window`.
    #[must_use]
    pub fn window(self, keys: usize) -> Self {
        Self { before: Some(keys), after: Some(self.after.unwrap_or(keys)), ..self }
    }

    /// Relative position bias: a number for each head and each distance j − i, added to the score of query i and key j
    /// (default: none). The shape of the bias is `[heads, 2r + 1]`, for the distances −r … r; distances below −r use the first
    /// number of the head, and distances above r use the last number. Source: Shaw et al., "Self-attention with
    /// relative position representations" (2018); the paper adds a vector to the key, but this crate, like T5, adds a
    /// number to the score.
    #[must_use]
    pub fn bias(self, bias: Var) -> Self {
        Self { bias: Some(bias), ..self }
    }
}

builder_methods! { Builder, Var;
    /// Scaled dot-product attention: the queries of each sequence of `q` attend to the keys and values of the same sequence, in
    /// one or more heads: out_i = Σ_j softmax_j(scale · q_i · k_j) · v_j.
    ///
    /// Source: Vaswani et al., "Attention is all you need" (2017). Sequences are not padded, and the matrix of all scores is
    /// never stored: in the forward and the backward pass, a thread holds one tile of the scores at a time.
    /// [`dot_attention_with`](Self::dot_attention_with) also returns ln Σ exp of the scores of each query, and its page lists
    /// the shapes of all arguments.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let of = |rows| Variable::sequences(rows, Lod::from_lengths1(&[2, 0, 1])?);
    /// let op = ops::catalogue().parse("dot_attention", &Attributes::new().with("heads", 1usize).with("after", 0usize))?;
    /// let x = of(array![[0.0], [0.0], [5.0]])?;
    /// let out = op.call(&[Operand::batch("q", x.clone()), Operand::batch("k", x), Operand::batch("v", of(array![[1.0], [3.0], [7.0]])?)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 7.0]); // causal: the first row sees itself alone
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`dot_attention_with`](Self::dot_attention_with).
    #[doc(alias = "scaled_dot_product_attention")]
    pub fn dot_attention(&self, q: Var, k: Var, v: Var, options: DotAttention) -> Var {
        self.dot_attention_with(q, k, v, options).0
    }
}

operator! {
    /// Computes multi-head scaled dot-product attention: returns the attended values and, for each query and head, ln Σ exp of
    /// the query's scores.
    ///
    /// With h heads, `q` and `k` are `[rows, h · d]`, and `v` is `[rows, h · e]`; in `q` and `k`, head g has the columns g · d
    /// … (g + 1) · d − 1. For query i and key j of the same sequence, each head computes:
    ///
    /// s_ij = scale · q_i · k_j + bias_{j−i}, for i − before ≤ j ≤ i + after;
    /// log_sum_i = ln Σ_j exp(s_ij); out_i = Σ_j exp(s_ij − log_sum_i) · v_j.
    ///
    /// `k` and `v` have the same number of rows and the same LoD. `q` and `k` have the same number of sequences in the
    /// last level, and the same levels above the last level; the sequences of `q` may have other lengths than the
    /// sequences of `k`. As an alternative, `q` has one row for each sequence of `k`, like the state of a decoder in a
    /// step block: then queries have no positions, so `before`, `after` and the bias are not allowed. The attended
    /// values and the sums ln Σ exp have one row per query and the LoD of `q`; the sums are `[rows, h]`. For a query
    /// that attends to no key, for example in a sequence without keys, the attended values are zeros.
    ///
    /// Each sequence is computed in tiles of 64 queries and 128 keys, so the memory of attention grows with the number of rows,
    /// not with the square of this number. In a tile, a key outside of the window of a query has the weight 0. The weight 0
    /// hides a key only if all numbers of the key's row in `v` are finite, since 0 · ∞ is NaN. An infinite or NaN number in a
    /// row of `v` gives NaN for all queries of the same tile, even for earlier queries in causal attention.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let of = |rows| Variable::sequences(rows, Lod::from_lengths1(&[2, 1])?);
    /// let op = ops::catalogue().parse("dot_attention", &Attributes::new().with("heads", 1usize))?;
    /// // One query per sequence, which sees all keys of the sequence.
    /// let out = op.call(&[
    ///     Operand::batch("q", array![[1.0], [1.0]]),
    ///     Operand::batch("k", of(array![[0.0], [0.0], [2.0]])?),
    ///     Operand::batch("v", of(array![[1.0], [3.0], [7.0]])?),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 7.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [2f64.ln(), 2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the sequences or the widths of `q`, `k` and `v` do not match; if the widths are not multiples
    /// of the number of heads; if the bias is not `[heads, 2r + 1]`; if `before`, `after` or a bias is given and q has
    /// one row per sequence.
    pub(in crate::ops) struct DotAttentionOp = dot_attention {
        heads: usize => some_heads,
        scale: Option<f64> => finite_scale,
        before: Option<usize>,
        after: Option<usize>,
    }
    inputs { Q = q: one, K = k: one, V = v: one, BIAS = bias: optional }
    outputs { OUT = out: one, LOG_SUMS = log_sums: one }
    impl Builder, Var {
        fn dot_attention_with(&self, q: Var, k: Var, v: Var, options: DotAttention) -> (Var, Var) {
            let DotAttention { heads, scale, before, after, bias } = options;
        }
    }
}

fn some_heads(attributes: &Attributes, name: &str) -> Result<usize> {
    match attributes.size(name)? {
        0 => Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "at least 1", "0")),
        heads => Ok(heads),
    }
}

fn finite_scale(attributes: &Attributes, name: &str) -> Result<Option<f64>> {
    match attributes.get(name).map(|_| attributes.float(name)).transpose()? {
        Some(scale) if !scale.is_finite() => Err(Error::of(
            ErrorKind::Program,
            format!("attribute `{name}`"),
            "a finite number",
            scale.to_string(),
        )),
        scale => Ok(scale),
    }
}

impl Op for DotAttentionOp {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::Q))
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let widths = (sizes.input(Self::K).1 / self.heads, sizes.input(Self::V).1 / self.heads);
        let longest = (sizes.longest(Self::Q), sizes.longest(Self::K));
        let bias = if sizes.wants(Self::BIAS) { sizes.input(Self::BIAS) } else { (0, 0) };
        with_float!(sizes.dtype(Self::Q), T => Ok(Rooms::<T>::memory(sizes, longest, widths, bias)))
            .unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::Q)?;
        s.same_dtype(Self::Q, Self::K)?;
        s.same_dtype(Self::Q, Self::V)?;
        s.has_lod(Self::K)?;
        s.same_rows(Self::K, Self::V)?;
        for slot in [Self::Q, Self::K, Self::V] {
            let spec = s.input(slot);
            if spec.shape.len() != 2 || !spec.width().is_multiple_of(self.heads) {
                return Err(
                    s.mismatch(slot, &format!("rows whose width is a multiple of {} heads", self.heads))
                );
            }
        }
        let (q, k, v) = (s.input(Self::Q), s.input(Self::K), s.input(Self::V));
        if q.width() != k.width() {
            return Err(s.mismatch(Self::K, &format!("the width of `q`, {}", q.width())));
        }
        let sequences = k.drop_level(s.top())?;
        let single = q.lod == sequences.lod && q.rows() == sequences.rows();
        let alike = || {
            let own = q.drop_level(s.top())?;
            Ok::<_, Error>(own.lod == sequences.lod && own.rows() == sequences.rows())
        };
        if !single && (q.lod.is_empty() || !alike()?) {
            let expected = format!("one sequence, or one row, for each sequence of `k`; `k` is {k}");
            return Err(s.mismatch(Self::Q, &expected));
        }
        if single && (self.before.is_some() || self.after.is_some() || s.optional(Self::BIAS).is_some()) {
            let expected = "sequences of queries, because `before`, `after` and a bias need positions";
            return Err(s.mismatch(Self::Q, expected));
        }
        if let Some(bias) = s.optional(Self::BIAS) {
            s.same_dtype(Self::Q, Self::BIAS)?;
            let places = bias.shape.get(1).and_then(|extent| extent.known());
            match places.filter(|places| places % 2 == 1) {
                Some(places) => s.constant(Self::BIAS, &[self.heads, places])?,
                None => return Err(s.mismatch(Self::BIAS, &format!("a constant [{}, 2r + 1]", self.heads))),
            }
        }
        s.set(Self::OUT, q.with_width(v.width()));
        s.set(Self::LOG_SUMS, q.with_width(self.heads));
        Ok(())
    }

    float_passes!(Self::Q, T: (self, run) => self.attend::<T>(run), self.descend::<T>(run));

    fn hints(&self) -> Hints {
        Hints { divides_columns: true, multiplies: true, ..Hints::default() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples()
    }
}

impl DotAttentionOp {
    fn geometry(&self, width: usize) -> Geometry {
        let far = usize::MAX;
        let head = (width / self.heads).max(1) as f64;
        Geometry {
            heads: self.heads,
            scale: self.scale.unwrap_or(head.sqrt().recip()),
            before: self.before.unwrap_or(far),
            after: self.after.unwrap_or(far),
        }
    }

    fn attend<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (q, k, v) = (run.input::<T>(Self::Q)?, run.input::<T>(Self::K)?, run.input::<T>(Self::V)?);
        let bias = run.optional::<T>(Self::BIAS)?;
        let (out, log_sums) = (run.output::<T>(Self::OUT)?, run.output::<T>(Self::LOG_SUMS)?);
        let queries = Queries::of(run.lod(Self::Q), run.lod(Self::K), || run.sequences(Self::Q))?;
        let inputs = parts::Inputs {
            geometry: self.geometry(q.width()),
            q,
            k,
            v,
            bias,
            queries,
            keys: run.sequences(Self::K)?,
        };
        let facts = run.run();
        let mut rooms = std::mem::take(run.scratch().get::<Rooms<T>>());
        parts::forward(inputs, out, log_sums, &mut rooms, facts);
        *run.scratch().get::<Rooms<T>>() = rooms;
        Ok(())
    }

    fn descend<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let (q, k, v) = (run.input::<T>(Self::Q)?, run.input::<T>(Self::K)?, run.input::<T>(Self::V)?);
        let bias = run.optional::<T>(Self::BIAS)?;
        let gradients = parts::Gradients {
            q: run.gradient::<T>(Self::Q)?,
            k: run.gradient::<T>(Self::K)?,
            v: run.gradient::<T>(Self::V)?,
        };
        let dbias = run.gradient::<T>(Self::BIAS)?;
        let queries = Queries::of(run.lod(Self::Q), run.lod(Self::K), || run.sequences(Self::Q))?;
        let inputs = parts::Inputs {
            geometry: self.geometry(q.width()),
            q,
            k,
            v,
            bias,
            queries,
            keys: run.sequences(Self::K)?,
        };
        let result = AttentionResult {
            out: run.output::<T>(Self::OUT)?,
            log_sums: run.output::<T>(Self::LOG_SUMS)?,
            dout: run.output_gradient::<T>(Self::OUT)?,
            dlog_sums: run.output_gradient::<T>(Self::LOG_SUMS)?,
        };
        let facts = run.run();
        let mut rooms = std::mem::take(run.scratch().get::<Rooms<T>>());
        parts::backward(inputs, result, gradients, dbias, &mut rooms, facts);
        *run.scratch().get::<Rooms<T>>() = rooms;
        Ok(())
    }
}

/// Makes a check case of attention; the queries and the keys are sequences of the given lengths.
fn sample(
    name: &str,
    options: DotAttentionOp,
    (q, k): (&[Vec<usize>], &[Vec<usize>]),
    bias: Option<usize>,
) -> Result<CheckCase> {
    let width = 2 * options.heads;
    let sequences = |lengths: &[Vec<usize>], width: usize, salt: usize| {
        let lod = Lod::from_lengths(lengths)?;
        Variable::sequences(numbers(lod.rows(), width, salt), lod)
    };
    let heads = options.heads;
    let attributes = options.attributes();
    let sample = CheckCase::new(name, attributes)
        .batch("q", sequences(q, width, 0)?)
        .batch("k", sequences(k, width, 3)?)
        .batch("v", sequences(k, 3 * heads, 5)?);
    Ok(match bias {
        Some(radius) => sample.constant("bias", Variable::dense(numbers(heads, 2 * radius + 1, 7))),
        None => sample,
    })
}

#[cfg(feature = "testing")]
fn samples() -> Result<Vec<CheckCase>> {
    let plain = |heads| DotAttentionOp { heads, scale: None, before: None, after: None };
    let some = [vec![3, 0, 1, 2]];
    let deep = [vec![2, 0, 1], vec![2, 0, 4]];
    let mut samples = vec![
        sample("of a sequence to itself", plain(1), (&some, &some), None)?,
        sample("two heads", plain(2), (&some, &some), None)?,
        sample("causal, two levels", DotAttentionOp { after: Some(0), ..plain(2) }, (&deep, &deep), None)?,
        sample(
            "a window, with a bias",
            DotAttentionOp { before: Some(1), after: Some(1), scale: Some(0.5), heads: 2 },
            (&[vec![5, 0, 2]], &[vec![5, 0, 2]]),
            Some(1),
        )?,
        sample("a bias", plain(1), (&some, &some), Some(2))?,
        sample("to others", plain(2), (&[vec![2, 3, 0, 1]], &[vec![3, 0, 2, 1]]), None)?,
        sample(
            "to others, three levels",
            plain(1),
            (&[vec![1, 1], vec![2, 1], vec![1, 0, 2]], &[vec![1, 1], vec![2, 1], vec![3, 1, 0]]),
            None,
        )?,
        sample("all empty", plain(1), (&[vec![0, 0]], &[vec![0, 0]]), None)?,
        sample("none", plain(1), (&[vec![]], &[vec![]]), None)?,
    ];
    let singles: [(&str, &[Vec<usize>], usize); 3] = [
        ("a query a sequence", &some, 4),
        ("a query a sequence, two levels", &deep, 3),
        ("no query", &[vec![]], 0),
    ];
    for (name, keys, rows) in singles {
        let mut one = sample(name, plain(2), (keys, keys), None)?;
        let lod = Lod::from_lengths(keys)?;
        let q: Array2<f64> = numbers(rows, 4, 2);
        one.operands[0].value = Variable::new(crate::tensor::Dense::from(q), lod.upper().cloned())?;
        samples.push(one);
    }
    Ok(samples)
}
