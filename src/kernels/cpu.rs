//! What the kernels ask the CPU, and what follows from its answers.
//!
//! The sizes of the second cache and the third and the vector units are asked for once; nothing depends on the first cache.
//! Each choice that depends on them is a method of [`Cpu`], with its reason. No choice changes a bit of any result: the tests assume other CPUs and compare.
//!
//! # The model
//! A product keeps its sums in registers and reads two operands over and over. A number that is read from a core's own
//! cache (the second level) comes beside the multiply-adds for nothing. One that is *streamed* from further away pays for
//! its way if it goes into enough multiply-adds meanwhile: as many as the core makes in the time in which one number
//! arrives, [`Cpu::shared`] of them from the cache that cores share and [`Cpu::memory`] from memory. So
//!
//! - an operand that is used often enough each time it comes is read as it is, however large;
//! - another is cut into parts that stay in half of a core's own cache, and each part is used up before the next;
//! - where neither will do, threads divide the operand between them instead of each streaming all of it.
//!
//! A core's multiply-adds a cycle follow from its vectors. Bytes a cycle are taken from what was measured with all cores
//! busy: 8 from the shared cache and 3 from memory on AMD's Zen 3, about 3 and 2 on an Intel Xeon whose cores share a
//! mesh. A CPU that is unknown is taken to be like the first.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::path::Path;
use super::tile::lanes;

/// Bytes of the second level and the third, where the CPU does not say.
const USUAL: [usize; 2] = [1 << 20, 4 << 20];

/// What a core has: sizes in bytes, speeds in multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The second level, a core's own.
    pub l2: usize,
    /// A core's share of the third level, which cores have in common; 0 if there is none.
    pub l3: usize,
    /// Multiply-adds that a core makes while a number arrives from the cache that cores share.
    pub shared: usize,
    /// Multiply-adds that a core makes while a number arrives from memory.
    pub memory: usize,
}

/// Rows of a product that go over all panels together, and the length to which its sums go on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) k: usize,
}

impl Cpu {
    /// How a product of so many rows and panels of `width` columns is cut. Each block of rows reads the panels again, so it has
    /// rows enough that their way from memory costs about an eighth of the multiply-adds; few enough that results wait in
    /// cache. The rows are read again for each panel, and go into `width` multiply-adds each time: if that is not enough to
    /// stream them, sums are cut where the rows, and the panel, would leave half of the core's own cache.
    pub(super) fn product_block(&self, rows: usize, width: usize) -> Block {
        let block = (8 * self.memory).clamp(96, 384);
        let fits = self.l2 / 2 / size_of::<f32>() / (rows.min(block) + width);
        Block { rows: block, k: if width >= self.shared { usize::MAX } else { fits.max(256) } }
    }

    /// How many columns of `x` are packed at a time for the gradient of a weight, whose sums are over `rows`; each goes into
    /// `width` multiply-adds for each panel of `dy`. Each part packs `dy` again, so it is as large as can be.
    pub(super) fn gradient_columns(&self, rows: usize, width: usize) -> usize {
        let bytes = if width >= self.shared { self.l2 } else { self.l2 / 2 };
        (bytes / size_of::<f32>() / rows).max(64)
    }

    /// Rows of a convolution that are copied side by side at a time, `width` numbers each: the tile is read again for each panel
    /// of the filter and so stays in the core's own cache, beside the panel; and the filter is read again for each tile.
    pub(super) fn conv_rows<T>(&self, width: usize) -> usize {
        let fits = self.l2 / 2 / size_of::<T>() / width.max(1);
        fits.clamp(48, 384) / 24 * 24
    }

    /// Rows for which it pays to read and write a large matrix, each row being a multiply-add for each of its numbers: the way
    /// from memory and back costs about an eighth of them. There is an end, since what the rows make has to lie somewhere.
    pub fn rows_for_a_pass(&self) -> usize {
        (16 * self.memory).clamp(256, 768)
    }

    /// Bytes of all that a few calls touch if one is to find in the core's own cache what the one before left there.
    pub fn chunk(&self) -> usize {
        self.l2 / 2
    }

    /// Whether so many rows are too few for each thread to stream a matrix of so many bytes through its own cache.
    pub fn streams(&self, bytes: usize, rows: usize) -> bool {
        bytes >= self.l2 && rows <= self.shared
    }
}

static ASSUMED: AtomicPtr<Cpu> = AtomicPtr::new(ptr::null_mut());

/// What the kernels are cut for: this CPU, or another that is assumed.
pub fn cpu() -> Cpu {
    let assumed = ASSUMED.load(Ordering::Acquire);
    // SAFETY: what is not null was leaked by `assume`, and is never changed or freed.
    if assumed.is_null() { asked() } else { unsafe { *assumed } }
}

/// This CPU, asked once.
pub fn asked() -> Cpu {
    static ASKED: OnceLock<Cpu> = OnceLock::new();
    *ASKED.get_or_init(ask)
}

/// From now on, everything in this process is cut as if it ran on that CPU: for tests. Results stay what they are.
#[doc(hidden)]
#[cfg(feature = "internals")]
pub fn assume(cpu: Cpu) {
    ASSUMED.store(Box::leak(Box::new(cpu)), Ordering::Release);
}

fn ask() -> Cpu {
    let [l2, l3] = caches();
    let lanes = lanes(Path::best());
    // Two units; Zen 4 has the instructions of vectors of 16, and makes one in two turns.
    let (each_cycle, shared, memory) = match (Path::best(), mesh()) {
        (Path::Avx512, true) => (2 * lanes, 3, 2),
        (Path::Avx512, false) => (lanes, 8, 3),
        _ => (2 * lanes, 8, 3),
    };
    let arrives = |bytes: usize| (each_cycle * size_of::<f32>()).div_ceil(bytes);
    Cpu { l2, l3, shared: arrives(shared), memory: arrives(memory) }
}

/// Whether cores share a cache over a mesh, which is large and slow.
#[cfg(target_arch = "x86_64")]
fn mesh() -> bool {
    raw_cpuid::CpuId::new().get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel")
}

#[cfg(not(target_arch = "x86_64"))]
fn mesh() -> bool {
    false
}

/// Bytes of the second level and the third, that one divided by the cores that share it, as far as this process may use them.
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
        // A CPU that describes its second level and no third has none.
        [Some(second), None] => [second, 0],
        [None, _] => USUAL,
    }
}

/// Level, bytes and the number of logical CPUs that share it, of each cache for data.
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

/// Linux describes them in files; elsewhere the usual sizes are taken.
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

    /// CPUs as different as they come: AMD's and Intel's, a small one, and one that cuts everything small.
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
