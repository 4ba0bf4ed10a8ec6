//! The properties of the CPU from which the kernels derive their block sizes.
//!
//! The process queries the sizes of the second-level and third-level caches and the vector instructions once; kernels do not
//! depend on the size of the first-level cache. Each block size is computed by one method of [`Cpu`], whose comment gives
//! the reason. No block size changes a bit of any result: the tests run the kernels with the properties of other CPUs and
//! compare the bits.
//!
//! # The model
//! A matrix product keeps its sums in registers and reads its two operands repeatedly. Reading a number from a core's own
//! cache (the second level) overlaps with the multiply-adds and costs nothing. A core computes faster than numbers arrive from
//! a more distant cache or from memory. The wait for a *streamed* number is hidden only if the number is used in at least as
//! many multiply-adds as the core computes while one number arrives. This count of multiply-adds is [`Cpu::shared`] for the
//! cache that cores share, and [`Cpu::memory`] for main memory. So
//!
//! - an operand of any size is read unchanged if each of its numbers is used often enough each time it is streamed;
//! - any other operand is cut into parts that stay in half of a core's own cache; all products with one part are computed
//!   before the next part is read;
//! - if neither rule is possible, threads divide the operand, so that no thread streams the whole operand.
//!
//! The number of multiply-adds per cycle of a core follows from the length of its vectors. The number of bytes that arrive
//! per cycle was measured with all cores busy. AMD's Zen 3 receives 8 bytes from the shared cache and 3 bytes from memory; an
//! Intel Xeon whose cores share a mesh receives about 3 and 2 bytes. An unknown CPU is assumed to be like Zen 3.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::path::Path;
use super::tile::lanes;

/// The assumed sizes in bytes of the second-level and third-level caches if the CPU does not report them.
const USUAL: [usize; 2] = [1 << 20, 4 << 20];

/// The cache sizes of a core in bytes, and its speeds in multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The size in bytes of the second-level cache, which each core has for itself.
    pub l2: usize,
    /// One core's share of the third-level cache that cores share, in bytes; 0 if the CPU has no third level.
    pub l3: usize,
    /// The number of multiply-adds that a core computes while one number arrives from the cache that cores share.
    pub shared: usize,
    /// The number of multiply-adds that a core computes while one number arrives from main memory.
    pub memory: usize,
}

/// The block size of a product: the number of rows in a block, and the length of the partial sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) rows: usize,
    pub(crate) k: usize,
}

impl Cpu {
    /// Returns the block size of a product of `rows` rows and panels of `width` columns. For each block of rows, the panels are
    /// read again. A block has many rows, so that reading the panels from memory takes only about an eighth of the time of the
    /// block's multiply-adds. But a block has at most 384 rows, so that the block's results stay in cache. The rows of a block
    /// are read again for each panel, and each number of a row is then used in `width` multiply-adds. If `width` multiply-adds
    /// are too few to stream the rows, sums are cut into shorter partial sums, so that the rows and the panel stay in half of
    /// the core's own cache.
    pub(crate) fn product_block(&self, rows: usize, width: usize) -> Block {
        let block = self.product_rows();
        let fits = self.l2 / 2 / size_of::<f32>() / (rows.min(block) + width);
        Block { rows: block, k: if width >= self.shared { usize::MAX } else { fits.max(256) } }
    }

    /// Returns the number of rows in a block of a product; for each block of rows, a thread reads the packed matrix again.
    pub fn product_rows(&self) -> usize {
        (8 * self.memory).clamp(96, 384)
    }

    /// Returns how many columns of `x` the gradient of a weight packs at a time; the gradient sums over `rows` rows. Each
    /// packed number is used in `width` multiply-adds per panel of `dy`. `dy` is packed again for each part of the columns
    /// of `x`, so a part has as many columns as fit into the cache.
    pub(crate) fn gradient_columns(&self, rows: usize, width: usize) -> usize {
        let bytes = if width >= self.shared { self.l2 } else { self.l2 / 2 };
        (bytes / size_of::<f32>() / rows).max(64)
    }

    /// Returns the number of rows in a tile of a convolution; each row of the tile has `width` numbers. The tile is read
    /// once per panel of the filter, so the tile and a panel must fit into the core's own cache. The whole filter is read
    /// again for each tile.
    pub(super) fn conv_rows<T>(&self, width: usize) -> usize {
        let fits = self.l2 / 2 / size_of::<T>() / width.max(1);
        fits.clamp(48, 384) / 24 * 24
    }

