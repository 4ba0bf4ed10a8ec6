//! Parameters of a program: dense variables and row-sparse tables.

use super::builder::{Builder, DTypeSource};
use super::state::State;
use super::var::Var;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Spec};
use crate::program::description::initialize;
use crate::program::description::op_desc::Role;
use crate::program::description::program::Append;
use crate::program::description::var_desc::{Initializer, VarDesc, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};

/// The maximum number of rows of a row-sparse table.
const MOST_ROWS: usize = crate::operator::size::bits_of_word(62);

impl Builder {
    /// Adds a parameter: a trainable variable of known shape. `dtype` is a [`DType`], or a variable that has the wanted dtype; if
    /// that variable is unknown, the parameter is unknown too. The parameter belongs to the root block, even if this method is
    /// called in a step block. The parameter's name begins with the names of the open [scopes](Self::scope).
    ///
    /// # Errors
    /// Records an error if there are too many dimensions, if the dimensions do not fit the initialiser, or if the parameter has
    /// 2^63 bytes or more.
    #[track_caller]
    pub fn parameter(
        &self,
        name: &str,
        dtype: impl Into<DTypeSource>,
        dims: &[usize],
        initializer: Initializer,
    ) -> Var {
        let Some(dtype) = self.dtype(dtype) else { return self.unknown() };
        let spec = |_: &str| initialize::check(&initializer, dims).and_then(|()| Spec::fixed(dtype, dims));
        self.learned(name, spec, initializer.clone())
    }

    /// Adds a trainable table of the shape `[height, width]`. In memory and in checkpoints, the table has only the rows that an
    /// update has touched. Use a row-sparse parameter if ids are hashes, or if the full table does not fit into memory. The
    /// height is at most 2^62, and has no effect on the use of memory.
    ///
    /// Reading a row that no update has touched returns the row's first value. The first value of a row depends only on the
    /// program's seed, the parameter's name, the row's index and the column. The first value does not depend on the batch, the
    /// order of reads or the threads. `initializer` must compute each row independently of the other rows: zeros, constant,
    /// uniform, normal, or [`embedding`](crate::layers::init::embedding). A [`parameter`](Self::parameter) with this initializer
    /// has first values of the same distribution, but from other random draws.
    ///
    /// Only [`lookup`](Self::lookup) can read the table; the layer
    /// [`Embedding::row_sparse`](crate::layers::Embedding::row_sparse) consists of a row-sparse table and a lookup. The gradient
    /// of the table is stored as selected rows. The optimizer's state for the table is row-sparse too, and starts at zero. The
    /// trained rows are bit-identical to the rows of a dense table with the same first values, trained with
    /// [sparse](crate::layers::Embedding::sparse) gradients. [`Scope::value`](crate::executor::Scope::value) returns the touched
    /// rows of the table.
    ///
    /// ```
    /// use unpadded::executor::{Executor, Run, Scope};
    /// use unpadded::layers::init;
    /// use unpadded::optimizer::{Adagrad, Optimizer};
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new().seed(1);
    /// let hashes = net.feed("hashes", DType::I64, &[], 1);
    /// let table = net.row_sparse_parameter("table", DType::F32, &[1 << 62, 4], init::normal(0.5));
    /// let loss = net.lookup(hashes, table, None, true).tanh().mean();
    /// let (registry, mut program) = (net.registry(), net.finish()?);
    /// Adagrad::new(0.1).minimize(&mut program, &registry, loss.id())?;
    ///
    /// let (mut executor, mut scope) = (Executor::new(&program, &registry, &[], 1)?, Scope::of(&program)?);
    /// let hashes_fed = Variable::from_sequences(&[vec![1i64 << 61, 7], vec![7]])?;
    /// executor.run(&mut scope, &Run::train(&[(hashes.id(), &hashes_fed)], 0))?;
    /// let touched = scope.value("table")?;
    /// assert_eq!(touched.as_selected_rows()?.row_ids(), [7, 1 << 61]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Records an error if `dims` are not a height and a width, or if the dtype is not f32 or f64. The initialiser must compute
    /// each row independently, and a row must have fewer than 2^63 bytes.
    #[doc(alias = "row_sparse")]
    #[track_caller]
    pub fn row_sparse_parameter(
        &self,
        name: &str,
        dtype: impl Into<DTypeSource>,
        dims: &[usize],
        initializer: Initializer,
    ) -> Var {
        let Some(dtype) = self.dtype(dtype) else { return self.unknown() };
        let spec = |name: &str| {
            if !matches!(dtype, DType::F32 | DType::F64) {
                return Err(Error::new("dtype of a row-sparse parameter", "f32 or f64", dtype.to_string()));
            }
            if !matches!(dims, &[height, _] if height <= MOST_ROWS) {
                let expected = "[height, width] with a height of at most 2^62";
                return Err(Error::new("shape of a row-sparse parameter", expected, format!("{dims:?}")));
            }
            initialize::rows(&initializer, dims, 0, name)?;
            Ok(Spec::fixed(dtype, dims)?.stored(StorageKind::SelectedRows))
        };
        self.learned(name, spec, initializer.clone())
    }

