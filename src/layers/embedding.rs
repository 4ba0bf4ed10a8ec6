//! The embedding layer: looks up rows of a table of vectors by id.

use super::layer::{layer_name, wide};
use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Layer, init};
use crate::operator::Extent;
use crate::program::{Builder, Initializer, Var};
use crate::tensor::DType;

/// Options of the embedding layer ([`Builder::embedding`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    vocabulary: usize,
    width: usize,
    sparse: bool,
    padding: Option<usize>,
    dtype: DType,
    weight: Option<Initializer>,
    rows: Rows,
    name: Option<String>,
}

/// The storage of the table: all rows in memory, or only the rows that training has touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    All,
    Touched,
}

impl Embedding {
    /// Makes an embedding with a table of `vocabulary` rows of `width` numbers. The initial numbers are normally distributed
    /// with a standard deviation of 1/√width, so that the norm of a row is about 1.
    pub fn new(vocabulary: usize, width: usize) -> Self {
        let (sparse, padding, dtype, weight, name) = (false, None, DType::F32, None, None);
        Self { vocabulary, width, sparse, padding, dtype, weight, rows: Rows::All, name }
    }

    /// Makes the gradient of the table sparse: the gradient stores only the rows that were looked up.
    #[must_use]
    pub fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// Makes the table row-sparse: only the rows that training has touched are in memory and in checkpoints. Ids may
    /// therefore be hashes of words, and the vocabulary may be as large as the range of the hash. The table is a
    /// [row-sparse parameter](Builder::row_sparse_parameter): its initial values have the same distribution as the
    /// values of a dense table, but are different numbers. The gradient of the table is [sparse](Self::sparse).
    ///
    /// ```
    /// use unpadded::layers::Embedding;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let hashes = net.feed("hashes", DType::I64, &[], 1);
    /// let x = hashes.embedding(Embedding::new(1 << 40, 16).row_sparse());
    /// let table = net.finish()?;
    /// assert_eq!(table.var(table.find("embedding_0.weight").unwrap()).spec().unwrap().to_string(), "f32[1099511627776, 16] selected_rows");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn row_sparse(self) -> Self {
        Self { rows: Rows::Touched, sparse: true, ..self }
    }

    /// Sets the padding id: the row of the padding id starts at zero and gets no gradient.
    #[must_use]
    pub fn padding(self, id: usize) -> Self {
        Self { padding: Some(id), ..self }
    }

    /// Sets the dtype of the table (default: f32).
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// Sets the initializer of the table.
    #[must_use]
    pub fn weight_init(self, weight: Initializer) -> Self {
        Self { weight: Some(weight), ..self }
    }
}

layer_name!(Embedding, "embedding");

impl Layer for Embedding {
    type Weights = Var;

    fn kind(&self) -> &str {
        "embedding"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, _: Var) -> Option<Var> {
        self.table(net, self.kind())
    }

    fn run(&self, net: &Builder, ids: Var, &table: &Var) -> Var {
        if let Err(unknown) = self.check(net, table, self.kind()) {
            return unknown;
        }
        net.lookup(ids, table, self.padding_id(), self.sparse)
    }
}

impl Embedding {
    /// Makes the table of a layer of the kind `kind`; `None`, after recording an error, if an option is invalid. The shape of
    /// the table does not depend on an input.
    pub(super) fn table(&self, net: &Builder, kind: &str) -> Option<Var> {
        let &Embedding { vocabulary, width, padding, dtype, ref weight, rows, .. } = self;
        wide(net, kind, width)?;
        if vocabulary == 0 {
            net.refuse(Error::new(format!("rows of layer `{kind}`"), "at least one", "0"));
            return None;
        }
        if let Some(id) = padding.filter(|&id| id >= vocabulary || i64::try_from(id).is_err()) {
            let expected = format!("below {vocabulary}, the height");
            net.refuse(Error::new(format!("padding id of layer `{kind}`"), expected, id.to_string()));
            return None;
        }
        let usual = || init::embedding(1.0 / (width as f64).sqrt(), padding);
        let start = weight.clone().unwrap_or_else(usual);
        let dims = [vocabulary, width];
        Some(match rows {
            Rows::All => net.parameter("weight", dtype, &dims, start),
            Rows::Touched => net.row_sparse_parameter("weight", dtype, &dims, start),
        })
    }

    /// Checks that a table has the shape that the options set. If not, records an error and returns the unknown variable as
    /// `Err`.
    pub(super) fn check(&self, net: &Builder, table: Var, kind: &str) -> Result<(), Var> {
        let dims = [Extent::Known(self.vocabulary), Extent::Known(self.width)];
        match net.spec_of_tensor(table).filter(|spec| spec.shape.as_slice() != dims) {
            None => Ok(()),
            Some(spec) => {
                let expected = format!("[{}, {}], as the options say", self.vocabulary, self.width);
                let error = Error::new(format!("table of layer `{kind}`"), expected, spec.to_string());
                Err(net.refuse(error.variable(net.name_of(table))))
            }
        }
    }

    /// Returns the padding id as i64, the type of the attribute of lookup operators; `None` without a padding id.
    pub(super) fn padding_id(&self) -> Option<i64> {
        self.padding.and_then(|id| i64::try_from(id).ok())
    }

    /// Returns whether the gradient of the table is sparse. A sparse gradient stores only the rows that were looked up.
    pub(super) fn is_sparse(&self) -> bool {
        self.sparse
    }
}

builder_methods! { Embedding, Builder, Var;
    /// Looks up the row of each id: out_i = weight\[ids_i\]. The output has the LoD of the ids. Parameter: `weight`
    /// `[vocabulary, width]`.
    ///
    /// ```
    /// use unpadded::layers::Embedding;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let words = net.feed("words", DType::I64, &[], 1);
    /// let x = words.embedding(Embedding::new(100, 16).sparse());
    /// assert_eq!(net.describe(x), "`embedding`: f32[rows0, 16] lod(0)");
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `ids` does not hold one whole number per row, `vocabulary` or the width is 0, or the padding id is not below
    /// `vocabulary`.
    pub fn embedding(&self, ids: Var, options: Embedding) -> Var {
        self.layer(options).run(self, ids)
    }
}
