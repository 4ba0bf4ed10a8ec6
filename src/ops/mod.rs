//! The operators, a folder a family, and their catalogue: one word in its list registers one.
//!
//! # The operators
//!
//! Every operator by its kind, the name in programs, with its formula. Most are methods of [`Builder`] and of
//! [`Var`], linked here, with the whole formula, a worked example and what is refused; where the name leads
//! elsewhere, that is what appends the operator. Loops over sequences are [`Builder::recurrent`], which is no operator of
//! the catalogue. A crate's own operators are declared by [`operator!`](crate::operator).
//!
//! ## Arithmetic
//!
//! Two variables, element by element; either may be a constant that every row or column meets.
//!
//! | operator | out |
//! |---|---|
//! | [`add`](Builder::add) | x + y |
//! | [`sub`](Builder::sub) | x − y |
//! | [`mul`](Builder::mul) | x · y |
//! | [`div`](Builder::div) | x / y |
//! | [`maximum`](Builder::maximum) | max(x, y) |
//! | [`minimum`](Builder::minimum) | min(x, y) |
//!
//! ## Comparisons
//!
//! 1 where it holds, else 0, element by element; `y` is a variable or a number.
//!
//! | operator | out |
//! |---|---|
//! | [`greater`](Builder::greater) | x > y |
//! | [`greater_equal`](Builder::greater_equal) | x ≥ y |
//! | [`less`](Builder::less) | x < y |
//! | [`less_equal`](Builder::less_equal) | x ≤ y |
//! | [`equal`](Builder::equal) | x = y |
//! | [`not_equal`](Builder::not_equal) | x ≠ y |
//! | [`select`](Builder::select) | x where a condition is not 0, else y |
//!
//! ## Functions of one number
//!
//! Every element. `2.0 * x`, `x + 1.0` and `-x` are `scale`.
//!
//! | operator | out |
//! |---|---|
//! | [`abs`](Builder::abs) | \|x\| |
//! | [`clamp`](Builder::clamp) | min(max(x, low), high) |
//! | [`elu`](Builder::elu) | x, below 0 alpha · (e^x − 1) |
//! | [`exp`](Builder::exp) | e^x |
//! | [`gelu`](Builder::gelu) | x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2 |
//! | [`leaky_relu`](Builder::leaky_relu) | x, below 0 alpha · x |
//! | [`log`](Builder::log) | ln x |
//! | [`relu`](Builder::relu) | max(x, 0) |
//! | [`reciprocal`](Builder::reciprocal) | 1 / x; `c / x` is a `scale` of it |
//! | [`scale`](Builder::scale) | factor · x + offset |
//! | [`sigmoid`](Builder::sigmoid) | 1 / (1 + e^-x) |
//! | [`silu`](Builder::silu) | x · sigmoid(x) |
//! | [`softplus`](Builder::softplus) | ln(1 + e^x) |
//! | [`softsign`](Builder::softsign) | x / (1 + \|x\|) |
//! | [`sqrt`](Builder::sqrt) | √x |
//! | [`square`](Builder::square) | x² |
//! | [`tanh`](Builder::tanh) | (e^x − e^-x) / (e^x + e^-x) |
//!
//! ## Products
//!
//! | operator | out |
//! |---|---|
//! | [`linear`](Builder::linear) | x · W + b, row by row; with variables of one's own [`product`](Builder::product), with a transposed weight [`product_transposed`](Builder::product_transposed) |
//! | [`matmul`](Builder::matmul) | x · y of matrices that are not batched; transposed too by [`matmul_with`](Builder::matmul_with) |
//! | [`outer`](Builder::outer) | x_i · y_iᵀ, of each row: a matrix |
//! | [`matvec`](Builder::matvec) | x_i · y_i, of each row, where x_i is a matrix |
//! | [`dot`](Builder::dot) | x · y of csr rows and a matrix in any storage, or a vector |
//! | [`transposed_dot`](Builder::transposed_dot) | xᵀ · d, summed over the rows of a csr x: selected rows, csr of a csr d |
//! | [`random_projection`](Builder::random_projection) | 1/√width · Σ_c x_ic · s(c, j) of csr rows, with random signs s |
//! | [`sparse_linear`](Builder::product) | `linear` of csr rows |
//! | [`sparse_matmul`](Builder::matmul) | `matmul` of a csr x |
//!
//! ## Sums over features and rows
//!
//! | operator | out |
//! |---|---|
//! | [`sum`](Builder::sum) | Σ_ij x_ij |
//! | [`mean`](Builder::mean) | Σ_ij x_ij / n, over all n numbers |
//! | [`sum_rows`](Builder::sum_rows) | Σ_i x_ij, of each column; of csr and selected rows too |
//! | [`sum_features`](Builder::sum_features) | Σ_j x_ij, of each row |
//! | [`mean_features`](Builder::mean_features) | Σ_j x_ij / n, of each row |
//! | [`max_features`](Builder::max_features) | max_j x_ij, of each row |
//! | [`top_k`](Builder::top_k) | the k largest x_ij of each row, and their columns; of one [`argmax`](Builder::argmax) |
//! | [`cumulative_sum_features`](Builder::cumulative_sum_features) | Σ_{k ≤ j} x_ik, of each row |
//! | [`softmax`](Builder::softmax) | e^x_ij / Σ_k e^x_ik, over each row |
//! | [`log_softmax`](Builder::log_softmax) | x_ij − ln Σ_k e^x_ik, over each row |
//!
//! ## Normalisation
//!
//! Beside it, composed of others: [`glu`](Builder::glu), [`swiglu`](Builder::swiglu), [`bilinear`](Builder::bilinear) and
//! [`weight_norm`](Builder::weight_norm).
//!
//! | operator | out |
//! |---|---|
//! | [`layer_norm`](Builder::layer_norm) | (x_i − mean_i) / √(variance_i + epsilon) ∘ gain + bias, of each row |
//! | [`batch_norm`](crate::layers::Norm::batch) | (x_ij − mean_j) / √(variance_j + epsilon) · gain_j + bias_j, of each column over all rows |
//! | [`running_average`](crate::layers::Norm::batch) | average += momentum · (x − average) |
//! | [`rms_norm`](Builder::rms_norm) | x_i / √(mean of x_ij² + epsilon) ∘ gain, of each row |
//!
//! ## Columns
//!
//! | operator | out |
//! |---|---|
//! | [`concat`](Builder::concat) | \[x⁰_i, x¹_i, …\], side by side |
//! | [`split`](Builder::split) | \[out⁰_i, out¹_i, …\] = x_i |
//! | [`slice`](Builder::slice) | x_i,from … x_i,to−1 |
//! | [`sparse_concat`](Builder::concat) | `concat` of csr rows |
//! | [`sparse_slice`](Builder::slice) | `slice` of csr rows |
//!
//! ## Sequences
//!
//! Of the last level of the LoD.
//!
//! | operator | out |
//! |---|---|
//! | [`sequence_pool`](Builder::sequence_pool) | one row a sequence: Σ x_t, Σ x_t / n, Σ x_t / √n, max, first or last |
//! | [`sequence_pool_piece`](crate::Program::streamed) | the same, going on from the rows before: made where long texts infer in windows |
//! | [`sequence_conv`](Builder::sequence_conv) | Σ_j x_(t + start + j · dilation) · W_j, over the rows around each; with a bias and padding rows [`sequence_conv_with`](Builder::sequence_conv_with) |
//! | [`sequence_softmax`](Builder::sequence_softmax) | e^x_t / Σ_u e^x_u, over the rows u of its sequence |
//! | [`sequence_reverse`](Builder::sequence_reverse) | x_(n−1−t), in each sequence of n rows |
//! | [`sequence_expand`](Builder::sequence_expand) | x_i, as often as sequence i of y is long |
//! | [`sequence_expand_as`](Builder::sequence_expand_as) | x_i in every row of sequence i of y; in step blocks too |
//! | [`sequence_slice`](Builder::sequence_slice) | rows offset_i … offset_i + length_i − 1 of sequence i |
//! | [`sequence_erase`](Builder::sequence_erase) | the ids that are not among `tokens` |
//! | [`cumulative_sum`](Builder::cumulative_sum) | Σ_{u ≤ t} x_u, over the rows u of its sequence |
//! | [`sequence_concat`](Builder::sequence_concat) | the i-th sequences of several variables, end to end |
//! | [`sequence_pad`](Builder::sequence_pad) | x_st for t < n_s, then `pad_value`, in `length` places each; and n_s |
//! | [`sequence_unpad`](Builder::sequence_unpad) | the first lengths_s places of row s |
//! | [`sequence_mask`](Builder::sequence_mask) | 1 for j < lengths_s, else 0, for `length` places j |
//! | [`sequence_enumerate`](Builder::sequence_enumerate) | \[x_t, …, x_(t+window−1)\], padded behind the end of its sequence |
//! | [`sequence_reshape`](Builder::sequence_reshape) | the numbers of each sequence, in rows of `width` |
//! | [`sequence_topk_pool`](Builder::sequence_topk_pool) | one row a sequence: the mean of the k largest of each column, for each k |
//! | [`lod_reset`](Builder::lod_reset) | x, in the sequences of y |
//! | [`lod_append`](Builder::lod_append) | x, its sequences cut into pieces of the given lengths |
//! | [`row_conv`](Builder::row_conv) | Σ_j x_(t+j) ∘ W_j, over the rows ahead |
//! | [`sequence_scatter`](Builder::sequence_scatter) | x_i, with updates_t added at column ids_t, over the rows t of sequence i |
//! | [`reorder_by_rank`](Builder::reorder_by_rank) | the sequences of x, in the order of y's lengths, longest first |
//! | [`lod_of`](Builder::lod_of) | n_i, the length of sequence i |
//!
//! ## Attention
//!
//! The rows of each sequence to those of the same sequence, tile by tile: no scores of a whole sequence are in memory.
//!
//! | operator | out |
//! |---|---|
//! | [`dot_attention`](Builder::dot_attention) | Σ_j softmax_j(scale · q_i · k_j) · v_j, in each head; bounds, a bias by distance and the logarithms of sums by [`dot_attention_with`](Builder::dot_attention_with) |
//! | [`rotary`](Builder::rotary) | x_i, its pairs of columns turned by angles that grow with i |
//!
//! ## Recurrent cells
//!
//! One step of them; the layers [`lstm`](Builder::lstm) and [`gru`](Builder::gru) run it over sequences.
//!
//! | operator | out |
//! |---|---|
//! | [`lstm_cell`](Builder::lstm_cell) | c = σ(f) ∘ c_prev + σ(i) ∘ tanh(g), h = σ(o) ∘ tanh(c) |
//! | [`gru_cell`](Builder::gru_cell) | (1 − z) ∘ n + z ∘ h_prev, with n = tanh(x_n + r ∘ h_n) |
//!
//! ## Losses and metrics
//!
//! | operator | out |
//! |---|---|
//! | [`cross_entropy`](Builder::cross_entropy) | −ln softmax(logits_i)_y, for the label y; ignored labels, weights and smoothing by [`cross_entropy_with`](Builder::cross_entropy_with) |
//! | [`linear_cross_entropy`](crate::executor) | cross_entropy(x · W + b, labels), chunk by chunk: the executor makes it of the two |
//! | [`cross_entropy_share`](crate::executor) | w_y, the weight that a row counts with: the executor makes it beside the one before |
//! | [`binary_cross_entropy`](Builder::binary_cross_entropy) | −y · ln s − (1 − y) · ln(1 − s), for s = sigmoid(x), the mean over columns; weights by [`binary_cross_entropy_with`](Builder::binary_cross_entropy_with) |
//! | [`focal_loss`](Builder::focal_loss) | binary cross-entropy times a power of what is missing of the target; its settings by [`focal_loss_with`](Builder::focal_loss_with) |
//! | [`hinge`](Builder::hinge) | max(0, 1 − y · x), the mean over columns |
//! | [`squared_error`](Builder::squared_error) | (x − y)², the mean over columns |
//! | [`huber`](Builder::huber) | d² / 2 for d = x − y, beyond delta only linear, the mean over columns |
//! | [`kl_divergence`](Builder::kl_divergence) | Σ_j y_ij · (ln y_ij − x_ij), where x is a logarithm |
//! | [`cosine_similarity`](Builder::cosine_similarity) | x_i · y_i / (‖x_i‖ · ‖y_i‖), of each row; losses of it and of scores by [`cosine_loss`](Builder::cosine_loss) and [`margin_ranking`](Builder::margin_ranking) |
//! | [`nce`](Builder::nce) | ln(1 + e^−Δ_y) + Σ_j ln(1 + e^Δ_j), for the label y and classes j that are drawn; the loss alone by [`nce_loss`](Builder::nce_loss) |
//! | [`sampled_softmax`](Builder::sampled_softmax) | −ln(e^Δ_y / (e^Δ_y + Σ_j e^Δ_j)), for the label y and classes j that are drawn; the loss alone by [`sampled_softmax_loss`](Builder::sampled_softmax_loss) |
//! | [`hierarchical_sigmoid`](Builder::hierarchical_sigmoid) | Σ_n ln(1 + e^∓s_n), over the nodes n on the path to the label |
//! | [`accuracy`](Builder::accuracy) | the share of the rows whose largest logit is at the label |
//!
//! ## Random
//!
//! The numbers drawn depend on seed, step, operator, sequence, place and column, not on the batch.
//!
//! | operator | out |
//! |---|---|
//! | [`dropout`](Builder::dropout) | x · k / (1 − rate), k = 0 with probability rate, else 1; one k a sequence by [`variational_dropout`](Builder::variational_dropout) |
//!
//! ## Ids and embedding
//!
//! | operator | out |
//! |---|---|
//! | [`embedding`](Builder::embedding) | row ids_i of W; with a table of one's own [`lookup`](Builder::lookup) |
//! | [`embedding_bag`](Builder::embedding_bag) | one row a sequence of ids: Σ_k w_k · W\[i_k\], the mean or the maximum; with a table of one's own [`lookup_bag`](Builder::lookup_bag) |
//! | [`gather_rows`](Builder::gather_rows) | row ids_i of a dense x |
//! | [`scatter_rows`](Builder::scatter_rows) | out\[ids_i\] += x_i |
//! | [`one_hot`](Builder::one_hot) | 1 in column ids_i, 0 in all others |
//! | [`take_rows`](Builder::take_rows) | row ids_i of a csr x or of selected rows, csr |
//! | [`retain`](Builder::retain) | the rows of selected rows, or of a csr x, that are among ids; the others are zero |
//!
//! ## Conversion
//!
//! | operator | out |
//! |---|---|
//! | [`assign`](Builder::assign) | x, a copy |
//! | [`carry`](Builder::carry) | x, a copy: what a state that passes from batch to batch is after this one |
//! | [`cast`](Builder::cast) | x in another dtype |
//! | [`fill_like`](Builder::fill_like) | value, in the shape of x |
//! | [`to_dense`](Builder::to_dense) | x, every number |
//! | [`to_csr`](Builder::to_csr) | x, by rows the numbers that are not 0 |
//! | [`to_selected_rows`](Builder::to_selected_rows) | x, the rows that are not all 0 |
//!
//! ## Kernels for sparse variables
//!
//! Each stands for the operator whose name follows `sparse_`: where that one is appended to variables that are not dense, this one is.
//! coo lies like csr, and "rows" are selected rows.
//!
//! | operator | x | y | out |
//! |---|---|---|---|
//! | [`sparse_add`](Builder::add) | csr, rows or dense | the same or dense, not both dense | as they are stored; dense beside a dense one |
//! | [`sparse_sub`](Builder::sub) | csr, rows or dense | the same or dense, not both dense | as they are stored; dense beside a dense one |
//! | [`sparse_mul`](Builder::mul) | csr, rows or dense | the same or dense, not both dense | stored as the sparse one |
//! | [`sparse_div`](Builder::div) | csr or rows | dense | stored as x |
//! | [`sparse_maximum`](Builder::maximum) | csr, rows or dense | the same or dense, not both dense | as they are stored; dense beside a dense one |
//! | [`sparse_minimum`](Builder::minimum) | csr, rows or dense | the same or dense, not both dense | as they are stored; dense beside a dense one |
//! | [`sparse_abs`](Builder::abs) | csr or rows | | stored as x |
//! | [`sparse_clamp`](Builder::clamp) | csr or rows | | stored as x, with 0 between the bounds |
//! | [`sparse_elu`](Builder::elu) | csr or rows | | stored as x |
//! | [`sparse_gelu`](Builder::gelu) | csr or rows | | stored as x |
//! | [`sparse_leaky_relu`](Builder::leaky_relu) | csr or rows | | stored as x |
//! | [`sparse_relu`](Builder::relu) | csr or rows | | stored as x |
//! | [`sparse_scale`](Builder::scale) | csr or rows | | stored as x, without an offset |
//! | [`sparse_silu`](Builder::silu) | csr or rows | | stored as x |
//! | [`sparse_softsign`](Builder::softsign) | csr or rows | | stored as x |
//! | [`sparse_sqrt`](Builder::sqrt) | csr or rows | | stored as x |
//! | [`sparse_square`](Builder::square) | csr or rows | | stored as x |
//! | [`sparse_tanh`](Builder::tanh) | csr or rows | | stored as x |
//! | [`sparse_sum`](Builder::sum) | csr or rows | | one dense number |
//! | [`sparse_mean`](Builder::mean) | csr or rows | | one dense number |
//! | [`sparse_sum_features`](Builder::sum_features) | csr or rows | | dense; of rows the same rows |
//! | [`sparse_mean_features`](Builder::mean_features) | csr or rows | | dense; of rows the same rows |
//! | [`sparse_assign`](Builder::assign) | csr or rows | | stored as x |
//! | [`sparse_cast`](Builder::cast) | csr or rows | | stored as x, f32 or f64 |
//!
//! ## Update operators
//!
//! Optimizers append them; g is the gradient, with weight decay where it is asked for.
//!
//! | operator | out |
//! |---|---|
//! | [`sgd`](crate::optimizer::Sgd) | param −= rate · g |
//! | [`momentum`](crate::optimizer::Sgd::momentum) | v = momentum · v + g, param −= rate · v |
//! | [`adagrad`](crate::optimizer::Adagrad) | sum += g², param −= rate / (1 + t · rate_decay) · g / (√sum + epsilon) |
//! | [`adam`](crate::optimizer::Adam) | m += (1 − β₁)(g − m), s = β₂ s + (1 − β₂) g², param −= rate / (1 − β₁ᵗ) · m / (√(s / (1 − β₂ᵗ)) + epsilon) |
//! | [`amsgrad`](crate::optimizer::Adam::amsgrad) | `adam`, divided by the largest s so far |
//! | [`average_weights`](crate::train::Averaging) | average += w · (param − average), with w = 1 − decay, or 1 / (n + 1) for the mean |
//! | [`adamax`](crate::optimizer::Adamax) | m as in `adam`, u = max(β₂ u, \|g\| + epsilon), param −= rate / (1 − β₁ᵗ) · m / u |
//! | [`nadam`](crate::optimizer::NAdam) | m and s as in `adam`, param −= rate · ((1 − μₜ) / (1 − Πₜ) · g + μₜ₊₁ / (1 − Πₜ₊₁) · m) / (√(s / (1 − β₂ᵗ)) + epsilon) |
//! | [`lamb`](crate::optimizer::Lamb) | r = the step of `adam` + weight_decay · param, param −= rate · ‖param‖ / ‖r‖ · r |
//! | [`lion`](crate::optimizer::Lion) | param −= rate · sign(β₁ m + (1 − β₁) g), m = β₂ m + (1 − β₂) g |
//! | [`rmsprop`](crate::optimizer::RmsProp) | s = α s + (1 − α) g², param −= rate · g / (√s + epsilon) |
//! | [`rmsprop_momentum`](crate::optimizer::RmsProp::momentum) | v = momentum · v + g / (√s + epsilon), param −= rate · v |
//! | [`rmsprop_centred`](crate::optimizer::RmsProp::centred) | m += (1 − α)(g − m), param −= rate · g / (√(s − m²) + epsilon) |
//! | [`rmsprop_centred_momentum`](crate::optimizer::RmsProp::centred) | v = momentum · v + g / (√(s − m²) + epsilon), param −= rate · v |
//! | [`adadelta`](crate::optimizer::Adadelta) | s = ρ s + (1 − ρ) g², d = √(u + epsilon) / √(s + epsilon) · g, u = ρ u + (1 − ρ) d², param −= rate · d |
//! | [`ftrl`](crate::optimizer::Ftrl) | n += g², σ = (beta + √n) / rate − s, z += g − σ · param, s += σ, param = −(z − sign(z) · l1) / (s + l2), 0 where \|z\| ≤ l1 |
//! | [`settle`](crate::executor::settle) | what rows that had no gradient owe to param and its state |
//! | [`update_history`](crate::executor::settle) | the rates of the last updates, from which that follows |
//! | [`learning_rate`](Schedule) | the rate of a step, by a schedule |
//! | [`clip_gradient`](crate::optimizer::Sgd::clip_value) | g ← min(max(g, −limit), limit) |
//! | [`global_norm`](crate::optimizer::Sgd::clip_global_norm) | √(Σ g²) over all gradients, and min(1, max_norm / (norm + 10⁻⁶)) |
//! | [`scale_gradient`](crate::optimizer::Sgd::clip_global_norm) | g ← scale · g |

