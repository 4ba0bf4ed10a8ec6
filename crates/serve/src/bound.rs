//! The memory bound of the process, by part.

use std::fmt;

use unpadded::memory::shown;

use super::memory::resident;
use super::queue::KEPT;
use super::state::State;

/// The most memory that the process takes while it serves, by part.
#[derive(Debug, Clone)]
pub struct MemoryBound {
    /// The parts with their names, in bytes.
    pub parts: Vec<(&'static str, u64)>,
}

/// The widest beam of a search: a wider beam takes memory that the bound does not count.
pub(crate) const WIDEST: usize = 16;
/// The least memory of a batch with which a server starts.
const LEAST: u64 = 16_000_000;
/// The buffers, the tasks and the kernel's view of a connection, beside its requests.
const CONNECTION: u64 = 48 * 1024;
/// A stream without its step: its thread, and the pieces that its client has not read.
const STREAM: u64 = 512 * 1024;
/// A session without its state: its names, and the last tokens of its text.
const SESSION: u64 = 2048;
/// The parts of [`MemoryBound`] of which the allocator may keep an eighth in holes.
const HOLES: u64 = 8;

impl MemoryBound {
    pub(crate) fn new(state: &State) -> Result<Self, String> {
        let settings = &state.settings;
        let (mut step, mut session, mut search) = (0, 0, 0);
        let models = state.models.all();
        for loaded in &models {
            if loaded.writes() {
                let of_model = loaded.model.begin().and_then(|mut session| session.memory());
                let of_model = of_model.map_err(|e| format!("{e:#}"))?;
                let of_step = of_model.total() - of_model.parameters - of_model.state;
                (step, session) = (step.max(of_step as u64), session.max(of_model.state as u64));
            }
            let of_search = loaded.model.search_memory(WIDEST).map_err(|e| format!("{e:#}"))?;
            search = search.max(of_search);
        }
        let writes = models.iter().any(|loaded| loaded.writes());
        let count = |count: usize| if writes { count as u64 } else { 0 };
        let fixed = [
            ("resident at the start", resident()),
            ("requests", settings.request_memory),
            ("connections", settings.connections as u64 * CONNECTION),
            ("streams", count(settings.streams) * (STREAM + step)),
            ("sessions", count(settings.sessions) * (session + SESSION)),
            ("searches", search),
            ("kept by other models", (models.len() as u64 - 1) * KEPT),
            ("reload", state.models.load_memory()),
        ];
        let sum: u64 = fixed.iter().map(|(_, bytes)| bytes).sum();
        let batch = match settings.memory {
            None => settings.batch_memory,
            Some(most) => (most.saturating_sub(sum) / (HOLES + 1) * HOLES)
                .saturating_sub(settings.request_memory / HOLES),
        };
        let holes = (batch + settings.request_memory) / HOLES;
        let parts: Vec<_> =
            fixed.into_iter().chain([("a batch", batch), ("holes of the allocator", holes)]).collect();
        let bound = Self { parts };
        if batch < LEAST {
            let least = sum + LEAST + (LEAST + settings.request_memory) / HOLES;
            return Err(format!(
                "memory: expected at least {}, got {}: {bound}",
                shown(least.into()),
                shown(settings.memory.unwrap_or_default().into())
            ));
        }
        state.models.set_batch_memory(batch);
        Ok(bound)
    }

    /// Returns the sum of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |(name, bytes): &(&str, u64)| format!("{} {name}", shown((*bytes).into()));
        let parts: Vec<String> = self.parts.iter().filter(|(_, bytes)| *bytes > 0).map(part).collect();
        f.write_str(&parts.join(", "))
    }
}
