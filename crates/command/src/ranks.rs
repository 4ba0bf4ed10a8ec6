//! The processes of a distributed training, which an MPI launcher (`mpirun`, `srun`) starts, and the rank of this one.

use std::path::Path;
use std::time::Duration;

use unpadded::parallel::World;
use unpadded::train::{Process, Report, Trainer};
use unpadded_recipes::{Config, memory_limit};

use super::outcome::{Outcome, UsageError, bad};

/// The environment variables that launchers set: the number of processes, and the rank of this process.
const LAUNCHERS: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"], // `mpirun` of Open MPI
    ["PMI_SIZE", "PMI_RANK"],                         // `mpirun` of MPICH, `srun --mpi=pmi2`
    ["SLURM_STEP_NUM_TASKS", "PMIX_RANK"],            // `srun --mpi=pmix`
];

/// The time that a failed process waits for rank 0 to report the error, before it reports the error itself.
const FIRST: Duration = Duration::from_secs(2);

/// Returns the number of processes that a launcher started, and the rank of this process; `None` for a single process.
fn launched() -> Option<[usize; 2]> {
    let number = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
    let found = LAUNCHERS.iter().find_map(|[size, rank]| Some([number(size)?, number(rank)?]));
    found.filter(|[size, _]| *size > 1)
}

/// Returns an error if a launcher started several processes, since each process would write the same output.
pub(super) fn alone() -> Outcome<()> {
    match launched() {
        Some([size, _]) => bad(format!(
            "processes: expected 1, since only `train` runs on several processes, got {size}; start this command without `mpirun` or `srun`"
        )),
        None => Ok(()),
    }
}

/// Waits before this process reports an error, so that rank 0 can report the error first; the report of rank 0 ends all
/// processes. Returns the prefix of an error message with the rank of this process; empty on rank 0.
pub(super) fn before_error() -> String {
    match launched() {
        Some([_, rank]) if rank > 0 => {
            std::thread::sleep(FIRST);
            format!("rank {rank}: ")
        }
        _ => String::new(),
    }
}

/// Returns the communication world of several processes; `None` for a single process.
#[cfg(feature = "mpi")]
pub(super) fn world(deadline: u64) -> Outcome<Option<World>> {
    if deadline == 0 {
        return bad("--deadline 0: expected at least one second");
    }
    let Some([size, _]) = launched() else { return Ok(None) };
    let world = World::mpi(Duration::from_secs(deadline))?;
    match world.size() {
        found if found == size => Ok(Some(world)),
        found => bad(format!(
            "processes of MPI: expected {size}, as the launcher started, got {found}: the launcher and this build use different MPI libraries; \
             `mpirun` of Open MPI or `srun --mpi=pmix` fits a build with Open MPI"
        )),
    }
}

#[cfg(not(feature = "mpi"))]
pub(super) fn world() -> Outcome<Option<World>> {
    match launched() {
        Some([size, _]) => bad(format!(
            "processes: expected 1, since this build has no MPI, got {size}; `cargo install unpadded-command --features mpi` installs a build with MPI"
        )),
        None => Ok(None),
    }
}

/// Returns the config of all processes, with `training.parts`: `own`, the config of this process, or the config of rank 0 without it.
pub(super) fn agreed(world: &World, own: Option<Config>, resumed: bool) -> Outcome<Config> {
    let text = own.as_ref().map(Config::to_toml).unwrap_or_default();
    let first = world.broadcast("settings of rank 0", text.as_bytes())?;
    let first = Config::from_toml(&String::from_utf8_lossy(&first)).usage()?;
    let mut config = own.unwrap_or_else(|| first.clone());
    for key in Config::keys(config.run.task).map(|key| key.to_string()).filter(|key| key != "threads") {
        let (first, own) = (first.get(&key), config.get(&key));
        if first != own {
            let shown =
                |value: Option<unpadded_recipes::Value>| value.map_or("none".to_owned(), |v| v.to_string());
            return bad(format!("{key}: expected {}, as on rank 0, got {}", shown(first), shown(own)));
        }
    }
    let size = world.size() as u64;
    // A resumed run without the setting `training.parts` was trained with one part per batch.
    let unset = if resumed { 1 } else { size.next_power_of_two() };
    let parts = *config.training.parts.get_or_insert(unset);
    if size > parts {
        return bad(format!(
            "processes: expected at most {parts}, the value of `training.parts`, got {size}; start fewer processes, or train anew with \
             `--set training.parts={}`",
            size.next_power_of_two()
        ));
    }
    Ok(config)
}

/// Returns the memory limit of rank 0 in bytes, which decides which data are in memory; only its host may have `resumed`.
pub(super) fn memory(world: Option<&World>, config: &Config, resumed: Option<&Path>) -> Outcome<u64> {
    let Some(world) = world.filter(|world| world.size() > 1) else {
        return memory_limit(config, resumed).usage();
    };
    let own = if world.rank() == 0 { memory_limit(config, resumed).usage()? } else { 0 };
    let first = world.broadcast("memory limit of rank 0", &own.to_le_bytes())?;
    Ok(first[..].try_into().map_or(own, u64::from_le_bytes))
}

/// Connects a trainer to the other processes; the signal USR1, which `mpirun` passes on, interrupts the training.
pub(super) fn distributed(trainer: Trainer, world: &World) -> Outcome<Trainer> {
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, trainer.stop_flag())?;
    Ok(trainer.distributed(world.clone()))
}

/// Describes the time that processes waited, what they sent and their shares of the tokens, if there are several.
pub(super) fn shares(report: &Report) -> Option<String> {
    let processes = &report.processes[..];
    if processes.is_empty() {
        return None;
    }
    let steps = report.steps - report.resumed.as_ref().map_or(0, |from| from.step.min(report.steps));
    let values = |value: &dyn Fn(&Process) -> f64| processes.iter().map(value).collect::<Vec<_>>();
    let tokens = processes.iter().map(|process| process.tokens).sum::<u64>().max(1) as f64;
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    let waited = span(&values(&|process| process.waited / process.seconds.max(1e-9)), percent);
    let sent = span(&values(&|process| process.sent as f64 / steps.max(1) as f64), size);
    let computed = span(&values(&|process| process.tokens as f64 / tokens), percent);
    let held = match processes.iter().any(|process| process.tables > 0) {
        true => format!(", held {} of dealt tables", span(&values(&|process| process.tables as f64), size)),
        false => String::new(),
    };
    Some(format!(
        "{} processes: waited {waited} of the time, sent {sent} per step each, computed {computed} of the tokens{held}",
        processes.len()
    ))
}

/// Returns the values of all processes as text: both values of two processes, else the smallest and the largest value.
fn span(values: &[f64], shown: impl Fn(f64) -> String) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let (first, last, word) = match values {
        [first, last] => (shown(*first), shown(*last), "and"),
        _ => (shown(least), shown(most), "to"),
    };
    if first == last { first } else { format!("{first} {word} {last}") }
}

fn size(bytes: f64) -> String {
    match bytes {
        0.0..1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_processes_are_short() {
        let percent = |x: f64| format!("{x:.0} %");
        assert_eq!(span(&[3.0, 5.0], percent), "3 % and 5 %");
        assert_eq!(span(&[3.0, 1.0, 5.0], percent), "1 % to 5 %");
        assert_eq!(span(&[3.0, 3.1], percent), "3 %");
        assert_eq!([size(512.0), size(1.2e6)], ["0.5 kB", "1.2 MB"]);
    }
}
