//! Prints a profile as a table.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::executor::observe::profile::{LoopPhase, Profile, instructions, rate};

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.wall.as_secs_f64();
        let share = |time: Duration| 100.0 * time.as_secs_f64() / wall.max(1e-9);
        let flops: u64 = self.entries.iter().map(|e| e.cost.flops).sum();
        let threads = if self.threads == 1 { "" } else { "s" };
        writeln!(
            f,
            "{} runs, {:.1} ms on {} thread{threads}, {:.2} GFLOP at {:.1} GFLOP/s",
            self.runs,
            wall * 1e3,
            self.threads,
            flops as f64 / 1e9,
            rate(flops, self.wall) / 1e9
        )?;
        let rates = self.rates();
        writeln!(f, "matrix products in {} ({}); at best {rates}", self.unit, self.unit.instructions())?;
        writeln!(
            f,
            "{:>6} {:>9} {:>8} {:>10} {:>8} {:>8} {:>7}  {:<20}  {:<9}  operator",
            "share", "ms", "calls", "rows", "GFLOP", "GFLOP/s", "GB/s", "bound, reached", "part"
        )?;
        for entry in &self.entries {
            let bound = entry.bound(&rates).map_or_else(|| "-".to_owned(), |bound| bound.to_string());
            let block = entry.block.map_or_else(String::new, |block| format!(", block {block}"));
            let by =
                instructions(entry.dtype, self.unit).map_or_else(String::new, |name| format!(" in {name}"));
            let caller = entry.caller.as_ref().map_or_else(String::new, |caller| format!(" at {caller}"));
            writeln!(
                f,
                "{:>4.1} % {:>9.2} {:>8} {:>10} {:>8.3} {:>8.1} {:>7.1}  {bound:<20}  {:<9}  [{}] {}{by}{block}{caller}",
                share(entry.time),
                entry.time.as_secs_f64() * 1e3,
                entry.calls,
                entry.rows,
                entry.cost.flops as f64 / 1e9,
                entry.flops_per_second() / 1e9,
                entry.bytes_per_second() / 1e9,
                entry.part,
                entry.instruction,
                entry.operator
            )?;
        }
        let mut parts = String::new();
        for part in LoopPhase::ALL {
            let time = self.time_in(part);
            if time > Duration::ZERO {
                write!(parts, "{part} {:.1} %, ", share(time))?;
            }
        }
        let known = self.entries.iter().map(|e| e.time).sum();
        writeln!(f, "{parts}in no call {:.1} %", share(self.wall.saturating_sub(known)))
    }
}
