//! The precision of matrix products, and the unit of the CPU that computes them.
//!
//! In f32, products are computed by the vector instructions of the [`Path`]. In bf16, each operand is rounded to 8 bits of
//! mantissa, and sums are f32. Two kinds of instructions multiply bf16 numbers, and they sum in different orders, so their
//! results differ in bits: [`MatrixUnit::Bf16Pairs`] and [`MatrixUnit::Bf16Tiles`]. Each has a *twin*, plain code that computes
//! the same bits on every machine.

use std::sync::OnceLock;

use super::half::{fused, pairs, tiles};
use super::path::{Implementation, MatrixUnit, Path, Precision, ProductEngine};
use super::product::{ALIGNMENT, aligned};
use super::tile::{self, Size, Tile, TileFn};

impl MatrixUnit {
    /// Returns the unit of this CPU for a precision; `None` if the CPU has no unit for the precision.
    pub fn of_cpu(precision: Precision) -> Option<Self> {
        let fast = |unit: &Self| unit.is_fast();
        match precision {
            Precision::F32 => Some(MatrixUnit::F32),
            Precision::Bf16 => [MatrixUnit::Bf16Tiles, MatrixUnit::Bf16Pairs].into_iter().find(fast),
        }
    }

    /// Returns the precision of the operands.
    pub fn precision(self) -> Precision {
        match self {
            MatrixUnit::F32 => Precision::F32,
            MatrixUnit::Bf16Pairs | MatrixUnit::Bf16Tiles => Precision::Bf16,
        }
    }

    /// Returns whether this CPU computes the unit's products faster than products in f32. On any other CPU, fused multiply-adds in
    /// f32 or a twin compute the products, with the same bits, more slowly.
    pub fn is_fast(self) -> bool {
        match self {
            MatrixUnit::F32 => true,
            // On Intel's CPUs, the instruction does no more multiply-adds than f32.
            MatrixUnit::Bf16Pairs => self.is_native() && is_amd(),
            MatrixUnit::Bf16Tiles => self.is_native(),
        }
    }

    /// Returns whether this CPU computes the unit's products by vector instructions: by the unit's own, or by fused multiply-adds in
    /// f32, which are no faster than products in f32, except that a product of few rows reads half as many bytes.
    pub fn is_vectorised(self) -> bool {
        self.is_native() || has_fused()
    }

    /// Returns whether this CPU has the unit's instruction, and the instruction gives the bits of its twin.
    pub(crate) fn is_native(self) -> bool {
        static PAIRS: OnceLock<bool> = OnceLock::new();
        static TILES: OnceLock<bool> = OnceLock::new();
        match self {
            MatrixUnit::F32 => true,
            MatrixUnit::Bf16Pairs => *PAIRS.get_or_init(|| {
                pairs::has_instruction() && same_bits(ProductEngine::Pairs, Implementation::Instruction)
            }),
            MatrixUnit::Bf16Tiles => *TILES.get_or_init(|| {
                tiles::has_instruction() && same_bits(ProductEngine::Tiles, Implementation::Instruction)
            }),
        }
    }

    /// Returns the name of the instructions that compute the unit's products on this CPU, such as `avx2`, or `plain code`.
    pub fn instructions(self) -> &'static str {
        match self.engine() {
            ProductEngine::F32(path) => path.name(),
            ProductEngine::Pairs(Implementation::Instruction) => "vdpbf16ps",
            ProductEngine::Tiles(Implementation::Instruction) => "tdpbf16ps",
            ProductEngine::Pairs(Implementation::Fused) | ProductEngine::Tiles(Implementation::Fused) => {
                "fused multiply-adds in f32"
            }
            ProductEngine::Pairs(Implementation::Twin) | ProductEngine::Tiles(Implementation::Twin) => {
                "plain code"
            }
        }
    }

    /// Returns the engine that computes the unit's products on this CPU.
    pub(super) fn engine(self) -> ProductEngine {
        let by = || match (self.is_native(), has_fused()) {
            (true, _) => Implementation::Instruction,
            (false, true) => Implementation::Fused,
            (false, false) => Implementation::Twin,
        };
        match self {
            MatrixUnit::F32 => ProductEngine::F32(Path::best()),
            MatrixUnit::Bf16Pairs => ProductEngine::Pairs(by()),
            MatrixUnit::Bf16Tiles => ProductEngine::Tiles(by()),
        }
    }
}

fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = raw_cpuid::CpuId::new().get_vendor_info();
        vendor.is_some_and(|vendor| vendor.as_str() == "AuthenticAMD")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns the innermost loop of the products by a unit, on zeros in the nearest cache, for measurements. A run returns the number
/// of its operations.
pub(super) fn tile_loop(unit: MatrixUnit) -> impl FnMut() -> usize {
    let engine = unit.engine();
    let vectors = engine.panel_vectors(tile::PANEL_VECTORS * engine.lanes());
    let size = Size { rows: engine.max_rows(vectors), panels: 1, vectors };
    let (width, k) = (vectors * engine.lanes(), engine.words(LOOP_PRODUCTS));
    let spare = ALIGNMENT / size_of::<f32>();
    let (a, b) = (vec![0.0f32; size.rows * k + spare], vec![0.0f32; width * k + spare]);
    let (start_of_a, start_of_b) = (aligned(&a), aligned(&b));
    let mut c = vec![0.0f32; size.rows * width];
    let tile = engine.of_rows(size);
    move || {
        let t = Tile {
            rows: size.rows,
            panels: 1,
            k,
            a: a[start_of_a..].as_ptr(),
            a_stride: k,
            b: b[start_of_b..].as_ptr(),
            b_stride: 0,
            c: c.as_mut_ptr(),
            c_stride: width,
            columns: width,
            from: std::ptr::null(),
            from_stride: 0,
            ahead: 0,
            bias: std::ptr::null(),
            add: false,
        };
        // SAFETY: the operands have the sizes that the tile names, and the engine is one that this CPU has.
        unsafe { tile(&t) };
        std::hint::black_box(&c);
        2 * size.rows * width * LOOP_PRODUCTS
    }
}

/// The length of the sums in a loop that is measured: as long as in large models, and short enough that a panel stays in a core's
/// cache.
const LOOP_PRODUCTS: usize = 1024;

impl ProductEngine {
    /// Returns the number of columns in a vector of a panel.
    pub(super) fn lanes(self) -> usize {
        match self {
            ProductEngine::F32(path) => tile::lanes(path),
            ProductEngine::Pairs(_) | ProductEngine::Tiles(_) => 16,
        }
    }

    /// Returns the number of vectors per panel for a matrix of `columns` columns.
    pub(super) fn panel_vectors(self, columns: usize) -> usize {
        match self {
            ProductEngine::F32(path) => tile::panel_vectors(path, columns),
            ProductEngine::Pairs(_) | ProductEngine::Tiles(_) => tile::PANEL_VECTORS,
        }
    }

    /// Returns the maximum number of rows of a tile whose panels have `vectors` vectors.
    pub(super) fn max_rows(self, vectors: usize) -> usize {
        match self {
            ProductEngine::F32(path) => tile::max_rows(path, vectors),
            ProductEngine::Pairs(_) => tile::max_rows(Path::Avx512, vectors),
            ProductEngine::Tiles(_) => tiles::MAX_ROWS,
        }
    }

    /// Returns the maximum number of panels for a tile of `rows` rows.
    pub(super) fn max_panels(self, vectors: usize, rows: usize) -> usize {
        match self {
            ProductEngine::F32(path) => tile::max_panels(path, vectors, rows),
            ProductEngine::Tiles(by) if by_rows(by, rows) != Implementation::Fused => 1,
            ProductEngine::Pairs(_) | ProductEngine::Tiles(_) => {
                tile::max_panels(Path::Avx512, vectors, rows)
            }
        }
    }

    /// Returns the number of words that one sum over `k` products reads of each operand; words beyond the k numbers are 0.
    pub(super) fn words(self, k: usize) -> usize {
        match self {
            ProductEngine::F32(_) => k,
            ProductEngine::Pairs(_) => k.div_ceil(2),
            ProductEngine::Tiles(_) => k.div_ceil(2).next_multiple_of(tiles::WORDS),
        }
    }