#[macro_use]
mod family;
#[macro_use]
mod attention;
#[macro_use]
mod cell;
#[macro_use]
mod conversion;
#[macro_use]
mod elementwise;
#[macro_use]
mod feature;
#[macro_use]
mod lookup;
#[macro_use]
mod loss;
#[macro_use]
mod product;
#[macro_use]
mod random;
#[macro_use]
mod sequence;
#[macro_use]
mod sparse;
mod update;

pub use attention::dot::DotAttention;
pub use cell::gru::Update;
pub use lookup::bag::LookupBag;
pub use loss::binary::{BinaryCrossEntropy, FocalLoss};
pub use loss::cross_entropy::CrossEntropy;
pub use loss::hierarchical::{ClassTree, Side};
pub use loss::sampled::SampledClasses;
pub use sequence::conv::Context;
pub use sequence::pool_kind::Pool;
pub(crate) use update::rule::HISTORY_SHAPE;
pub use update::rule::SparseMode;
pub use update::schedule::Schedule;
pub(crate) use update::settle::settle_attributes;

/// What a bag of rows is made to: see [`LookupBag`].
pub use crate::kernels::BagPool;

use crate::program::{Builder, Registry, Var};
// What the methods of the families name.
use {
    attention::{dot::*, rotary::*},
    cell::{gru::*, lstm::*},
    conversion::{assign::*, fill_like::*},
    elementwise::{activation::*, arithmetic::*, comparison::*, select::*},
    feature::{columns::*, norm::*, reduce::*, softmax::*, top_k::*},
    lookup::{bag::*, embedding::*, gather::*},
    loss::{
        accuracy::*, binary::*, cross_entropy::*, hierarchical::*, regression::*, sampled::*, similarity::*,
    },
    product::{linear::*, matmul::*, row_matrix::*},
    random::dropout::*,
    sequence::{
        concat::*, conv::*, cumulative_sum::*, enumerate::*, erase::*, expand::*, expand_as::*, lod_of::*,
        lod_reset::*, mask::*, pad::*, pool::*, reorder::*, reshape::*, reverse::*, row_conv::*, scatter::*,
        slice::*, softmax::*, topk_pool::*,
    },
    sparse::{convert::*, dot::*, projection::*, reduce::SumRows, retain::*, take::*, transposed::*},
};

