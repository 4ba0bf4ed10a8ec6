//! The embedding bag layer: looks up the rows of a table for the ids of each bag, and pools the rows of a bag to one row.

use super::embedding::Embedding;
use crate::builder_methods;
use crate::layers::Layer;
use crate::ops::{BagPool, LookupBag};
use crate::program::{Builder, Initializer, Var};
use crate::tensor::{DType, StorageKind};

/// Options of the embedding bag layer ([`Builder::embedding_bag`]).
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingBag {
    table: Embedding,
    pool: BagPool,
    weights: Option<Var>,
}

impl EmbeddingBag {
    /// Makes an embedding bag with sum pooling, over a table of `vocabulary` rows of `width` numbers. The table is initialized
    /// like the table of an [`Embedding`](crate::layers::Embedding).
    pub fn new(vocabulary: usize, width: usize) -> Self {
        Self { table: Embedding::new(vocabulary, width), pool: BagPool::Sum, weights: None }
    }

    /// Sets the pooling of a bag's rows (default: the sum).
    #[must_use]
    pub fn pool(self, pool: BagPool) -> Self {
        Self { pool, ..self }
    }

    /// Multiplies the row of each id by a weight. `weights` has one number per id, `[rows]`, and the LoD of the ids. Weights
    /// require sum pooling.
    #[must_use]
    pub fn weighted(self, weights: Var) -> Self {
        Self { weights: Some(weights), ..self }
    }

    /// Makes the gradient of the table sparse: the gradient stores only the rows that were looked up, each row once.
    #[must_use]
    pub fn sparse(self) -> Self {
        Self { table: self.table.sparse(), ..self }
    }

    /// Makes the table row-sparse, as [`Embedding::row_sparse`](crate::layers::Embedding::row_sparse) does.
    #[must_use]
    pub fn row_sparse(self) -> Self {
        Self { table: self.table.row_sparse(), ..self }
    }

    /// Sets the padding id: pooling skips the padding id, and the row of the padding id starts at zero.
    #[must_use]
    pub fn padding(self, id: usize) -> Self {
        Self { table: self.table.padding(id), ..self }
    }

    /// Sets the dtype of the table (default: f32).
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Self {
        Self { table: self.table.dtype(dtype), ..self }
    }

    /// Sets the initializer of the table.
    #[must_use]
    pub fn weight_init(self, weight: Initializer) -> Self {
        Self { table: self.table.weight_init(weight), ..self }
    }

    /// Sets the first part of the parameter's name (default: `embedding_bag_0` and so on).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { table: self.table.named(name), ..self }
    }
}

impl Layer for EmbeddingBag {
    type Weights = Var;

    fn kind(&self) -> &str {
        "embedding_bag"
    }

    fn name(&self) -> Option<&str> {
        self.table.name()
    }

    fn weights(&self, net: &Builder, _: Var) -> Option<Var> {
        self.table.table(net, self.kind())
    }

    fn run(&self, net: &Builder, ids: Var, &table: &Var) -> Var {
        if let Err(unknown) = self.table.check(net, table, self.kind()) {
            return unknown;
        }
        let gradient = if self.table.is_sparse() { StorageKind::SelectedRows } else { StorageKind::Dense };
        let (pool, weights, padding_id) = (self.pool, self.weights, self.table.padding_id());
        net.lookup_bag(ids, table, LookupBag { pool, weights, padding_id, gradient })
    }
}

builder_methods! { EmbeddingBag, Builder, Var;
    /// Returns the sum, mean or maximum of the table's rows for each bag of ids; a bag is a sequence of the last level. The
    /// result equals an [`embedding`](Self::embedding) followed by a [`sequence_pool`](Self::sequence_pool). But the looked-up
    /// rows are not stored, so an embedding bag needs only a fraction of the time and memory. Parameter: `weight`
    /// `[vocabulary, width]`. [`lookup_bag`](Self::lookup_bag) has the formulas.
    ///
    /// ```
    /// use unpadded::layers::EmbeddingBag;
    /// use unpadded::ops::BagPool;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let words = net.feed("words", DType::I64, &[], 1);
    /// let x = words.embedding_bag(EmbeddingBag::new(100, 16).pool(BagPool::Mean).sparse());
    /// assert_eq!(net.describe(x), "`embedding_bag`: f32[batch, 16]");
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `ids` does not hold one whole number per row or has no LoD, `vocabulary` or the width is 0, the padding id is not
    /// below `vocabulary`, or the weights do not have one number per id and the LoD of the ids.
    pub fn embedding_bag(&self, ids: Var, options: EmbeddingBag) -> Var {
        self.layer(options).run(self, ids)
    }
}