    /// Returns the minimum number of rows for which one more pass over a large matrix is cheap. With this number of rows,
    /// reading and writing the matrix takes about an eighth of the time of the multiply-adds. There is one multiply-add per row
    /// and element of the matrix. The result has an upper bound, since the results of the rows need memory.
    pub fn rows_for_a_pass(&self) -> usize {
        (16 * self.memory).clamp(256, 768)
    }

    /// Returns the number of bytes that a few successive calls may use together so that each call finds the results of the
    /// previous call in the core's own cache.
    pub fn chunk(&self) -> usize {
        self.l2 / 2
    }

    /// Returns how many bytes ahead the tiles of a product of `rows` rows prefetch the panels; 0 means not at all. With few
    /// rows, tiles wait for panels from a slow shared cache; from a fast one, a prefetch gains nothing (measured on a Zen 4).
    pub(super) fn ahead(&self, rows: usize) -> usize {
        if rows <= 48 && self.shared > 16 { 4096 } else { 0 }
    }

    /// Returns how many bytes one thread reads from the cache that cores share in the time in which it writes one number, about
    /// half a nanosecond (measured on a Xeon, a Zen 3 and a Zen 4).
    pub fn read_per_number(&self) -> usize {
        if self.shared > 16 || Path::best() != Path::Avx512 { 11 } else { 24 }
    }

    /// Returns whether threads should divide a matrix of `bytes` bytes, instead of each streaming the whole matrix. The
    /// result is true if the matrix does not fit into a core's own cache, and if its product with `rows` rows has too
    /// few multiply-adds to hide the wait for the streamed numbers.
    pub fn streams(&self, bytes: usize, rows: usize) -> bool {
        bytes >= self.l2 && rows <= self.shared
    }
}

static ASSUMED: AtomicPtr<Cpu> = AtomicPtr::new(ptr::null_mut());

/// Returns the CPU whose properties decide block sizes: the CPU that `assume` set, else the CPU of this machine.
pub fn cpu() -> Cpu {
    let assumed = ASSUMED.load(Ordering::Acquire);
    // SAFETY: `assume` leaked every address that is not null, and the CPU at this address is never changed or freed.
    if assumed.is_null() { asked() } else { unsafe { *assumed } }
}

/// Returns the properties of this machine's CPU, which are queried once.
pub fn asked() -> Cpu {
    static ASKED: OnceLock<Cpu> = OnceLock::new();
    *ASKED.get_or_init(ask)
}

/// Makes all kernels of this process use the block sizes for the given CPU from now on, for tests. The results of the
/// kernels do not change.
#[doc(hidden)]
#[cfg(feature = "internals")]
pub fn assume(cpu: Cpu) {
    ASSUMED.store(Box::leak(Box::new(cpu)), Ordering::Release);
}

fn ask() -> Cpu {
    let [l2, l3] = caches();
    let lanes = lanes(Path::best());
    // A core has two units for multiply-adds, so it starts two vector multiply-adds per cycle. Zen 4 has AVX-512, but runs
    // each AVX-512 instruction in two passes, as one vector per cycle.
    let (each_cycle, shared, memory) = match (Path::best(), mesh()) {
        (Path::Avx512, true) => (2 * lanes, 3, 2),
        (Path::Avx512, false) => (lanes, 8, 3),
        _ => (2 * lanes, 8, 3),
    };
    let arrives = |bytes: usize| (each_cycle * size_of::<f32>()).div_ceil(bytes);
    Cpu { l2, l3, shared: arrives(shared), memory: arrives(memory) }
}

/// Returns whether the cores share a cache over a mesh, as on an Intel Xeon; such a cache is large and slow.
#[cfg(target_arch = "x86_64")]
fn mesh() -> bool {
    raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
}

#[cfg(not(target_arch = "x86_64"))]
fn mesh() -> bool {
    false
}

/// Returns the size in bytes of a core's second-level cache, and of one core's share of the third-level cache. If more
/// CPUs share the third level than this process may use, only the usable CPUs count.
fn caches() -> [usize; 2] {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut found = [None; 2];
    for (level, bytes, sharing) in described() {
        if let Some(known) = level.checked_sub(2).and_then(|level| found.get_mut(level)) {
            let sharing = if level == 3 { sharing.clamp(1, cores) } else { 1 };
            *known = Some(bytes / sharing).filter(|&bytes| bytes > 0);
        }
    }
    match found {
        [Some(second), Some(third)] => [second, third],
        // A CPU that reports a second level but no third level has no third-level cache.
        [Some(second), None] => [second, 0],
        [None, _] => USUAL,
    }
}