use crate::kernels::Transpose;
use crate::program::Term;
use crate::tensor::DType;
use std::ops::Range;

use elementwise::arithmetic::Binary;
use elementwise::comparison::Compared;
use elementwise::unary::Unary;
use elementwise::{activation, arithmetic, comparison};
use feature::norm::{self, Normalise};
use feature::reduce::{self, PerRow, Whole};
use feature::softmax::{self, Softmax};
use loss::pointwise::RowLoss;
use loss::sampled::Sampled;
use sparse::binary::SparseBinary;
use sparse::entrywise::Entrywise;
use sparse::reduce::{SparsePerRow, SparseWhole};

/// Every operator of the crate, by family: the methods that append them (each a macro of its operator's file, with the
/// operator's name) and the operators.
macro_rules! catalogue {
    ($($(#[$about:meta])* [$($method:ident),*] { $($op:path),* $(,)? })*) => {
        $(catalogue!(methods [$(#[$about])*] $($method)*);)*

        /// The registry of the crate's own operators. A user's crate adds its own to it with [`Registry::add`].
        pub fn catalogue() -> Registry {
            let mut registry = Registry::empty();
            $($(
                if let Err(error) = registry.add::<$op>() {
                    unreachable!("the catalogue lists an operator twice: {error}");
                }
            )*)*
            registry
        }
    };
    (methods $about:tt) => {};
    (methods [$(#[$about:meta])*] $($method:ident)+) => {
        $(#[$about])*
        impl Builder {
            $($method!(Builder);)*
        }

        $(#[$about])*
        impl Var {
            $($method!(Var);)*
        }
    };
}

catalogue! {
    /// Arithmetic: two variables, element by element; either may be a constant that every row or column meets.
    [Add, Sub, Mul, Div, Maximum, Minimum] {
        Binary<arithmetic::Add>,
        Binary<arithmetic::Sub>,
        Binary<arithmetic::Mul>,
        Binary<arithmetic::Div>,
        Binary<arithmetic::Maximum>,
        Binary<arithmetic::Minimum>,
    }
    /// Comparisons: 1 where it holds, else 0; and of two numbers one, where it holds.
    [Greater, GreaterEqual, Less, LessEqual, Equal, NotEqual, Select] {
        elementwise::select::Select,
        Compared<comparison::Greater>,
        Compared<comparison::GreaterEqual>,
        Compared<comparison::Less>,
        Compared<comparison::LessEqual>,
        Compared<comparison::Equal>,
        Compared<comparison::NotEqual>,
    }
    /// Functions of one number, of every element.
    [Abs, Clamp, Elu, Exp, Gelu, LeakyRelu, Log, Reciprocal, Relu, Scale, Sigmoid, Silu, Softplus, Softsign, Sqrt, Square, Tanh] {
        Unary<activation::Abs>,
        Unary<activation::Clamp>,
        Unary<activation::Elu>,
        Unary<activation::Exp>,
        Unary<activation::Gelu>,
        Unary<activation::LeakyRelu>,
        Unary<activation::Log>,
        Unary<activation::Reciprocal>,
        Unary<activation::Relu>,
        Unary<activation::Scale>,
        Unary<activation::Sigmoid>,
        Unary<activation::Silu>,
        Unary<activation::Softplus>,
        Unary<activation::Softsign>,
        Unary<activation::Sqrt>,
        Unary<activation::Square>,
        Unary<activation::Tanh>,
    }
    /// Products.
    [Linear, TransposedLinear, MatmulPlain, Matmul, Outer, Matvec, DotProduct, TransposedDot, RandomProjection] {
        product::linear::Linear,
        product::matmul::Matmul,
        product::row_matrix::Outer,
        product::row_matrix::Matvec,
        sparse::linear::SparseLinear,
        sparse::dot::Dot,
        sparse::dot::SparseMatmul,
        sparse::transposed::TransposedDot,
        sparse::projection::RandomProjection,
    }
    /// Sums over features and rows.
    [Sum, Mean, SumRows, SumFeatures, MeanFeatures, MaxFeatures, TopK, Argmax, CumulativeSumFeatures, PlainSoftmax, LogSoftmax] {
        feature::top_k::TopK,
        sequence::cumulative_sum::CumulativeSumFeatures,
        Whole<reduce::Sum>,
        Whole<reduce::Mean>,
        sparse::reduce::SumRows,
        PerRow<reduce::SumFeatures>,
        PerRow<reduce::MeanFeatures>,
        PerRow<reduce::MaxFeatures>,
        Softmax<softmax::PlainSoftmax>,
        Softmax<softmax::LogSoftmax>,
    }
    /// Normalisation and gates.
    [LayerNorm, RmsNorm, Gated] {
        Normalise<norm::LayerNorm>,
        Normalise<norm::RmsNorm>,
        feature::batch_norm::BatchNorm,
        feature::batch_norm::RunningAverage,
    }
    /// Columns.
    [Concat, Split, Slice] {
        feature::columns::Concat,
        feature::columns::Split,
        feature::columns::Slice,
        sparse::columns::SparseConcat,
        sparse::columns::SparseSlice,
    }
    /// Sequences of the last level.
    [SequencePoolPlain, SequencePool, SequenceConvPlain, SequenceConv, SequenceSoftmax, SequenceReverse, SequenceExpand, SequenceExpandAs, SequenceSlice, SequenceErase, SequenceConcat, SequencePad, SequenceUnpad, SequenceMask, SequenceEnumerate, SequenceReshape, SequenceTopkPool, LodReset, LodAppend, RowConv, SequenceScatter, ReorderByRank, CumulativeSum, LodOf] {
        sequence::cumulative_sum::CumulativeSum,
        sequence::pool::SequencePool,
        sequence::pool_piece::SequencePoolPiece,
        sequence::conv::SequenceConv,
        sequence::softmax::SequenceSoftmax,
        sequence::reverse::SequenceReverse,
        sequence::expand::SequenceExpand,
        sequence::expand_as::SequenceExpandAs,
        sequence::slice::SequenceSlice,
        sequence::erase::SequenceErase,
        sequence::concat::SequenceConcat,
        sequence::pad::SequencePad,
        sequence::pad::SequenceUnpad,
        sequence::mask::SequenceMask,
        sequence::enumerate::SequenceEnumerate,
        sequence::reshape::SequenceReshape,
        sequence::topk_pool::SequenceTopkPool,
        sequence::lod_reset::LodReset,
        sequence::lod_reset::LodAppend,
        sequence::row_conv::RowConv,
        sequence::scatter::SequenceScatter,
        sequence::reorder::ReorderByRank,
        sequence::lod_of::LodOf,
    }
    /// Attention of sequences to sequences.
    [DotAttentionPlain, DotAttentionOp, Rotary] {
        attention::dot::DotAttentionOp,
        attention::rotary::Rotary,
    }
    /// One step of recurrent cells.
    [LstmCell, GruCell] {
        cell::lstm::LstmCell,
        cell::gru::GruCell,
    }
    /// Losses and metrics.
    [CrossEntropyPlain, SoftmaxCrossEntropy, BinaryCrossEntropyPlain, LogisticLoss, FocalLossPlain, Focal, Hinge, SquaredError, Huber, KlDivergence, CosineSimilarity, CosineLoss, MarginRanking, Nce, SampledSoftmax, SampledLosses, HierarchicalSigmoidLoss, Accuracy] {
        Sampled<loss::sampled::Nce>,
        Sampled<loss::sampled::SampledSoftmax>,
        loss::hierarchical::HierarchicalSigmoid,
        RowLoss<loss::binary::LogisticLoss>,
        RowLoss<loss::binary::Focal>,
        RowLoss<loss::binary::Hinge>,
        RowLoss<loss::regression::SquaredError>,
        RowLoss<loss::regression::Huber>,
        RowLoss<loss::regression::KlDivergence>,
        loss::similarity::CosineSimilarity,
        loss::cross_entropy::SoftmaxCrossEntropy,
        loss::linear_cross_entropy::LinearCrossEntropy,
        loss::linear_cross_entropy::Share,
        loss::accuracy::Accuracy,
    }
    /// Random numbers, which depend on seed, step, operator, sequence, place and column, not on the batch.
    [Dropout, VariationalDropout] {
        random::dropout::Dropout,
    }
    /// Ids and conversion.
    [Embedding, EmbeddingBag, GatherRows, ScatterRows, OneHot, TakeRows, Retain, Assign, Cast, FillLike, ToDense, ToCsr, ToSelectedRows] {
        lookup::embedding::Embedding,
        lookup::bag::EmbeddingBag,
        lookup::gather::GatherRows,
        lookup::gather::ScatterRows,
        lookup::gather::OneHot,
        sparse::take::TakeRows,
        sparse::retain::Retain,
        conversion::assign::Assign,
        conversion::assign::Cast,
        conversion::fill_like::FillLike,
        sparse::convert::ToDense,
        sparse::convert::ToCsr,
        sparse::convert::ToSelectedRows,
    }
    // What no model calls: kernels for sparse variables, which stand for those above, carried states and updates.
    [] {
        SparseBinary<arithmetic::Add>,
        SparseBinary<arithmetic::Sub>,
        SparseBinary<arithmetic::Mul>,
        SparseBinary<arithmetic::Div>,
        SparseBinary<arithmetic::Maximum>,
        SparseBinary<arithmetic::Minimum>,
        Entrywise<activation::Abs>,
        Entrywise<activation::Clamp>,
        Entrywise<activation::Elu>,
        Entrywise<activation::Gelu>,
        Entrywise<activation::LeakyRelu>,
        Entrywise<activation::Relu>,
        Entrywise<activation::Scale>,
        Entrywise<activation::Silu>,
        Entrywise<activation::Softsign>,
        Entrywise<activation::Sqrt>,
        Entrywise<activation::Square>,
        Entrywise<activation::Tanh>,
        SparseWhole<reduce::Sum>,
        SparseWhole<reduce::Mean>,
        SparsePerRow<reduce::SumFeatures>,
        SparsePerRow<reduce::MeanFeatures>,
        sparse::copy::SparseAssign,
        sparse::copy::SparseCast,
        conversion::carry::Carry,
        update::adadelta::Adadelta,
        update::adagrad::Adagrad,
        update::adam::Adam,
        update::adamax::Adamax,
        update::amsgrad::AmsGrad,
        update::average::AverageWeights,
        update::clip_gradient::ClipGradient,
        update::ftrl::Ftrl,
        update::global_norm::GlobalNorm,
        update::global_norm::ScaleGradient,
        update::history::UpdateHistory,
        update::lamb::Lamb,
        update::learning_rate::LearningRate,
        update::lion::Lion,
        update::nadam::NAdam,
        update::rmsprop::RmsProp,
        update::rmsprop::RmsPropCentred,
        update::rmsprop::RmsPropCentredMomentum,
        update::rmsprop::RmsPropMomentum,
        update::settle::Settle,
        update::sgd::Momentum,
        update::sgd::Sgd,
    }
}

impl Builder {
    /// A builder that knows the crate's operators.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}

#[cfg(test)]
mod tests;
