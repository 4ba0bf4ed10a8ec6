//! Initialisers, which compute the first value of a persistable variable.
//!
//! The first value of a variable depends only on the program's seed, the variable's name and its shape. As a consequence, adding
//! a parameter to a program does not change the first value of another parameter.
//!
//! | kind | attributes | numbers |
//! |---|---|---|
//! | `zeros` | | 0 |
//! | `constant` | `value` | all `value` |
//! | `uniform` | `low`, `high` | uniform in low..high |
//! | `normal` | `std` | normal around 0 |
//! | `xavier_uniform` | `gain` = 1, `blocks` = 1 | uniform in ±gain·√(6 / (in + out)) |
//! | `orthogonal` | `gain` = 1, `blocks` = 1 | orthonormal columns (orthonormal rows if there are fewer rows than columns), times `gain` |
//! | `lstm_bias` | `forget` | `[4H]`: `forget` for the forget gate, 0 for the other gates |
//! | `gate_biases` | `values` | `[GH]`: all H numbers of a gate are the value of that gate in `values` |
//! | `chrono` | `t_max` | `[4H]`: ln u for the forget gate, −ln u for the input gate, where each of the H numbers has its own u, uniform in 1..`t_max` − 1; 0 for the other gates |
//! | `embedding` | `std`, `padding` (none) | normal around 0; the row `padding` is 0 |
//!
//! Row-sparse parameters ([`Builder::row_sparse_parameter`](crate::Builder::row_sparse_parameter)) accept only `zeros`,
//! `constant`, `uniform`, `normal` and `embedding`, which compute each row from its index, independently of other rows.
//!
//! The weights of a cell have the shape `[in, blocks·out]`: `blocks` matrices side by side, one per gate. Each matrix is
//! initialised separately.

use super::var_desc::{Initializer, VarDesc};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::random::philox;
use crate::operator::attributes::Attributes;
use crate::operator::table::{RowNumbers, RowStart};
use crate::tensor::{DType, Dense, Element, Number, with_element};

pub(crate) const ZEROS: &str = "zeros";
pub(crate) const CONSTANT: &str = "constant";
pub(crate) const UNIFORM: &str = "uniform";
pub(crate) const NORMAL: &str = "normal";
pub(crate) const XAVIER_UNIFORM: &str = "xavier_uniform";
pub(crate) const ORTHOGONAL: &str = "orthogonal";
pub(crate) const LSTM_BIAS: &str = "lstm_bias";
pub(crate) const GATE_BIASES: &str = "gate_biases";
pub(crate) const CHRONO: &str = "chrono";
pub(crate) const EMBEDDING: &str = "embedding";

/// Returns the initialiser that sets every number to `value`.
pub(crate) fn constant(value: f64) -> Initializer {
    match value == 0.0 {
        true => Initializer::new(ZEROS, Attributes::new()),
        false => Initializer::new(CONSTANT, Attributes::new().with("value", value)),
    }
}

/// A function that parses an initialiser: it reads the attributes, for a variable of the given shape.
type Reading = fn(&Attributes, &[usize]) -> Result<Start>;

/// The kinds of initialisers, each with the function that parses it.
const INITIALIZERS: [(&str, Reading); 10] = [
    (ZEROS, |_, _| Ok(Start::Zeros)),
    (CONSTANT, |given, _| number(given, "value").map(Start::Constant)),
    (UNIFORM, |given, _| range(given).map(|(low, high)| Start::Uniform { low, high })),
    (NORMAL, |given, _| deviation(given).map(|std| Start::Normal { std })),
    (XAVIER_UNIFORM, |given, dims| gates(given, dims).map(Start::XavierUniform)),
    (ORTHOGONAL, |given, dims| gates(given, dims).map(Start::Orthogonal)),
    (LSTM_BIAS, |given, dims| {
        Ok(Start::LstmBias { forget: number(given, "forget")?, width: gate_width(dims)? })
    }),
    (GATE_BIASES, |given, dims| gate_values(given, dims).map(Start::GateBiases)),
    (CHRONO, |given, dims| Ok(Start::Chrono { longest: longest(given)?, width: gate_width(dims)? })),
    (EMBEDDING, |given, _| Ok(Start::Embedding { std: deviation(given)?, padding: padding(given)? })),
];

