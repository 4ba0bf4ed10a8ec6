//! The properties of the CPU that kernels depend on, and the block sizes that follow from them.
//!
//! The sizes of the second-level and third-level caches and the vector instructions are queried once; the first-level cache is
//! not used. Each choice of a size is a method of [`Cpu`], with its reason. No choice changes a bit of any result: the tests
//! run the kernels for other CPUs and compare.
//!
//! # The model
//! A product keeps its sums in registers and reads two operands over and over. Reading a number from a core's own cache (the
//! second level) overlaps with the multiply-adds and costs nothing. A number that is *streamed* from further away costs nothing
//! only if it is used in enough multiply-adds: as many as the core computes while one number arrives. These are [`Cpu::shared`]
//! multiply-adds for a number from the cache that cores share, and [`Cpu::memory`] for a number from memory. So
//!
//! - if each number of an operand is used often enough each time it is streamed, the operand is read unchanged, however large
//!   it is;
//! - any other operand is cut into parts that stay in half of a core's own cache, and all products with a part are computed
//!   before the next part is read;
//! - if neither is possible, threads divide the operand, so that no thread streams all of it.
//!
//! A core's multiply-adds per cycle follow from the length of its vectors. The bytes that arrive per cycle were measured with
//! all cores busy: 8 from the shared cache and 3 from memory on AMD's Zen 3, about 3 and 2 on an Intel Xeon whose cores share a
//! mesh. An unknown CPU is assumed to be like Zen 3.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::path::Path;
use super::tile::lanes;

/// The bytes of the second-level and third-level cache that are assumed if the CPU does not report them.
const USUAL: [usize; 2] = [1 << 20, 4 << 20];

/// The caches and the speeds of a core: sizes in bytes, speeds in multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The second-level cache, which each core has for itself.
    pub l2: usize,
    /// One core's share of the third-level cache, which cores have in common; 0 if the CPU has no third level.
    pub l3: usize,
    /// Multiply-adds that a core computes while a number arrives from the cache that cores share.
    pub shared: usize,
    /// Multiply-adds that a core computes while a number arrives from memory.
    pub memory: usize,
}

/// A block of a product: rows that are multiplied by all panels together, and the length of the partial sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) k: usize,
}

impl Cpu {
    /// Returns the block size of a product of `rows` rows and panels of `width` columns. Each block of rows reads the panels
    /// again. So a block has enough rows that reading the panels from memory takes about an eighth of the time of its
    /// multiply-adds, and few enough that its results stay in cache. The block's rows are read again for each panel, and each
    /// of their numbers is used in `width` multiply-adds each time. If these are too few to stream the rows, sums are cut into
    /// shorter partial sums, so that the rows and the panel stay in half of the core's own cache.
    pub(super) fn product_block(&self, rows: usize, width: usize) -> Block {
        let block = (8 * self.memory).clamp(96, 384);
        let fits = self.l2 / 2 / size_of::<f32>() / (rows.min(block) + width);
        Block { rows: block, k: if width >= self.shared { usize::MAX } else { fits.max(256) } }
    }

    /// Returns how many columns of `x` are packed at a time for the gradient of a weight, which sums over `rows` rows. Each
    /// packed number is used in `width` multiply-adds per panel of `dy`. `dy` is packed again for each part of the columns, so
    /// a part is as large as possible.
    pub(super) fn gradient_columns(&self, rows: usize, width: usize) -> usize {
        let bytes = if width >= self.shared { self.l2 } else { self.l2 / 2 };
        (bytes / size_of::<f32>() / rows).max(64)
    }

    /// Returns how many rows of a convolution, of `width` numbers each, are copied into a tile at a time. The tile is read for
    /// each panel of the filter, so it stays in the core's own cache beside the panel; the filter is read again for each tile.
    pub(super) fn conv_rows<T>(&self, width: usize) -> usize {
        let fits = self.l2 / 2 / size_of::<T>() / width.max(1);
        fits.clamp(48, 384) / 24 * 24
    }

    /// Returns the number of rows from which on a pass over a large matrix pays: reading and writing the matrix then takes
    /// about an eighth of the time of the multiply-adds, one per row and number of the matrix. The number is bounded, since the
    /// results of the rows need memory.
    pub fn rows_for_a_pass(&self) -> usize {
        (16 * self.memory).clamp(256, 768)
    }