    /// Adds a persistable variable of known shape that no optimizer changes; an operator of [`Self::append_update`] changes the
    /// variable. The variable is kept from run to run and saved like a parameter. The variable belongs to the root block.
    ///
    /// # Errors
    /// Records the errors of [`Self::parameter`].
    #[track_caller]
    pub(crate) fn kept(
        &self,
        name: &str,
        dtype: impl Into<DTypeSource>,
        dims: &[usize],
        initializer: Initializer,
    ) -> Var {
        let kept = self.parameter(name, dtype, dims, initializer);
        if !kept.is_unknown() {
            let mut state = self.state.borrow_mut();
            let var = &mut state.program.vars[kept.id.0 as usize];
            (var.trainable, var.stop_gradient) = (false, true);
        }
        kept
    }

    /// Appends an operator that updates the variable `var` of the root block in place; the operator reads the variable `input`.
    /// The operator runs with the other updates of a training step.
    ///
    /// # Errors
    /// Records an error if the variables do not fit the operator, or if the method is called in a step block.
    #[track_caller]
    pub(crate) fn append_update(
        &self,
        kind: &str,
        (slot, input): (&str, Var),
        (updated, var): (&str, Var),
        attributes: Attributes,
    ) {
        let (Some(input), Some(var)) = (self.visible(input), self.visible(var)) else { return };
        let request = Append {
            inputs: vec![(slot, vec![input])],
            updated: vec![(updated, var)],
            attributes,
            role: Role::Update,
            caller: self.here().to_string(),
            ..Append::forward(kind)
        };
        let appended = {
            let State { program, registry, .. } = &mut *self.state.borrow_mut();
            match self.block {
                BlockId(0) => program.append(registry, BlockId(0), request).map(drop),
                _ => Err(Error::of(ErrorKind::Program, kind, "the root block", "a step block")),
            }
        };
        self.fitting(appended);
    }

    /// Adds a parameter; `spec` computes the parameter's spec from its full name.
    #[track_caller]
    fn learned(&self, name: &str, spec: impl FnOnce(&str) -> Result<Spec>, initializer: Initializer) -> Var {
        let add = |State { program, scopes, .. }: &mut State| {
            let name = scopes.whole(name);
            let sized = |spec: Spec| spec.check_size().map(|()| spec);
            let spec = spec(&name).and_then(sized).map_err(|e| e.variable(&name))?;
            program.add_var(VarDesc {
                persistable: true,
                trainable: true,
                initializer: Some(initializer),
                ..VarDesc::new(
                    program.fresh_name(&name),
                    BlockId(0),
                    VarKind::Tensor(spec),
                    VarRole::Parameter,
                )
            })
        };
        let added = add(&mut self.state.borrow_mut());
        self.made(added)
    }
}
