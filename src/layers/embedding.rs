//! A table of vectors, looked up by id.

use crate::error::{Error, Result};
use crate::layers::{init, wide};
use crate::program::{Builder, Initializer, Var};
use crate::tensor::DType;

/// Options of [`Builder::embedding`].
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    vocabulary: usize,
    width: usize,
    sparse: bool,
    padding: Option<usize>,
    dtype: DType,
    weight: Option<Initializer>,
    name: Option<String>,
}

impl Embedding {
    /// A table of `vocabulary` rows of `width` numbers, which start normal with a deviation of 1/√width, so that a
    /// row's length is about 1.
    pub fn new(vocabulary: usize, width: usize) -> Self {
        let (sparse, padding, dtype, weight, name) = (false, None, DType::F32, None, None);
        Self { vocabulary, width, sparse, padding, dtype, weight, name }
    }

    /// The gradient holds only the rows that were looked up.
    #[must_use]
    pub fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// The id whose row starts at zero and gets no gradient.
    #[must_use]
    pub fn padding(self, id: usize) -> Self {
        Self { padding: Some(id), ..self }
    }

    /// Another dtype than f32.
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// How the table starts.
    #[must_use]
    pub fn weight_init(self, weight: Initializer) -> Self {
        Self { weight: Some(weight), ..self }
    }

    /// The first part of the parameter's name, instead of `embedding_0` and so on.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

impl Builder {
    /// The row of each id, in the LoD of the ids. Parameter: `weight` `[vocabulary, width]`.
    ///
    /// # Errors
    /// If `ids` are no ids, the table is empty, or the padding id is outside it.
    #[track_caller]
    pub fn embedding(&self, ids: Var, options: Embedding) -> Result<Var> {
        let Embedding { vocabulary, width, sparse, padding, dtype, weight, name } = options;
        wide(self, "embedding", width)?;
        if vocabulary == 0 {
            return Err(self.located(Error::new("rows of layer `embedding`", "at least one", "0")));
        }
        let number = padding.map(|id| i64::try_from(id).ok().filter(|_| id < vocabulary));
        if let (Some(None), Some(id)) = (number, padding) {
            let what = "padding id of layer `embedding`";
            return Err(self.located(Error::new(
                what,
                format!("below {vocabulary}, the height"),
                id.to_string(),
            )));
        }
        let name = self.layer_name("embedding", name.as_deref());
        let start = weight.unwrap_or_else(|| init::embedding(1.0 / (width.max(1) as f64).sqrt(), padding));
        let weight = self.parameter(&format!("{name}.weight"), dtype, &[vocabulary, width], start)?;
        self.lookup(ids, weight, number.flatten(), sparse)
    }
}