/// Returns, for each data cache, its level, its size in bytes and the number of logical CPUs that share it.
#[cfg(target_arch = "x86_64")]
fn described() -> Vec<(usize, usize, usize)> {
    use raw_cpuid::{CacheType, CpuId};
    let caches = CpuId::new().get_cache_parameters().into_iter().flatten();
    let data = caches.filter(|cache| matches!(cache.cache_type(), CacheType::Data | CacheType::Unified));
    data.map(|cache| {
        let ways = cache.associativity() * cache.physical_line_partitions();
        let bytes = ways * cache.coherency_line_size() * cache.sets();
        (usize::from(cache.level()), bytes, cache.max_cores_for_cache())
    })
    .collect()
}

/// Reads the properties of the caches from the files in `/sys` of Linux; on other systems, the list is empty.
#[cfg(not(target_arch = "x86_64"))]
fn described() -> Vec<(usize, usize, usize)> {
    let read = |index: usize, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let cache = |index| {
        let level = read(index, "level")?.parse().ok()?;
        let bytes = read(index, "size")?.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)?;
        let data = read(index, "type")? != "Instruction";
        // The file has a list such as 0-3,8 of the CPUs that share the cache; the code counts these CPUs.
        let count = |range: &str| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            to.parse::<usize>().ok()?.checked_sub(from.parse().ok()?)?.checked_add(1)
        };
        let sharing =
            read(index, "shared_cpu_list")?.split(',').filter_map(count).fold(0, usize::saturating_add);
        data.then_some((level, bytes, sharing))
    };
    (0..8).filter_map(cache).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Very different CPUs: one of AMD, one of Intel, a small one, and one with minimal block sizes.
    pub(in crate::kernels) const CPUS: [Cpu; 4] = [
        Cpu { l2: 512 << 10, l3: 16 << 20, shared: 8, memory: 22 },
        Cpu { l2: 2 << 20, l3: 24 << 20, shared: 43, memory: 64 },
        Cpu { l2: 128 << 10, l3: 0, shared: 100, memory: 100 },
        Cpu { l2: 1, l3: 1, shared: usize::MAX, memory: 1 },
    ];

    #[test]
    fn this_machine_is_a_likely_one() {
        let Cpu { l2, l3, shared, memory } = ask();
        assert!((1 << 16..=1 << 28).contains(&l2), "{l2}");
        assert!(l3 == 0 || l3 >= 1 << 17, "{l3}");
        assert!((1..=64).contains(&shared) && (shared..=128).contains(&memory), "{shared} {memory}");
    }

    #[test]
    fn blocks_follow_from_the_machine() {
        let [zen3, xeon, small, _] = CPUS;
        // Panels of 16 columns suffice to stream rows from the shared cache, so no sum is cut.
        assert_eq!(zen3.product_block(1000, 16), Block { rows: 176, k: usize::MAX });
        // Panels of 32 columns do not suffice to stream rows over a mesh, so 384 rows and a panel share half of 2 MiB.
        assert_eq!(xeon.product_block(1000, 32), Block { rows: 384, k: 630 });
        assert_eq!(xeon.product_block(16, 32), Block { rows: 384, k: 5461 });
        assert_eq!(small.product_block(8, 4).k, 1365);
        assert_eq!((zen3.gradient_columns(256, 16), xeon.gradient_columns(256, 32)), (512, 1024));
        assert_eq!((zen3.rows_for_a_pass(), xeon.rows_for_a_pass()), (352, 768));
        assert!(zen3.streams(1 << 20, 8) && !zen3.streams(1 << 20, 9) && !zen3.streams(1 << 18, 8));
        assert!(xeon.streams(4 << 20, 32) && !xeon.streams(1 << 20, 8));
    }

    /// The bytes that the steps of two LSTM(512) read beyond the second-level cache per token, in four products with 4 MiB: for
    /// 11.6 rows a step (W2 in file order), and for 31 rows (sorted by length). Two threads together read each weight once.
    #[test]
    fn rows_of_a_step_decide_the_bytes_beyond_l2() {
        let (xeon, bytes) = (CPUS[1], 4 * 512 * 2048);
        for (tenths, kilobytes) in [(116, 1446), (310, 541)] {
            let each = if xeon.streams(bytes, tenths / 20) { bytes / 2 } else { bytes };
            assert!(each > xeon.l2 / 10 * 9);
            assert_eq!(10 * 4 * 2 * each / tenths / 1000, kilobytes);
        }
    }
}
