//! The sums of products of codes, by the instructions of a CPU.

use std::sync::OnceLock;

use crate::kernels::half::tiles;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use CodeInstructions::{Pairs, Plain, Quads, Tiles};

/// The number of columns of a panel.
pub(super) const WIDTH: usize = 32;
/// The number of codes in a word.
pub(super) const CODES: usize = 4;
/// One word of each column of a panel.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct PanelRow(pub(super) [[i8; CODES]; WIDTH]);

/// The sums of one row of a product over the columns of a panel.
pub(super) type PanelSums = [i32; WIDTH];

/// The maximum number of rows times panels of one call of [`IntegerEngine::multiply`].
pub(super) const MAX_SUMS: usize = tiles::MAX_ROWS;

/// What sums products of codes. All engines compute the same integers. Only [`Self::available`] makes engines, so the CPU has the
/// instructions of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IntegerEngine(CodeInstructions);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodeInstructions {
    /// The tile registers of AMX, for five rows or more; `vpdpbusd` of AVX-512 for fewer rows.
    Tiles,
    /// `vpdpbusd` of AVX-512 VNNI.
    Quads,
    /// `vpmaddwd` of AVX2.
    Pairs,
    Plain,
}

impl IntegerEngine {
    /// Returns the fastest engine of this CPU whose sums are exact.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<IntegerEngine> = OnceLock::new();
        *BEST.get_or_init(|| {
            Self::available().into_iter().find(|engine| engine.is_exact()).unwrap_or(Self(Plain))
        })
    }

    /// Returns the number of multiply-adds (about twenty microseconds) below which a second thread costs more than it gains.
    pub(super) fn worth_a_thread(self) -> usize {
        match self.0 {
            Tiles | Quads => 1 << 22,
            Pairs | Plain => 1 << 21,
        }
    }

    /// Returns whether the engine gives the sums of plain code for codes of every sign, with as many rows as a call takes. An
    /// instruction that does not, such as one that an emulator gets wrong, is not used.
    fn is_exact(self) -> bool {
        let words = tiles::WORDS;
        let (rows, panels) = self.size(MAX_SUMS, words);
        let byte = |i: usize| (i * 37 + i / 7) as u8;
        let a: Vec<i32> =
            (0..rows * words).map(|i| i32::from_le_bytes([0, 1, 2, 3].map(|k| byte(4 * i + k)))).collect();
        let code = |i: usize, column: usize, k: usize| byte(i * 131 + column * 5 + k * 11) as i8;
        let row = |i: usize| PanelRow(std::array::from_fn(|column| [0, 1, 2, 3].map(|k| code(i, column, k))));
        let b: Vec<PanelRow> = (0..panels * words).map(row).collect();
        let result = |engine: Self| {
            let mut sums = [[0; WIDTH]; MAX_SUMS];
            engine.multiply(&a, &b, (rows, panels, words), &mut sums);
            sums
        };
        result(self) == result(Self(Plain))
    }

    /// Returns the name of the engine in reports.
    pub(super) fn name(self) -> &'static str {
        match self.0 {
            Tiles => "int8-amx",
            Quads => "int8-avx512",
            Pairs => "int8-avx2",
            Plain => "int8",
        }
    }

    /// Returns all engines of this CPU, the fastest first.
    pub(super) fn available() -> Vec<Self> {
        let mut engines = vec![];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                if tiles::has_codes() {
                    engines.push(Self(Tiles));
                }
                engines.push(Self(Quads));
            }
            if is_x86_feature_detected!("avx2") {
                engines.push(Self(Pairs));
            }
        }
        engines.push(Self(Plain));
        engines
    }

    /// Returns how many of `rows` rows the next call of [`Self::multiply`] should take, and of how many panels, for columns of
    /// `words` words.
    pub(super) fn size(self, rows: usize, words: usize) -> (usize, usize) {
        match (self.0, rows) {
            (Tiles, 5..) if words.is_multiple_of(tiles::WORDS) => (rows.min(tiles::MAX_ROWS), 1),
            (Tiles | Quads, 4..) => (4, 2),
            (Tiles | Quads, 2..) => (2, 2),
            (Tiles | Quads, _) => (1, 4),
            (Pairs | Plain, 4..) => (4, 1),
            (Pairs | Plain, 2..) => (2, 1),
            (Pairs | Plain, _) => (1, 1),
        }
    }

    /// Writes the sums of `rows` rows and `panels` panels to `sums`, row by row. `a` has `words` words per row, and `b` has as
    /// many rows per panel. The size is one of [`Self::size`], or the rows of one size with the panels of another size.
    pub(super) fn multiply(
        self,
        a: &[i32],
        b: &[PanelRow],
        (rows, panels, words): (usize, usize, usize),
        sums: &mut [PanelSums],
    ) {
        assert!(a.len() == rows * words && b.len() == panels * words && rows * panels <= sums.len());
        #[cfg(target_arch = "x86_64")]
        match (self.0, rows, panels) {
            #[cfg(target_os = "linux")]
            (Tiles, 5.., 1) => {
                // SAFETY: `available` has checked that this CPU has the instructions.
                return unsafe { tiles::sum_codes(a, words_of(b), &mut sums[..rows]) };
            }
            (Tiles | Quads, ..) => {
                // SAFETY: `available` has checked that this CPU has the instructions.
                return unsafe {
                    match (rows, panels) {
                        (4, 2) => x86::quads::<4, 2>(a, b, words, sums),
                        (4, 1) => x86::quads::<4, 1>(a, b, words, sums),
                        (2, 2) => x86::quads::<2, 2>(a, b, words, sums),
                        (2, 1) => x86::quads::<2, 1>(a, b, words, sums),
                        (1, 4) => x86::quads::<1, 4>(a, b, words, sums),
                        (1, 2) => x86::quads::<1, 2>(a, b, words, sums),
                        (1, 1) => x86::quads::<1, 1>(a, b, words, sums),
                        _ => unreachable!("{rows} rows of {panels} panels"),
                    }
                };
            }
            (Pairs, ..) => {
                // SAFETY: `available` has checked that this CPU has the instructions.
                return unsafe {
                    match (rows, panels) {
                        (4, 1) => x86::pairs::<4, 2>(a, b, words, sums),
                        (2, 1) => x86::pairs::<2, 4>(a, b, words, sums),
                        (1, 1) => x86::pairs::<1, 4>(a, b, words, sums),
                        _ => unreachable!("{rows} rows of {panels} panels"),
                    }
                };
            }
            (Plain, ..) => {}
        }
        sweep(PlainSums { a, b, words, sums });
    }
}

