//! Tiles in bf16 by the tile registers of AMX, and their twin; sums of products of 8-bit integers by the same registers.
//!
//! A tile register has up to 16 rows of 64 bytes. The instruction `tdpbf16ps` multiplies 16 rows of 16 pairs by 16 rows of 16
//! columns of pairs. A tile of a product takes two registers of rows and two of columns, and so four of sums.

use super::super::tile::{Tile, TileFn, finish, start};
use super::{add_product, numbers_of, rounded};
use crate::kernels::path::{Arithmetic, Implementation, Sweep, sweep};

/// The number of pairs in a row of a tile register, whose products one instruction sums.
pub(in crate::kernels) const WORDS: usize = 16;
/// The maximum number of rows of a tile: two registers.
pub(in crate::kernels) const MAX_ROWS: usize = 32;
/// The number of columns of a panel: two registers.
const WIDTH: usize = 32;

/// Returns whether this CPU has the instruction, and the system lets the process use it.
pub(in crate::kernels) fn has_instruction() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        x86::has_instruction(|cpu| cpu.has_amx_bf16())
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Returns whether this CPU multiplies codes of 8 bits in tile registers, and the system lets the process use it.
pub(in crate::kernels) fn has_codes() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        x86::has_instruction(|cpu| cpu.has_amx_int8())
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Computes the sums of products of the codes of up to [`MAX_ROWS`] rows, bytes without a sign, and of a panel of 32 columns, bytes
/// with a sign. A word has four codes. `a` has `words` words per row, a multiple of [`WORDS`], and `b` has a row of words for each
/// word of a row of `a`.
///
/// # Safety
/// [`has_codes`] is true.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(in crate::kernels) unsafe fn sum_codes(a: &[i32], b: &[[i32; WIDTH]], sums: &mut [[i32; WIDTH]]) {
    let (words, rows) = (b.len(), sums.len());
    assert!(words.is_multiple_of(WORDS) && rows <= MAX_ROWS && a.len() == rows * words);
    let none = std::ptr::null();
    let t = Tile {
        rows,
        panels: 1,
        k: words,
        a: a.as_ptr().cast(),
        a_stride: words,
        b: b.as_ptr().cast(),
        b_stride: 0,
        c: std::ptr::null_mut(),
        c_stride: 0,
        columns: WIDTH,
        from: none,
        from_stride: 0,
        ahead: 0,
        bias: none,
        add: false,
    };
    // SAFETY: the caller guarantees the instructions; the lengths were checked.
    unsafe { x86::codes(&t, sums) }
}

/// Returns the function of a tile that reads rows of `a`.
pub(in crate::kernels) fn of_rows(by: Implementation) -> TileFn {
    match by {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        Implementation::Instruction => x86::tile,
        _ => twin,
    }
}

/// Computes a tile as the instruction does.
///
/// # Safety
/// See [`TileFn`].
unsafe fn twin(t: &Tile) {
    sweep(TilesTwin(t));
}

struct TilesTwin<'a>(&'a Tile);