/// A parsed initialiser: its kind with the values of its attributes.
enum Start {
    Zeros,
    Constant(f64),
    Uniform {
        low: f64,
        high: f64,
    },
    Normal {
        std: f64,
    },
    XavierUniform(Gates),
    Orthogonal(Gates),
    /// The bias of an LSTM: `forget` for the forget gate, 0 for the other gates, and `width` numbers per gate.
    LstmBias {
        forget: f64,
        width: usize,
    },
    /// The bias of a cell with gates: one value per gate.
    GateBiases(Vec<f64>),
    /// Chrono initialisation of an LSTM's bias: `longest` is the longest time span in steps, and each gate has `width` numbers.
    Chrono {
        longest: f64,
        width: usize,
    },
    Embedding {
        std: f64,
        padding: Option<usize>,
    },
}

impl Start {
    fn read(initializer: &Initializer, dims: &[usize]) -> Result<Self> {
        let found = INITIALIZERS.iter().find(|(name, _)| *name == initializer.kind);
        let Some((_, read)) = found else {
            let names = INITIALIZERS.map(|(name, _)| name);
            let known = names
                .split_last()
                .map_or_else(String::new, |(last, others)| format!("{} or {last}", others.join(", ")));
            let got = format!("`{}`", initializer.kind);
            return Err(Error::of(ErrorKind::Program, "initialiser", known, got));
        };
        read(&initializer.attributes, dims)
    }

    /// Writes the first values into `out`, which must hold zeros, for an initialiser that [`Self::draw`] does not support.
    fn fill(&self, random: &mut Random, out: &mut [f64]) {
        match self {
            Start::Orthogonal(gates) => gates.orthogonal(random, out),
            Start::LstmBias { forget, width } => out[*width..2 * width].fill(*forget),
            Start::GateBiases(values) => {
                let width = out.len() / values.len();
                if width > 0 {
                    out.chunks_exact_mut(width).zip(values).for_each(|(gate, &value)| gate.fill(value));
                }
            }
            Start::Chrono { longest, width } => {
                let (input, forget) = out[..2 * width].split_at_mut(*width);
                random.fill_uniform(1.0, longest - 1.0, forget);
                input.iter_mut().zip(forget).for_each(|(input, forget)| {
                    *forget = forget.ln();
                    *input = -*forget;
                });
            }
            _ => {}
        }
    }

    /// Returns whether [`Self::draw`] supports this initialiser. `draw` computes the values in order, from first to last.
    fn is_drawn(&self) -> bool {
        use Start::{Constant, Embedding, Normal, Uniform, XavierUniform};
        matches!(self, Constant(_) | Uniform { .. } | Normal { .. } | XavierUniform(_) | Embedding { .. })
    }

    /// Writes the next values into `out`. In every call except the last, `out` must have an even length.
    fn draw(&self, random: &mut Random, out: &mut [f64]) {
        match self {
            Start::Constant(value) => out.fill(*value),
            Start::Uniform { low, high } => random.fill_uniform(*low, *high, out),
            Start::Normal { std } | Start::Embedding { std, .. } => random.fill_normal(*std, out),
            Start::XavierUniform(gates) => {
                let bound = gates.gain * (6.0 / (gates.rows as f64 + gates.columns as f64)).sqrt();
                random.fill_uniform(-bound, bound, out);
            }
            _ => {}
        }
    }

    /// Sets the row `padding` of an embedding to zero.
    fn pad<T: Copy + Default>(&self, dims: &[usize], out: &mut [T]) {
        let width = out.len().checked_div(dims.first().copied().unwrap_or(0)).unwrap_or(0);
        if let (Start::Embedding { padding: Some(row), .. }, 1..) = (self, width)
            && let Some(row) = out.chunks_exact_mut(width).nth(*row)
        {
            row.fill(T::default());
        }
    }
}

