//! The memory of a training for people: the computed memory of its largest step, and the peak of the process.

use unpadded::executor::MemoryUse;
use unpadded::train::{Report, Trainer};
use unpadded_recipes::ByteSize;

/// Formats bytes as megabytes of 1,000,000 bytes, or gigabytes.
pub(super) fn megabytes(bytes: usize) -> String {
    match bytes as f64 / 1e6 {
        mb @ ..9.95 => format!("{mb:.1} MB"),
        mb @ ..9999.5 => format!("{mb:.0} MB"),
        mb => format!("{:.1} GB", mb / 1e3),
    }
}

/// Returns the memory of a step in addition to the model and the data: values, gradients, packed weights, scratch.
pub(super) fn of_step(memory: &MemoryUse) -> usize {
    memory.total() - memory.parameters - memory.state - memory.data
}

/// Returns the peak memory of this process in bytes; `None` if the operating system does not report it.
pub(super) fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Limits a trainer to 80 % of the machine's memory, on any number of processes: the limit decides the bits of the trained model.
pub(super) fn limited(trainer: Trainer) -> Trainer {
    ByteSize::of_machine().into_iter().fold(trainer, |trainer, size| trainer.memory_limit(size.bytes()))
}

/// Describes the memory of a training: the computed memory of the largest step, and the peak of the process.
pub(super) fn described(report: &Report) -> String {
    let memory = &report.memory;
    let model = memory.parameters + memory.state;
    let peak = peak().map_or_else(String::new, |peak| format!("; peak of the process {}", megabytes(peak)));
    let divided = match report.divided {
        0 => String::new(),
        steps => format!("; {steps} of {} steps were divided to fit into memory", report.steps),
    };
    format!(
        "computed: model and optimizer {}, data {}, the largest step {}{peak}{divided}",
        megabytes(model),
        megabytes(memory.data),
        megabytes(of_step(memory)),
    )
}
