//! Matrix products in f32, computed by packed tiles; `product.rs` and `gradient.rs` describe the algorithms.

use std::ops::Range;

use super::cpu::cpu;
use super::float::Assign;
use super::path::Path;
use super::product;
use super::products::{GradientRoom, Gradients, PackedMatrix, Products, Transpose};
use super::view::{View, ViewMut};
use super::{gradient, tile};

impl Products for f32 {
    fn panel_width(path: Path, n: usize) -> usize {
        tile::panel_vectors(path, n) * tile::lanes(path)
    }

    fn put(packed: &mut PackedMatrix<f32>, b: View<'_, f32>, transpose: Transpose, at: (usize, usize)) {
        product::put_in_panels(packed, b, transpose, at);
    }

    fn product(
        a: View<'_, f32>,
        b: &PackedMatrix<f32>,
        panels: Range<usize>,
        bias: Option<&[f32]>,
        c: ViewMut<'_, f32>,
        assign: Assign,
    ) {
        product::product_by_tiles(cpu(), a, b, panels, bias, c, assign);
    }

    fn gradients(all: Gradients<'_, f32>, room: &mut GradientRoom<f32>, threads: usize) {
        gradient::by_tiles((Path::best(), cpu()), all, room, threads);
    }
}