/// Checks that an initialiser fits a variable of the shape `dims`, without computing the first values.
///
/// # Errors
/// Fails if the initialiser is unknown, if its attributes are wrong, or if the shape does not fit it.
pub(crate) fn check(initializer: &Initializer, dims: &[usize]) -> Result<()> {
    Start::read(initializer, dims).map(drop)
}

/// Computes the first value of the variable `name` by an initialiser.
///
/// # Errors
/// Fails if the initialiser is unknown, if its attributes are wrong, if the shape does not fit it, or if memory is short.
#[track_caller]
pub fn evaluate(
    initializer: &Initializer,
    dims: &[usize],
    dtype: DType,
    seed: u64,
    name: &str,
) -> Result<Dense> {
    let mut dense = Dense::zeros(dtype, dims).map_err(|e| e.variable(name)).at_caller()?;
    with_element!(dtype, T => evaluate_in(initializer, dims, seed, name, dense.as_mut_slice::<T>()?))
        .at_caller()?;
    Ok(dense)
}

/// Writes the first value of the variable `name` into `out`, as [`evaluate`] computes it.
pub(crate) fn evaluate_in<T: Element>(
    initializer: &Initializer,
    dims: &[usize],
    seed: u64,
    name: &str,
    out: &mut [T],
) -> Result<()> {
    let start = Start::read(initializer, dims).map_err(|e| e.variable(name))?;
    let mut random = Random::new(seed, name);
    let number = |x: f64| T::from_number(Number::Float(x));
    if start.is_drawn() {
        // The loop writes parts of 4096 numbers: all numbers at once in f64 would take twice the memory of an f32 variable.
        const PART: usize = 4096;
        let mut numbers = vec![0.0; PART.min(out.len())];
        for out in out.chunks_mut(PART) {
            let numbers = &mut numbers[..out.len()];
            start.draw(&mut random, numbers);
            out.iter_mut().zip(numbers).for_each(|(out, x)| *out = number(*x));
        }
        start.pad(dims, out);
        return Ok(());
    }
    out.fill(T::default());
    if !matches!(start, Start::Zeros) {
        let mut numbers = Dense::zeros(DType::F64, dims).map_err(|e| e.variable(name))?;
        start.fill(&mut random, numbers.as_mut_slice::<f64>()?);
        out.iter_mut().zip(numbers.as_slice::<f64>()?).for_each(|(out, x)| *out = number(*x));
    }
    Ok(())
}

/// Returns the first values of the row-sparse variable `name`; each row is computed from its index alone. The values have the
/// same distribution as the values of [`evaluate`], but come from other random draws.
///
/// # Errors
/// Fails if the initialiser is unknown, if its attributes are wrong, or if it computes a row from other rows or from the whole
/// shape.
pub(crate) fn rows(initializer: &Initializer, dims: &[usize], seed: u64, name: &str) -> Result<RowStart> {
    let fill = |start: Start| {
        let numbers = match start {
            Start::Zeros => RowNumbers::Zeros,
            Start::Constant(value) => RowNumbers::Constant(value),
            Start::Uniform { low, high } => RowNumbers::Uniform { low, high },
            Start::Normal { std } => RowNumbers::Normal { std, padding: None },
            Start::Embedding { std, padding } => {
                RowNumbers::Normal { std, padding: padding.and_then(|row| i64::try_from(row).ok()) }
            }
            Start::XavierUniform(_) => return Err(whole(initializer, "its range follows from the height")),
            Start::Orthogonal(_) => return Err(whole(initializer, "its rows depend on each other")),
            Start::LstmBias { .. } | Start::GateBiases(_) | Start::Chrono { .. } => {
                return Err(whole(initializer, "it is for the bias of a cell"));
            }
        };
        Ok(RowStart::new(numbers, seed, hash(name)))
    };
    Start::read(initializer, dims).and_then(fill).map_err(|e| e.variable(name))
}

/// Returns the first values of the rows of a row-sparse variable, for a program with this seed.
///
/// # Errors
/// Fails if [`rows`] fails.
pub(crate) fn start_of(var: &VarDesc, dims: &[usize], seed: u64) -> Result<RowStart> {
    match &var.initializer {
        Some(how) => rows(how, dims, seed, &var.name),
        None => Ok(RowStart::zeros()),
    }
}

