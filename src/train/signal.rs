//! Interrupts: Ctrl-C and similar signals set a flag while a training runs, and end the program at other times.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::error::Result;

/// The number of trainings that catch interrupts, and the flag that is set while no training catches interrupts. Installing a
/// handler removes the system's default action for good, so a handler of this module does the default action while no training
/// runs.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    trainings: usize,
    idle: Arc<AtomicBool>,
    signals: Vec<c_int>,
}

/// A guard: while it lives, the first interrupt sets the flag, and an interrupt while the flag is set ends the program.
pub(super) struct Interrupts(Vec<SigId>);

impl Interrupts {
    pub(super) fn catch(stop: &Arc<AtomicBool>) -> Result<Self> {
        // If a signal cannot be caught, the guard is dropped, which unregisters the handlers so far.
        let mut caught = Self(Vec::new());
        let signals = {
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let running = match &mut *running {
                Some(running) => running,
                none => none.insert(Running::begin()?),
            };
            running.trainings += 1;
            running.idle.store(false, Ordering::SeqCst);
            running.signals.clone()
        };
        for signal in signals {
            // The order matters: the first handler reads the flag that the second handler set at an earlier interrupt. The exit
            // status is the status that a shell reports for a program that the signal ended.
            caught.0.push(flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?);
            caught.0.push(flag::register(signal, stop.clone())?);
        }
        Ok(caught)
    }
}

impl Running {
    fn begin() -> Result<Self> {
        let signals = interrupt_signals();
        let idle = Arc::new(AtomicBool::new(false));
        heed_file_limit()?;
        for &signal in &signals {
            flag::register_conditional_default(signal, idle.clone())?;
        }
        Ok(Self { trainings: 0, idle, signals })
    }
}

/// Returns the signals that interrupt a program: SIGINT, SIGTERM, and SIGHUP unless the program was started with SIGHUP ignored, as by
/// `nohup`.
pub fn interrupt_signals() -> Vec<c_int> {
    [SIGINT, SIGTERM].into_iter().chain(hangup()).collect()
}

/// Makes a file beyond the size limit (`ulimit -f`) an error of the write, like a full disk.
#[cfg(unix)]
fn heed_file_limit() -> Result<()> {
    flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(())
}

#[cfg(not(unix))]
fn heed_file_limit() -> Result<()> {
    Ok(())
}

/// Returns SIGHUP, the signal of a closed terminal, unless the program was started with it ignored, as by `nohup` (read from `/proc`,
/// where it exists).
#[cfg(unix)]
fn hangup() -> Option<c_int> {
    use signal_hook::consts::SIGHUP;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let ignored = mask.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1);
    (!ignored).then_some(SIGHUP)
}

#[cfg(not(unix))]
fn hangup() -> Option<c_int> {
    None
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        if let Some(running) = &mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) {
            running.trainings -= 1;
            if running.trainings == 0 {
                running.idle.store(true, Ordering::SeqCst);
            }
        }
        for id in self.0.drain(..) {
            low_level::unregister(id);
        }
    }
}
