//! Whose code makes the products of an element type: f32 has packed tiles for each CPU path, f64 the crate `matrixmultiply`.

use std::ops::Range;

use super::cpu::cpu;
use super::double;
use super::float::Store;
use super::gradient::{self, BiasGradient, GradientRoom, WeightGradient};
use super::path::Path;
use super::picked::RowSource;
use super::product::{self, Packed, Transpose};
use super::tile;
use super::view::{View, ViewMut};

/// The gradients of a weight and a bias, which are summed over the same rows.
pub struct Gradients<'a, T> {
    pub(super) x: RowSource<'a, T>,
    pub(super) dy: View<'a, T>,
    pub(super) dw: WeightGradient<'a, T>,
    pub(super) db: Option<BiasGradient<'a, T>>,
}

/// The products of an element type. Sealed: only `f32` and `f64` have them.
pub trait Products: Sized {
    /// Columns of a panel of a packed matrix of `n` columns.
    fn panel_width(path: Path, n: usize) -> usize;
    /// [`Packed::put`] of a part that fits.
    fn put(packed: &mut Packed<Self>, b: View<'_, Self>, transpose: Transpose, at: (usize, usize));
    /// [`product_panels`](product::product_panels).
    fn product(
        a: View<'_, Self>,
        b: &Packed<Self>,
        panels: Range<usize>,
        bias: Option<&[Self]>,
        c: ViewMut<'_, Self>,
        store: Store,
    );
    /// The gradients of a weight and a bias, on up to `threads` threads.
    fn gradients(all: Gradients<'_, Self>, room: &mut GradientRoom<Self>, threads: usize);
}

impl Products for f32 {
    fn panel_width(path: Path, n: usize) -> usize {
        tile::panel_vectors(path, n) * tile::lanes(path)
    }

    fn put(packed: &mut Packed<f32>, b: View<'_, f32>, transpose: Transpose, at: (usize, usize)) {
        product::put_in_panels(packed, b, transpose, at);
    }

    fn product(
        a: View<'_, f32>,
        b: &Packed<f32>,
        panels: Range<usize>,
        bias: Option<&[f32]>,
        c: ViewMut<'_, f32>,
        store: Store,
    ) {
        product::product_by_tiles(cpu(), a, b, panels, bias, c, store);
    }

    fn gradients(all: Gradients<'_, f32>, room: &mut GradientRoom<f32>, threads: usize) {
        gradient::by_tiles((Path::best(), cpu()), all, room, threads);
    }
}

impl Products for f64 {
    fn panel_width(_: Path, _: usize) -> usize {
        double::PANEL
    }

    fn put(packed: &mut Packed<f64>, b: View<'_, f64>, transpose: Transpose, at: (usize, usize)) {
        double::put(packed, b, transpose, at);
    }

    fn product(
        a: View<'_, f64>,
        b: &Packed<f64>,
        panels: Range<usize>,
        bias: Option<&[f64]>,
        c: ViewMut<'_, f64>,
        store: Store,
    ) {
        double::product(a, b, panels, bias, c, store);
    }

    fn gradients(all: Gradients<'_, f64>, _: &mut GradientRoom<f64>, threads: usize) {
        double::gradients(all, threads);
    }
}