/// Returns the error that a row-sparse variable cannot have this initialiser.
fn whole(initializer: &Initializer, reason: &str) -> Error {
    let expected = format!(
        "{ZEROS}, {CONSTANT}, {UNIFORM}, {NORMAL} or {EMBEDDING}, which initialise each row on its own"
    );
    let got = format!("`{}`: {reason}", initializer.kind);
    Error::of(ErrorKind::Program, "initialiser of a row-sparse variable", expected, got)
}

/// Reads a number from the attributes. Infinities are accepted, because masks need them; NaN is an error.
fn number(given: &Attributes, name: &str) -> Result<f64> {
    let value = given.float(name)?;
    if value.is_nan() {
        let what = format!("attribute `{name}`");
        return Err(Error::of(ErrorKind::Program, what, "a number", value.to_string()));
    }
    Ok(value)
}

/// Reads the standard deviation `std` from the attributes of an initialiser.
fn deviation(given: &Attributes) -> Result<f64> {
    let std = given.float("std")?;
    if std >= 0.0 && std.is_finite() {
        return Ok(std);
    }
    Err(Error::of(ErrorKind::Program, "attribute `std`", "a number from 0", std.to_string()))
}

/// Reads the index of an embedding's padding row from the attributes; `None` if there is no padding row.
fn padding(given: &Attributes) -> Result<Option<usize>> {
    if given.get("padding").is_some() { given.size("padding").map(Some) } else { Ok(None) }
}

/// Returns the number of values per gate in the bias of an LSTM.
fn gate_width(dims: &[usize]) -> Result<usize> {
    match dims {
        [width] if width % 4 == 0 => Ok(width / 4),
        _ => Err(Error::new("shape", "[4H], the gates i, f, g, o", format!("{dims:?}"))),
    }
}

/// Reads the longest time span of a chrono initialisation, in steps, from the attributes.
fn longest(given: &Attributes) -> Result<f64> {
    match given.size("t_max")? {
        steps @ 2.. => Ok(steps as f64),
        few => Err(Error::of(ErrorKind::Program, "attribute `t_max`", "at least 2 steps", few.to_string())),
    }
}

/// Reads the first value of each gate of a bias from the attributes; a bias has at least one gate.
fn gate_values(given: &Attributes, dims: &[usize]) -> Result<Vec<f64>> {
    let values = given.floats("values")?;
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        let got = if values.is_empty() { "none".to_owned() } else { format!("{values:?}") };
        let expected = "a number for each gate";
        return Err(Error::of(ErrorKind::Program, "attribute `values`", expected, got));
    }
    match dims {
        [width] if width % values.len() == 0 => Ok(values),
        _ => {
            let expected = format!("[GH], the same number of values for each of {} gates", values.len());
            Err(Error::new("shape", expected, format!("{dims:?}")))
        }
    }
}

fn range(given: &Attributes) -> Result<(f64, f64)> {
    let (low, high) = (given.float("low")?, given.float("high")?);
    if low <= high && (high - low).is_finite() {
        return Ok((low, high));
    }
    Err(Error::of(
        ErrorKind::Program,
        "attributes `low` and `high`",
        "low <= high, both finite",
        format!("{low}, {high}"),
    ))
}

/// A weight that consists of `blocks` matrices side by side, each of `rows` × `columns` numbers.
struct Gates {
    rows: usize,
    columns: usize,
    blocks: usize,
    gain: f64,
}

fn gates(given: &Attributes, dims: &[usize]) -> Result<Gates> {
    let blocks = if given.get("blocks").is_some() { given.size("blocks")? } else { 1 };
    let gain = if given.get("gain").is_some() { given.float("gain")? } else { 1.0 };
    match dims {
        [rows @ .., last] if !rows.is_empty() && blocks > 0 && last % blocks == 0 => {
            // The multiplication saturates: for a shape this large, the allocation fails later.
            let rows = rows.iter().fold(1, |n: usize, &extent| n.saturating_mul(extent));
            Ok(Gates { rows, columns: last / blocks, blocks, gain })
        }
        _ => {
            let expected = format!("a matrix whose last extent is a multiple of `blocks` = {blocks}");
            Err(Error::new("shape to initialise", expected, format!("{dims:?}")))
        }
    }
}