    /// Returns the number of words whose products are summed together: sums may be stored and continued at a multiple of this
    /// number.
    pub(super) fn step(self) -> usize {
        if let ProductEngine::Tiles(_) = self { tiles::WORDS } else { 1 }
    }

    pub(super) fn is_f32(self) -> bool {
        matches!(self, ProductEngine::F32(_))
    }

    /// Returns the function of a tile that reads rows of `a`.
    pub(super) fn of_rows(self, size: Size) -> TileFn {
        match self {
            ProductEngine::F32(path) => tile::of_rows(path, size),
            ProductEngine::Pairs(Implementation::Fused) => fused::of_rows(false),
            ProductEngine::Pairs(by) => pairs::of_rows(by, size),
            ProductEngine::Tiles(by) => match by_rows(by, size.rows) {
                Implementation::Fused => fused::of_rows(true),
                by => tiles::of_rows(by),
            },
        }
    }
}

/// Returns what computes a tile of `rows` rows with the bits of `tdpbf16ps`.
fn by_rows(by: Implementation, rows: usize) -> Implementation {
    let few = by == Implementation::Instruction && rows <= fused::FEW_ROWS && has_fused();
    if few { Implementation::Fused } else { by }
}

/// Returns whether fused multiply-adds compute the bits of both units on this CPU.
fn has_fused() -> bool {
    static FUSED: OnceLock<bool> = OnceLock::new();
    let same = |engine| same_bits(engine, Implementation::Fused);
    *FUSED.get_or_init(|| fused::is_available() && same(ProductEngine::Pairs) && same(ProductEngine::Tiles))
}

/// Returns whether an engine gives the bits of its twin, for operands of all magnitudes. A CPU or an emulator whose instruction
/// differs is treated as a CPU without the instruction.
fn same_bits(engine: fn(Implementation) -> ProductEngine, by: Implementation) -> bool {
    const WORDS: usize = 3 * tiles::WORDS;
    let rows = engine(Implementation::Twin).max_rows(tile::PANEL_VECTORS);
    let a = awkward_pairs((rows, WORDS), 1, |at| at / WORDS);
    let b = awkward_pairs((WORDS, pairs::WIDTH), 2, |at| at % pairs::WIDTH);
    let [ours, theirs] = [by, Implementation::Twin].map(|by| {
        let mut c = vec![0.0f32; rows * pairs::WIDTH];
        let tile = Tile {
            rows,
            panels: 1,
            k: WORDS,
            a: a.as_ptr(),
            a_stride: WORDS,
            b: b.as_ptr(),
            b_stride: 0,
            c: c.as_mut_ptr(),
            c_stride: pairs::WIDTH,
            columns: pairs::WIDTH,
            from: std::ptr::null(),
            from_stride: 0,
            ahead: 0,
            bias: std::ptr::null(),
            add: false,
        };
        // SAFETY: the operands have the sizes that `tile` names. The caller has checked that the CPU has the instruction.
        unsafe { engine(by).of_rows(Size { rows, panels: 1, vectors: tile::PANEL_VECTORS })(&tile) };
        c
    });
    ours.iter().zip(&theirs).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

/// Returns a matrix of pairs of bf16 numbers without a pattern, to test an instruction. `line` returns the row or the column of
/// an index. In every fourth line, the numbers are near the square root of the smallest normal number, so that the products of
/// two such lines are near the smallest normal number. Of the other numbers, most are near 1, and a few are zero, of any
/// magnitude, infinite or NaN.
pub(super) fn awkward_pairs(
    (rows, width): (usize, usize),
    seed: u64,
    line: impl Fn(usize) -> usize,
) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut number = |line: usize| {
        let (kind, bits) = (next() % 512, next() >> 16);
        match (line % 4, kind) {
            (0, _) => bits & 0x80ff | 0x2000,
            (1, 0) => 0x7f80,
            (1, 1) => 0x7fc0,
            (1, 2..8) => bits & 0xff7f | 0x0100,
            (_, 8..16) => bits & 0x8000,
            (_, 16..64) => bits & 0xbfff | 0x0080,
            _ => bits & 0x80ff | 0x3f00,
        }
    };
    let mut pair = |line| f32::from_bits(number(line) | number(line) << 16);
    (0..rows * width).map(|at| pair(line(at))).collect()
}
