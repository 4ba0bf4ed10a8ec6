//! Numeric kernels: products, vector maths, gather and scatter, disjoint writes, random numbers. No other module has
//! `unsafe` code.
//!
//! All kernels work on slices and [`View`]s; they do not depend on tensors, programs or operators. The tests compare each
//! fast kernel with a naive implementation.
#![allow(unsafe_code)]

pub mod additive;
pub mod arena;
mod at_once;
pub mod attention;
pub mod bag;
mod balance;
pub mod bandwidth;
pub mod chain;
#[cfg(test)]
mod checks;
mod chunk;
pub mod column_norm;
mod column_sums;
pub mod conv;
pub mod cpu;
pub mod ctc;
mod double;
pub mod edits;
pub mod elementwise;
mod engine;
pub mod float;
pub mod flush;
mod fork;
pub mod gradient;
pub mod gru;
mod half;
mod int8;
pub mod lstm;
pub mod math;
pub mod norm;
mod panels;
pub mod path;
pub mod peak;
mod picked;
mod prefetch;
pub mod product;
mod products;
pub mod projection;
pub mod random;
pub mod rows;
mod single;
pub mod sparse;
mod tile;
#[cfg(target_arch = "x86_64")]
mod turn;
pub mod view;

pub use additive::{
    Additive, AdditiveGradients, AdditiveResult, additive_attention, additive_attention_backward,
};
pub use attention::{
    AttentionGradients, AttentionInputs, AttentionResult, AttentionRoom, AttentionScores, attention,
    attention_backward,
};
pub use bag::{
    BagGradient, BagPool, BagShare, BagTarget, Bags, bag_factor_gradient, bag_first_maximum, bag_forward,
};
#[cfg(any(test, feature = "internals"))]
pub use balance::force;
pub use balance::{boundary, join_measured, most, share};
pub use bandwidth::{Bandwidth, bandwidth};
pub use chain::{BestPaths, ChainRoom, PairSums, Transitions, best_paths, log_sum, marginals};
pub use column_norm::{ColumnNorm, column_moments, norm_columns, norm_columns_gradient, norm_columns_sums};
pub use column_sums::SUM_ROWS;
pub use conv::{
    ConvGradient, ConvRoom, ConvRows, Window, conv_forward, conv_gradient, conv_padding_gradient,
    depthwise_forward, depthwise_gradient, depthwise_padding_gradient,
};
pub use cpu::{Cpu, cpu};
pub use ctc::{CtcRoom, ctc, ctc_gradient};
pub use edits::edit_distance;
pub use elementwise::all_finite;
pub use float::{Assign, Float, exceeds};
pub use flush::flush;
pub use fork::join;
pub use gradient::{affine_gradient, affine_gradient_bytes};
pub use gru::{Blend, GruBackward, GruInputs, gru_backward, gru_forward};
pub use half::pack::{round_number, round_rows, rows_to_widen, widen_rows};
pub use int8::{CodedMatrix, CodedRows, MAX_CODE_ROWS, coded_affine, encode, int8_unit};
pub use lstm::{LstmBackward, lstm_backward, lstm_forward};
pub use norm::{Centre, RowNorm, RowNormGradients, norm_gradient_numbers, norm_rows, norm_rows_gradient};
pub use path::{Arithmetic, MatrixUnit, Precision, Sweep, sweep};
pub use peak::{bf16_peak, int8_peak, peak};
pub use prefetch::ask;
pub use product::{affine, emptied, lengthen, product};
pub use products::{
    GradientRoom, LeftMatrix, PackedMatrix, ResultMatrix, RoundedRows, Transpose, WeightGradient,
};
pub use random::philox;
pub use rows::{RowMerge, gather_rows};
pub use view::{Extent2, View, ViewMut};

/// Returns how many of `threads` threads should share the work; 1 if `work` is below `worth`. Each thread gets at least
/// `worth` / 2 units of work, so that threads that are not needed stay asleep.
pub fn helpers(work: usize, worth: usize, threads: usize) -> usize {
    if work < worth { 1 } else { (work / worth).saturating_mul(2).clamp(1, threads.max(1)) }
}

#[test]
fn more_threads_than_work_are_left_asleep() {
    let cases =
        [(0, 10, 9, 1), (9, 10, 9, 1), (10, 10, 9, 2), (25, 10, 9, 4), (1000, 10, 9, 9), (10, 10, 1, 1)];
    for (work, worth, threads, expected) in cases {
        assert_eq!(helpers(work, worth, threads), expected, "{work} of {worth} on {threads}");
    }
    assert_eq!(helpers(usize::MAX, 1, 1000), 1000);
}