struct PlainSums<'a> {
    a: &'a [i32],
    b: &'a [PanelRow],
    words: usize,
    sums: &'a mut [PanelSums],
}

impl Sweep for PlainSums<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { a, b, words, sums } = self;
        let panels = b.len() / words.max(1);
        for (i, sums) in sums[..a.len() / words.max(1) * panels].iter_mut().enumerate() {
            *sums = [0; WIDTH];
            let (row, panel) = (&a[i / panels * words..][..words], &b[i % panels * words..][..words]);
            for (word, columns) in row.iter().zip(panel) {
                let codes = word.to_le_bytes().map(i32::from);
                for (sum, column) in sums.iter_mut().zip(&columns.0) {
                    for index in 0..CODES {
                        *sum += codes[index] * i32::from(column[index]);
                    }
                }
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn words_of(rows: &[PanelRow]) -> &[[i32; WIDTH]] {
    // SAFETY: a row of a panel has the size of 32 words and more than their alignment.
    unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), rows.len()) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_load_si256, _mm256_madd_epi16, _mm256_set1_epi32,
        _mm256_setzero_si256, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_srli_epi16, _mm256_storeu_si256,
        _mm512_dpbusd_epi32, _mm512_load_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use super::{PanelRow, PanelSums};

    /// The numbers of columns in a vector of 512 bits, and in a vector of 256 bits.
    const WIDE: usize = 16;
    const NARROW: usize = 8;

    /// Computes `R` rows of `P` panels by `vpdpbusd`.
    #[expect(clippy::needless_range_loop, reason = "the loops name registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn quads<const R: usize, const P: usize>(
        a: &[i32],
        b: &[PanelRow],
        words: usize,
        sums: &mut [PanelSums],
    ) {
        let (a, b, sums) = (&a[..R * words], &b[..P * words], &mut sums[..R * P]);
        let mut held = [[[_mm512_setzero_si512(); 2]; P]; R];
        for word in 0..words {
            for p in 0..P {
                for half in 0..2 {
                    let columns = b[p * words + word].0[half * WIDE..][..WIDE].as_ptr();
                    // SAFETY: the pointer is valid for 16 columns of 4 bytes, and a row of a panel is aligned to 64 bytes.
                    let columns = unsafe { _mm512_load_si512(columns.cast()) };
                    for r in 0..R {
                        let row = _mm512_set1_epi32(a[r * words + word]);
                        held[r][p][half] = _mm512_dpbusd_epi32(held[r][p][half], row, columns);
                    }
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                for (half, &held) in held[r][p].iter().enumerate() {
                    let to = sums[r * P + p][half * WIDE..][..WIDE].as_mut_ptr();
                    // SAFETY: the pointer is valid for 16 sums.
                    unsafe { _mm512_storeu_si512(to.cast(), held) };
                }
            }
        }
    }

    /// Computes `R` rows of one panel, `V` vectors of columns at a time, by `vpmaddwd`: the codes with even and with odd places
    /// are extended to 16 bits, multiplied and summed in pairs.
    #[expect(clippy::needless_range_loop, reason = "the loops name registers")]
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs<const R: usize, const V: usize>(
        a: &[i32],
        b: &[PanelRow],
        words: usize,
        sums: &mut [PanelSums],
    ) {
        let (a, b, sums) = (&a[..R * words], &b[..words], &mut sums[..R]);
        let low = _mm256_set1_epi32(0x00ff_00ff);
        for first in (0..super::WIDTH / NARROW).step_by(V) {
            let mut held = [[_mm256_setzero_si256(); V]; R];
            for (word, columns) in b.iter().enumerate() {
                let mut even = [_mm256_setzero_si256(); R];
                let mut odd = [_mm256_setzero_si256(); R];
                for r in 0..R {
                    let row = _mm256_set1_epi32(a[r * words + word]);
                    even[r] = _mm256_and_si256(row, low);
                    odd[r] = _mm256_srli_epi16::<8>(row);
                }
                for v in 0..V {
                    let columns = columns.0[(first + v) * NARROW..][..NARROW].as_ptr();
                    // SAFETY: the pointer is valid for 8 columns of 4 bytes, and aligned to 32 bytes as a row of a panel is.
                    let columns: __m256i = unsafe { _mm256_load_si256(columns.cast()) };
                    let even_columns = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(columns));
                    let odd_columns = _mm256_srai_epi16::<8>(columns);
                    for r in 0..R {
                        let both = _mm256_add_epi32(
                            _mm256_madd_epi16(even[r], even_columns),
                            _mm256_madd_epi16(odd[r], odd_columns),
                        );
                        held[r][v] = _mm256_add_epi32(held[r][v], both);
                    }
                }
            }
            for r in 0..R {
                for (v, &held) in held[r].iter().enumerate() {
                    let to = sums[r][(first + v) * NARROW..][..NARROW].as_mut_ptr();
                    // SAFETY: the pointer is valid for 8 sums.
                    unsafe { _mm256_storeu_si256(to.cast(), held) };
                }
            }
        }
    }
}
