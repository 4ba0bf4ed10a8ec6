//! Checkpoints with weights of 8-bit integers.

use super::checkpoint::Checkpoint;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::encode;
use crate::operator::Registry;
use crate::program::CodedParameter;
use crate::tensor::{Dense, Storage};

impl Checkpoint {
    /// Returns a checkpoint [for inference](Self::for_inference) whose weights of linear layers and tables of embeddings are
    /// 8-bit integers. Its file has about a quarter of the size, and the products of the layers read a quarter of the bytes. It
    /// predicts with slightly different results: score it before it is used.
    ///
    /// | value | stored or computed as |
    /// |---|---|
    /// | weights of `linear`, which the products of LSTM, GRU and attention layers are too | i8; one scale in f32 per output: max \|w\| / 127 over the weights of the output |
    /// | tables of `embedding`; a table that also computes logits | i8; one scale in f32 per row |
    /// | rows that are multiplied by such weights | rounded to i8 at each product, with one scale per row: max \|x\| / 127 |
    /// | sums of products | exact integers, so the results are the same on every CPU and in every batch |
    /// | parameters with fewer than 16 rows or columns, biases, convolutions, row-sparse tables and all other values | f32 |
    ///
    /// ```no_run
    /// # use unpadded::checkpoint::Checkpoint;
    /// # use unpadded::ops;
    /// Checkpoint::load("sentiment.ckpt")?.quantize(&ops::catalogue())?.save("sentiment-int8.ckpt")?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::for_inference`] does; if a number of a weight is NaN or infinite; if the checkpoint is quantized already;
    /// and if its program has no parameter that can be stored as 8-bit integers.
    #[doc(alias = "int8")]
    #[doc(alias = "quantization")]
    #[track_caller]
    pub fn quantize(self, registry: &Registry) -> Result<Self> {
        self.quantized(registry).at_caller()
    }

    /// Returns an error if the checkpoint has weights of 8-bit integers; `what` names the checkpoint in the message.
    ///
    /// # Errors
    /// Fails if the checkpoint has such weights.
    #[track_caller]
    pub fn check_whole(&self, what: &str) -> Result<()> {
        if !self.program.has_codes() {
            return Ok(());
        }
        let expected = "a model with weights in f32, such as the model that was quantized";
        Err(Error::of(ErrorKind::Program, what, expected, "weights of 8-bit integers"))
    }

    fn quantized(self, registry: &Registry) -> Result<Self> {
        let refused = |expected: &str, got: &str| {
            Err(Error::of(ErrorKind::Program, "checkpoint to quantize", expected, got))
        };
        self.check_whole("checkpoint to quantize")?;
        let mut model = self.for_inference(registry)?;
        let named = model.outputs.values().chain(model.metrics.iter().flat_map(|metric| &metric.variables));
        let kept: Vec<_> = named.filter_map(|name| model.program.find(name)).collect();
        let (program, coded) = model.program.with_codes(&kept)?;
        if coded.is_empty() {
            let expected = "a dense weight of `linear` or table of `embedding` in f32, with at least 16 rows and columns";
            let error = refused(expected, "none");
            return error.map_err(|e: Error| {
                e.noted("a model without such parameters would hardly be smaller; it predicts as it is")
            });
        }
        for CodedParameter { name, scale, axis } in coded {
            let missing = || Error::of(ErrorKind::Program, "checkpoint", "a value for this variable", "none");
            let value = model.tensors.remove(&name).ok_or_else(missing).map_err(|e| e.variable(&name))?;
            let (codes, scales) = codes_of(value.as_dense()?, axis, &name)?;
            model.tensors.insert(name, Storage::Dense(codes));
            model.tensors.insert(scale, Storage::Dense(scales));
        }
        model.program = program;
        Ok(model)
    }
}

/// Returns the codes of a matrix, and the scales of its rows (`axis` 0) or columns (`axis` 1).
fn codes_of(matrix: &Dense, axis: usize, name: &str) -> Result<(Dense, Dense)> {
    matrix.check_finite("weight to quantize").map_err(|e| e.variable(name))?;
    let (numbers, shape) = (matrix.as_slice::<f32>()?, matrix.shape());
    let &[rows, columns] = shape else {
        return Err(Error::new("weight to quantize", "a matrix", format!("{shape:?}")).variable(name));
    };
    let mut codes = vec![0i8; numbers.len()];
    let mut scales = Vec::with_capacity(shape[axis]);
    if axis == 0 {
        for (row, codes) in numbers.chunks(columns.max(1)).zip(codes.chunks_mut(columns.max(1))) {
            scales.push(encode(row.iter().copied(), codes));
        }
    } else {
        let mut of_column = vec![0i8; rows];
        for column in 0..columns {
            let numbers = numbers.iter().skip(column).step_by(columns).copied();
            scales.push(encode(numbers, &mut of_column));
            let places = codes.iter_mut().skip(column).step_by(columns);
            places.zip(&of_column).for_each(|(to, &code)| *to = code);
        }
    }
    let length = scales.len();
    Ok((Dense::from_vec(&[rows, columns], codes)?, Dense::from_vec(&[length], scales)?))
}