impl Gates {
    /// Fills each matrix with orthonormal columns, or with orthonormal rows if there are fewer rows than columns. The vectors are
    /// random normal vectors, orthogonalised one after another, so the matrix is uniformly distributed among all orthogonal
    /// matrices.
    fn orthogonal(&self, random: &mut Random, out: &mut [f64]) {
        let (count, length) = (self.rows.min(self.columns), self.rows.max(self.columns));
        if count == 0 {
            return;
        }
        let width = self.blocks * self.columns;
        for block in 0..self.blocks {
            let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
            while vectors.len() < count {
                let mut vector = vec![0.0; length];
                random.fill_normal(1.0, &mut vector);
                if orthonormalise(&mut vector, &vectors) {
                    vectors.push(vector);
                }
            }
            for (i, vector) in vectors.iter().enumerate() {
                for (j, &value) in vector.iter().enumerate() {
                    let (row, column) = if self.columns <= self.rows { (j, i) } else { (i, j) };
                    out[row * width + block * self.columns + column] = self.gain * value;
                }
            }
        }
    }
}

/// Makes a vector orthogonal to the vectors `others` by subtracting its projections on them, then scales it to norm 1. If the
/// subtraction shrinks the vector by 30 % or more, the subtraction is repeated for full precision. Returns false for a zero
/// vector, or if the third subtraction still shrinks the vector by 30 % or more.
fn orthonormalise(vector: &mut [f64], others: &[Vec<f64>]) -> bool {
    let mut before = dot(vector, vector).sqrt();
    for _ in 0..3 {
        for other in others {
            let along = dot(vector, other);
            vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
        }
        let after = dot(vector, vector).sqrt();
        if after > 0.7 * before {
            vector.iter_mut().for_each(|x| *x /= after);
            return true;
        }
        before = after;
    }
    false
}

/// Returns the dot product of two vectors, in eight partial sums, so that the compiler can use vector instructions.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (heads, tails) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = heads.remainder().iter().zip(tails.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in heads.zip(tails) {
        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (x, y))| *sum += x * y);
    }
    sums.iter().sum::<f64>() + rest
}

/// The random numbers of one variable, by the generator Philox. The key is the program's seed, and the counter contains the hash
/// of the variable's name.
struct Random {
    seed: u64,
    name: u64,
    block: u64,
    second: Option<u64>,
}

/// Returns the 64-bit FNV-1a hash of a name.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Splits a 64-bit number into two 32-bit words, the low word first.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

impl Random {
    fn new(seed: u64, name: &str) -> Self {
        Self { seed, name: hash(name), block: 0, second: None }
    }

    fn next(&mut self) -> u64 {
        if let Some(second) = self.second.take() {
            return second;
        }
        let ([b0, b1], [n0, n1]) = (halves(self.block), halves(self.name));
        let [w0, w1, w2, w3] = philox([b0, b1, n0, n1], halves(self.seed));
        self.block += 1;
        self.second = Some(u64::from(w3) << 32 | u64::from(w2));
        u64::from(w1) << 32 | u64::from(w0)
    }

    /// Returns the next random number, uniform from 0 to 1 (1 excluded).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn fill_uniform(&mut self, low: f64, high: f64, out: &mut [f64]) {
        out.iter_mut().for_each(|x| *x = low + (high - low) * self.uniform());
    }

    /// Fills `out` with normal numbers, by Box and Muller's method: two uniform numbers give two normal numbers.
    fn fill_normal(&mut self, std: f64, out: &mut [f64]) {
        for pair in out.chunks_mut(2) {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
            pair.iter_mut().zip([cos, sin]).for_each(|(x, part)| *x = std * radius * part);
        }
    }
}

#[cfg(test)]
mod tests;
