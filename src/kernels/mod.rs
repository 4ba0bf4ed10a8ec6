//! The only `unsafe` in the crate: products, vector maths, gather and scatter, disjoint writes, random numbers.
//!
//! Everything here works on slices and [`View`]s and knows nothing of tensors, programs or operators. Each fast
//! kernel has a naive twin in its tests.
#![allow(unsafe_code)]

pub mod arena;
pub mod float;
pub mod math;
pub mod path;
pub mod product;
mod tile;
pub mod view;

pub use float::{Float, Store};
pub use path::{Arithmetic, Path, Sweep, sweep, sweep_on};
pub use product::{Packed, Transpose, product, product_panels};
pub use view::{Extent2, View, ViewMut};
pub mod random {
    //! Temporary.
    /// Temporary.
    #[derive(Debug, Clone, Copy)]
    pub struct RowStream {
        /// .
        pub seed: u64,
        /// .
        pub step: u64,
        /// .
        pub operator: u64,
        /// .
        pub sequence: u64,
        /// .
        pub position: u64,
    }
    /// Temporary.
    pub fn fill_uniform(_: RowStream, out: &mut [f32]) {
        out.fill(0.5);
    }
}
/// Temporary.
pub fn weight_gradient<T: Float>(
    x: View<'_, T>,
    dy: View<'_, T>,
    mut dw: ViewMut<'_, T>,
    store: Store,
    _threads: usize,
) {
    if store == Store::Write {
        dw.fill(T::ZERO);
    }
    for i in 0..x.rows() {
        for (k, &xv) in x.row(i).iter().enumerate() {
            for (d, &g) in dw.row(k).iter_mut().zip(dy.row(i)) {
                *d += xv * g;
            }
        }
    }
}
/// Temporary.
pub fn bias_gradient<T: Float>(dy: View<'_, T>, db: &mut [T], store: Store) {
    if store == Store::Write {
        db.fill(T::ZERO);
    }
    for i in 0..dy.rows() {
        for (d, &g) in db.iter_mut().zip(dy.row(i)) {
            *d += g;
        }
    }
}
