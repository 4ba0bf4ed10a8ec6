//! Matrix products in f32 and bf16, computed by packed tiles; `product.rs` and `gradient.rs` describe the algorithms.

use std::ops::Range;

use ::half::bf16;

use super::cpu::cpu;
use super::float::Assign;
use super::gradient;
use super::half;
use super::panels::{self, PanelCopy};
use super::path::ProductEngine;
use super::product;
use super::products::{
    Corner, GradientRoom, Gradients, LeftMatrix, PackedMatrix, Products, ResultMatrix, RoundedRows, Transpose,
};
use super::view::{View, ViewMut};

impl Products for f32 {
    fn panel_width(engine: ProductEngine, n: usize) -> usize {
        engine.panel_vectors(n) * engine.lanes()
    }

    fn words(engine: ProductEngine, k: usize) -> usize {
        engine.words(k)
    }

    fn clear_ends(packed: &mut PackedMatrix<f32>) {
        let (words, full) = (packed.words(), packed.k / 2);
        if packed.engine.is_f32() || words == full {
            return;
        }
        let (width, panels) = (packed.width, packed.panels());
        for panel in packed.numbers_mut()[..panels * width * words].chunks_exact_mut(width * words) {
            panel[full * width..].fill(0.0);
        }
    }

    fn left<'a>(
        engine: ProductEngine,
        a: LeftMatrix<'a, f32>,
        room: &'a mut RoundedRows<f32>,
        threads: usize,
    ) -> View<'a, f32> {
        half::pack::left(engine, a, &mut room.0, threads)
    }

    fn put(to: &mut PackedMatrix<f32>, b: View<'_, f32>, transpose: Transpose, at: Corner, threads: usize) {
        let copy: fn(PanelCopy<'_>) = match to.engine {
            ProductEngine::F32(path) => panels::copy_numbers(path, transpose),
            ProductEngine::Pairs(_) | ProductEngine::Tiles(_) => half::pack::copy_pairs,
        };
        PanelCopy::new(to, b, transpose, at).divide(copy, threads);
    }

    fn product(
        a: View<'_, f32>,
        b: &PackedMatrix<f32>,
        panels: Range<usize>,
        bias: Option<&[f32]>,
        c: ResultMatrix<'_, f32>,
        assign: Assign,
    ) {
        product::product_by_tiles(cpu(), a, b, panels, bias, c, assign);
    }

    fn round_to_bf16(from: View<'_, f32>, to: ViewMut<'_, bf16>) {
        half::pack::round_rows(from, to, false);
    }

    #[inline(always)]
    fn from_bf16(number: bf16) -> f32 {
        f32::from_bits(u32::from(number.to_bits()) << 16)
    }

    fn gradients(all: Gradients<'_, f32>, room: &mut GradientRoom<f32>, threads: usize) {
        let engine = all.unit.engine();
        let blocks = if engine.is_f32() { gradient::blocks } else { half::gradient::blocks };
        gradient::by_tiles(blocks, (engine, cpu()), all, room, threads);
    }
}