    /// Returns how many bytes a few successive calls may touch so that each call still finds the previous call's results in the
    /// core's own cache.
    pub fn chunk(&self) -> usize {
        self.l2 / 2
    }

    /// Returns whether `rows` rows are too few for each thread to stream a matrix of `bytes` bytes through its own cache.
    pub fn streams(&self, bytes: usize, rows: usize) -> bool {
        bytes >= self.l2 && rows <= self.shared
    }
}

static ASSUMED: AtomicPtr<Cpu> = AtomicPtr::new(ptr::null_mut());

/// Returns the CPU whose properties decide block sizes: this CPU, or the CPU that `assume` set.
pub fn cpu() -> Cpu {
    let assumed = ASSUMED.load(Ordering::Acquire);
    // SAFETY: a pointer that is not null was leaked by `assume`, and its CPU is never changed or freed.
    if assumed.is_null() { asked() } else { unsafe { *assumed } }
}

/// Returns the properties of this CPU, which are queried once.
pub fn asked() -> Cpu {
    static ASKED: OnceLock<Cpu> = OnceLock::new();
    *ASKED.get_or_init(ask)
}

/// Makes all kernels of this process use the block sizes of the given CPU from now on, for tests. Results do not change.
#[doc(hidden)]
#[cfg(feature = "internals")]
pub fn assume(cpu: Cpu) {
    ASSUMED.store(Box::leak(Box::new(cpu)), Ordering::Release);
}

fn ask() -> Cpu {
    let [l2, l3] = caches();
    let lanes = lanes(Path::best());
    // A core has two units for multiply-adds. Zen 4 has AVX-512, but runs each instruction in two passes.
    let (each_cycle, shared, memory) = match (Path::best(), mesh()) {
        (Path::Avx512, true) => (2 * lanes, 3, 2),
        (Path::Avx512, false) => (lanes, 8, 3),
        _ => (2 * lanes, 8, 3),
    };
    let arrives = |bytes: usize| (each_cycle * size_of::<f32>()).div_ceil(bytes);
    Cpu { l2, l3, shared: arrives(shared), memory: arrives(memory) }
}

/// Returns whether cores share a cache over a mesh, which is large and slow.
#[cfg(target_arch = "x86_64")]
fn mesh() -> bool {
    raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
}

#[cfg(not(target_arch = "x86_64"))]
fn mesh() -> bool {
    false
}

/// Returns the bytes of the second and the third level; the third level is divided by the number of cores that share it, among
/// the cores that this process may use.
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
        // If a CPU reports a second level but no third level, it has no third level.
        [Some(second), None] => [second, 0],
        [None, _] => USUAL,
    }
}

/// Returns the level, the bytes and the number of sharing logical CPUs of each data cache.
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

/// Reads the caches from the files of Linux; elsewhere the usual sizes apply.
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
        // A list such as 0-3,8: the CPUs in it are counted.
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

    /// Very different CPUs: AMD's and Intel's, a small one, and one that cuts everything small.
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
        // Panels of 16 columns pay for rows from the shared cache, so nothing is cut.
        assert_eq!(zen3.product_block(1000, 16), Block { rows: 176, k: usize::MAX });
        // Over a mesh they don't: 384 rows and a panel of 32 share half of 2 MiB.
        assert_eq!(xeon.product_block(1000, 32), Block { rows: 384, k: 630 });
        assert_eq!(xeon.product_block(16, 32), Block { rows: 384, k: 5461 });
        assert_eq!(small.product_block(8, 4).k, 1365);
        assert_eq!((zen3.gradient_columns(256, 16), xeon.gradient_columns(256, 32)), (512, 1024));
        assert_eq!((zen3.rows_for_a_pass(), xeon.rows_for_a_pass()), (352, 768));
        assert!(zen3.streams(1 << 20, 8) && !zen3.streams(1 << 20, 9) && !zen3.streams(1 << 18, 8));
        assert!(xeon.streams(4 << 20, 32) && !xeon.streams(1 << 20, 8));
    }
}
