//! Tiles in bf16 by fused multiply-adds in f32, with the bits of either instruction.
//!
//! A product of two bf16 numbers has at most 16 bits, so a fused multiply-add in f32 rounds once, as the instructions do. The
//! instructions treat subnormal numbers as zeros; the CPU does the same while its flags FTZ and DAZ are set. These tiles serve CPUs
//! without the instructions, and products of few rows, for which loading the tile registers of AMX takes longer than the sums.

use super::super::tile::TileFn;

/// The largest number of rows of a tile that is computed faster than by the tile registers.
pub(in crate::kernels) const FEW_ROWS: usize = 4;

/// Returns whether this CPU has fused multiply-adds and the flags.
pub(in crate::kernels) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::kernels::path::Path;
        matches!(Path::best(), Path::Avx512 | Path::Avx2)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns the function of a tile that sums in the order of `tdpbf16ps`, or else of `vdpbf16ps`.
///
/// # Panics
/// If [`is_available`] is false.
pub(in crate::kernels) fn of_rows(tiles: bool) -> TileFn {
    assert!(is_available(), "fused tiles on a CPU without them");
    #[cfg(target_arch = "x86_64")]
    return if tiles { x86::tile::<true> } else { x86::tile::<false> };
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("{tiles}")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256, __m512, _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_set1_epi32,
        _mm256_slli_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_set1_epi32,
        _mm512_slli_epi32,
    };
    use std::mem::MaybeUninit;

    use super::super::super::tile::{MAX_LANES, Tile, Vector, finish, start};
    use super::super::numbers_of;
    use super::super::pairs::WIDTH;
    use super::super::tiles::{MAX_ROWS, WORDS};
    use super::FEW_ROWS;
    use crate::kernels::path::Path;
    use crate::kernels::prefetch;

    /// A vector of words, which are pairs of bf16 numbers.
    trait PairWords: Vector {
        /// Returns the even and the odd number of each pair, in f32.
        unsafe fn numbers(self) -> (Self, Self);
    }

    macro_rules! words {
        ($vector:ty, $to:ident, $from:ident, $shift:ident, $and:ident, $splat:ident) => {
            impl PairWords for $vector {
                #[inline(always)]
                unsafe fn numbers(self) -> (Self, Self) {
                    // SAFETY: the caller guarantees that the CPU has the instructions.
                    unsafe {
                        let words = $to(self);
                        ($from($shift::<16>(words)), $from($and(words, $splat(0xffff_0000_u32 as i32))))
                    }
                }
            }
        };
    }

    words!(
        __m256,
        _mm256_castps_si256,
        _mm256_castsi256_ps,
        _mm256_slli_epi32,
        _mm256_and_si256,
        _mm256_set1_epi32
    );
    words!(
        __m512,
        _mm512_castps_si512,
        _mm512_castsi512_ps,
        _mm512_slli_epi32,
        _mm512_and_si512,
        _mm512_set1_epi32
    );

    /// A tile and its sums: rows of the first panel, then rows of the second panel, and so on.
    struct TileSums<'a> {
        tile: &'a Tile,
        panels: usize,
        sums: &'a mut [[f32; WIDTH]],
    }

    /// How many words before a word of few rows is read it is prefetched: 4 KiB.
    const AHEAD: usize = 1024;

    /// Adds the products of up to [`WORDS`] words, from the word `first` on, to the sums of `ROWS` rows from `row` on of a panel.
    /// `COLUMNS` vectors of columns are summed at a time, as many as leave registers for the operands.
    ///
    /// # Safety
    /// The CPU has the instructions of the vector; the tile has these rows, words and panels.
    #[expect(clippy::needless_range_loop, reason = "rows and columns are places in several arrays")]
    #[inline(always)]
    unsafe fn add<V: PairWords, const ROWS: usize, const COLUMNS: usize, const TILES: bool>(
        tiles: &mut TileSums<'_>,
        (row, first, panel): (usize, usize, usize),
    ) {
        let (t, count) = (tiles.tile, WORDS.min(tiles.tile.k - first));
        let sums_at = panel * t.rows + row;
        let ahead = if t.rows <= FEW_ROWS { AHEAD } else { 0 };
        let (mut even, mut odd) = ([[0.0; WORDS]; ROWS], [[0.0; WORDS]; ROWS]);
        // SAFETY: the caller guarantees the rows and the words; a row of sums and of the panel has `WIDTH` columns.
        unsafe {
            for i in 0..ROWS {
                let a = t.a.wrapping_add((row + i) * t.a_stride + first);
                for k in 0..count {
                    (even[i][k], odd[i][k]) = numbers_of(*a.add(k));
                }
            }
            for column in (0..WIDTH).step_by(COLUMNS * V::LANES) {
                let zero = V::splat(0.0);
                let (mut sums, mut odd_sums) = ([[zero; COLUMNS]; ROWS], [[zero; COLUMNS]; ROWS]);
                if const { !TILES } {
                    for i in 0..ROWS {
                        for v in 0..COLUMNS {
                            sums[i][v] = V::load(tiles.sums[sums_at + i][column + v * V::LANES..].as_ptr());
                        }
                    }
                }
                for k in 0..count {
                    let b = t.b.add(panel * t.b_stride + (first + k) * WIDTH + column);
                    for v in 0..COLUMNS {
                        if (v * V::LANES).is_multiple_of(MAX_LANES) {
                            prefetch::to_read(b.wrapping_add(v * V::LANES + ahead));
                        }
                        let (b_even, b_odd) = V::load(b.add(v * V::LANES)).numbers();
                        for i in 0..ROWS {
                            let (even, odd) = (V::splat(even[i][k]), V::splat(odd[i][k]));
                            if const { TILES } {
                                sums[i][v] = even.mul_add(b_even, sums[i][v]);
                                odd_sums[i][v] = odd.mul_add(b_odd, odd_sums[i][v]);
                            } else {
                                sums[i][v] = even.mul_add(b_even, odd.mul_add(b_odd, sums[i][v]));
                            }
                        }
                    }
                }
                for i in 0..ROWS {
                    for v in 0..COLUMNS {
                        let to = tiles.sums[sums_at + i][column + v * V::LANES..].as_mut_ptr();
                        if const { TILES } {
                            sums[i][v] = V::load(to).add(sums[i][v].add(odd_sums[i][v]));
                        }
                        sums[i][v].store(to);
                    }
                }
            }
        }
    }

    /// Defines a function that computes the sums of a tile with the given target features; a block of 4, 2 or 1 rows sums the given
    /// number of vectors of columns at a time. All panels advance together, so that their words arrive in several streams.
    macro_rules! tile_sums {
        ($name:ident, $vector:ty, $feature:meta, $four:expr, $two:expr, $one:expr) => {
            #[$feature]
            unsafe extern "sysv64" fn $name<const TILES: bool>(sums: &mut TileSums<'_>) {
                for first in (0..sums.tile.k).step_by(WORDS) {
                    for panel in 0..sums.panels {
                        let mut row = 0;
                        while row < sums.tile.rows {
                            // SAFETY: the caller guarantees the instructions; the rows, words and panels are the tile's.
                            row += unsafe {
                                match sums.tile.rows - row {
                                    1 => (add::<$vector, 1, { $one }, TILES>(sums, (row, first, panel)), 1).1,
                                    2 | 3 => {
                                        (add::<$vector, 2, { $two }, TILES>(sums, (row, first, panel)), 2).1
                                    }
                                    _ => {
                                        (add::<$vector, 4, { $four }, TILES>(sums, (row, first, panel)), 4).1
                                    }
                                }
                            };
                        }
                    }
                }
            }
        };
    }

    tile_sums!(avx512, __m512, target_feature(enable = "avx512f,avx2,fma"), 2, 2, 2);
    tile_sums!(avx2, __m256, target_feature(enable = "avx2,fma"), 1, 2, 4);

    /// Calls `sum` while the CPU flushes subnormal operands (DAZ) and results (FTZ) to zero, rounds to nearest and traps nothing.
    /// Inside one block of assembly, the compiler moves no arithmetic between the two changes of the flags.
    ///
    /// # Safety
    /// As for `sum`.
    unsafe fn flushing(sum: unsafe extern "sysv64" fn(&mut TileSums<'_>), sums: &mut TileSums<'_>) {
        let flushes: u32 = 0x1f80 | 1 << 15 | 1 << 6;
        let mut before = 0u32;
        // SAFETY: the caller guarantees what `sum` needs. The block restores the flags, and names what a call may change.
        unsafe {
            asm!(
                "stmxcsr [r12]",
                "ldmxcsr [r13]",
                "call r14",
                "ldmxcsr [r12]",
                in("r12") &raw mut before,
                in("r13") &raw const flushes,
                in("r14") sum,
                inout("rdi") &raw mut *sums => _,
                clobber_abi("sysv64"),
            );
        }
    }

    /// Computes a tile.
    ///
    /// # Safety
    /// See [`TileFn`](super::TileFn).
    pub(super) unsafe fn tile<const TILES: bool>(t: &Tile) {
        let sum = if Path::best() == Path::Avx512 { avx512::<TILES> } else { avx2::<TILES> };
        let panels = t.columns.div_ceil(WIDTH).min(t.panels);
        let mut room = MaybeUninit::<[[f32; WIDTH]; MAX_ROWS]>::uninit();
        assert!(panels * t.rows <= MAX_ROWS, "the sums of a tile");
        // SAFETY: the caller of the tile guarantees `rows` rows of `a` and `c`, `panels` panels, and `columns` columns. The sums
        // that are used are set to 0 first.
        unsafe {
            let room = room.as_mut_ptr().cast::<[f32; WIDTH]>();
            room.write_bytes(0, panels * t.rows);
            let sums = std::slice::from_raw_parts_mut(room, panels * t.rows);
            let each = |sums: &mut [[f32; WIDTH]], then: unsafe fn(&mut [f32], &Tile, _)| {
                for (at, sums) in sums.iter_mut().enumerate() {
                    let (row, column) = (at % t.rows, at / t.rows * WIDTH);
                    then(sums, t, (row, column, WIDTH.min(t.columns - column)));
                }
            };
            each(sums, start);
            flushing(sum, &mut TileSums { tile: t, panels, sums });
            each(sums, finish);
        }
    }
}