impl Sweep for TilesTwin<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let t = self.0;
        let columns = WIDTH.min(t.columns);
        for row in 0..t.rows {
            let mut sums = [0.0f32; WIDTH];
            // SAFETY: the caller of the tile guarantees `rows` rows of `a` and `c`, a panel, and `columns` columns.
            unsafe {
                start(&mut sums, t, (row, 0, columns));
                for first in (0..t.k).step_by(WORDS) {
                    let (mut even_sums, mut odd_sums) = ([0.0f32; WIDTH], [0.0f32; WIDTH]);
                    for k in first..first + WORDS {
                        let (even, odd) = numbers_of(*t.a.wrapping_add(row * t.a_stride + k));
                        let b = t.b.add(k * WIDTH).cast::<[f32; WIDTH]>().read_unaligned();
                        for ((even_sum, odd_sum), b) in even_sums.iter_mut().zip(&mut odd_sums).zip(b) {
                            let (b_even, b_odd) = numbers_of(b);
                            *even_sum = add_product(*even_sum, even, b_even);
                            *odd_sum = add_product(*odd_sum, odd, b_odd);
                        }
                    }
                    for ((sum, even), odd) in sums.iter_mut().zip(even_sums).zip(odd_sums) {
                        let both = rounded(f64::from(even) + f64::from(odd));
                        *sum = rounded(f64::from(*sum) + f64::from(both));
                    }
                }
                finish(&mut sums, t, (row, 0, columns));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86 {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    use raw_cpuid::{CpuId, ExtendedFeatures};

    use super::super::super::tile::{Tile, finish, start};
    use super::{MAX_ROWS, WIDTH, WORDS};

    /// The bits of the tile registers in the state that the system saves for a process: their shapes, and their contents.
    const TILE_STATE: u32 = 0b11 << 17;

    /// Returns whether this CPU has tile registers and the instruction that `has` asks for, and the system lets the process use
    /// them.
    pub(super) fn has_instruction(has: fn(&ExtendedFeatures) -> bool) -> bool {
        let cpu = CpuId::new();
        let features = cpu.get_extended_feature_info();
        let has_tiles = features.is_some_and(|cpu| cpu.has_amx_tile() && has(&cpu));
        let saves = cpu.get_feature_info().is_some_and(|cpu| cpu.has_oxsave());
        has_tiles && saves && saved_state() & TILE_STATE == TILE_STATE && is_permitted()
    }

    /// Returns which registers the system saves for a process, by bits (`XCR0`).
    fn saved_state() -> u32 {
        let low: u32;
        // SAFETY: the caller has checked that the CPU has `xgetbv` and that the system has enabled it; the instruction reads a
        // register.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
        }
        low
    }

    /// Asks the system for the permission to use the tile registers, for all threads of the process.
    fn is_permitted() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const REQUEST: i64 = 0x1023;
        const TILE_DATA: i64 = 18;
        let refused: i64;
        // SAFETY: the call of the system changes only what the process may do; it writes no memory of the process.
        unsafe {
            asm!("syscall", inlateout("rax") ARCH_PRCTL => refused, in("rdi") REQUEST, in("rsi") TILE_DATA,
                lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        refused == 0
    }

    /// The shapes of the tile registers, as the CPU reads them.
    #[repr(C, align(64))]
    struct TileShapes {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Sums the products of a tile in `$room`, rows of sums: sums in the registers 0 to 3, rows in 4 and 5, columns in 6 and 7.
    /// `$multiply` is the instruction; `$start` fills the rows of sums if the tile does not start at 0.
    macro_rules! sum {
        ($t:expr, $rows:expr, $room:expr, $multiply:literal, $start:expr) => {{
            let (t, rows, room): (&Tile, usize, *mut [f32; WIDTH]) = ($t, $rows, $room);
            let (above, below) = (rows.min(MAX_ROWS / 2), rows.saturating_sub(MAX_ROWS / 2));
            let shapes = TileShapes::of(above, below);
            let row_bytes = WIDTH * size_of::<f32>();
            let (half, a_bytes) = (room.wrapping_add(MAX_ROWS / 2), t.a_stride * size_of::<f32>());
            asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags, readonly));
            if t.from.is_null() {
                asm!("tilezero tmm0", "tilezero tmm1", options(nostack, preserves_flags, nomem));
                if below > 0 {
                    asm!("tilezero tmm2", "tilezero tmm3", options(nostack, preserves_flags, nomem));
                }
            } else {
                $start;
                asm!("tileloadd tmm0, [{r} + {s}*1]", "tileloadd tmm1, [{r} + {s}*1 + 64]", r = in(reg) room, s = in(reg) row_bytes,
                    options(nostack, preserves_flags, readonly));
                if below > 0 {
                    asm!("tileloadd tmm2, [{r} + {s}*1]", "tileloadd tmm3, [{r} + {s}*1 + 64]", r = in(reg) half, s = in(reg) row_bytes,
                        options(nostack, preserves_flags, readonly));
                }
            }
            for k in (0..t.k).step_by(WORDS) {
                let a = t.a.wrapping_add(k);
                asm!(
                    "tileloadd tmm6, [{b} + {bs}*1]",
                    "tileloadd tmm7, [{b} + {bs}*1 + 64]",
                    "tileloadd tmm4, [{a} + {s}*1]",
                    concat!($multiply, " tmm0, tmm4, tmm6"),
                    concat!($multiply, " tmm1, tmm4, tmm7"),
                    b = in(reg) t.b.add(k * WIDTH),
                    bs = in(reg) row_bytes,
                    a = in(reg) a,
                    s = in(reg) a_bytes,
                    options(nostack, preserves_flags, readonly)
                );
                if below > 0 {
                    asm!(
                        "tileloadd tmm5, [{a} + {s}*1]",
                        concat!($multiply, " tmm2, tmm5, tmm6"),
                        concat!($multiply, " tmm3, tmm5, tmm7"),
                        a = in(reg) a.wrapping_add(MAX_ROWS / 2 * t.a_stride),
                        s = in(reg) a_bytes,
                        options(nostack, preserves_flags, readonly)
                    );
                }
            }
            asm!("tilestored [{r} + {s}*1], tmm0", "tilestored [{r} + {s}*1 + 64], tmm1", r = in(reg) room, s = in(reg) row_bytes,
                options(nostack, preserves_flags));
            if below > 0 {
                asm!("tilestored [{r} + {s}*1], tmm2", "tilestored [{r} + {s}*1 + 64], tmm3", r = in(reg) half, s = in(reg) row_bytes,
                    options(nostack, preserves_flags));
            }
            asm!("tilerelease", options(nostack, preserves_flags, nomem));
        }};
    }

    impl TileShapes {
        /// Returns the shapes for `above` rows in the first register of rows, and `below` rows in the second.
        fn of(above: usize, below: usize) -> Self {
            let mut shapes =
                TileShapes { palette: 1, start_row: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
            for (register, rows) in [
                (0, above),
                (1, above),
                (2, below),
                (3, below),
                (4, above),
                (5, below),
                (6, WORDS),
                (7, WORDS),
            ] {
                if rows > 0 {
                    (shapes.rows[register], shapes.bytes[register]) = (rows as u8, 64);
                }
            }
            shapes
        }
    }

    /// Computes a tile in bf16.
    ///
    /// # Safety
    /// See [`TileFn`](super::TileFn).
    pub(super) unsafe fn tile(t: &Tile) {
        let (rows, columns) = (t.rows.min(MAX_ROWS), WIDTH.min(t.columns));
        let mut room = MaybeUninit::<[[f32; WIDTH]; MAX_ROWS]>::uninit();
        let room = room.as_mut_ptr().cast::<[f32; WIDTH]>();
        // SAFETY: the caller guarantees that the CPU has the instructions, `rows` rows of `a` with `k` words, a panel of `k` rows
        // and the columns of `c`; `k` is a multiple of `WORDS`. The registers have the shapes of `TileShapes::of`, so that each
        // load reads up to 16 rows of 64 bytes, and each store writes as many into `room`. The compiler uses no tile register.
        unsafe {
            sum!(t, rows, room, "tdpbf16ps", {
                for row in 0..rows {
                    let sums = &mut *room.add(row);
                    *sums = [0.0; WIDTH];
                    start(sums, t, (row, 0, columns));
                }
            });
            for row in 0..rows {
                finish(&mut *room.add(row), t, (row, 0, columns));
            }
        }
    }

    /// Computes the sums of products of codes, bytes without a sign times bytes with a sign, of `t.rows` rows and a panel; `sums`
    /// has as many rows.
    ///
    /// # Safety
    /// The CPU has the instructions, `a` and `b` have `k` words per row and `k` rows, and `k` is a multiple of [`WORDS`].
    pub(super) unsafe fn codes(t: &Tile, sums: &mut [[i32; WIDTH]]) {
        let rows = t.rows.min(MAX_ROWS).min(sums.len());
        // SAFETY: as in `tile`; the sums of this instruction are integers, which have the size of an f32.
        unsafe { sum!(t, rows, sums.as_mut_ptr().cast(), "tdpbusd", {}) }
    }
}
