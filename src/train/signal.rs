//! Interrupts: Ctrl-C and similar signals set a flag while a training runs, and end the program at other times.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::error::Result;

/// The number of trainings that catch interrupts, and the flag `idle`, which is true while no training catches
/// interrupts. Installing a handler removes the system's default action for good. While no training runs, a handler of
/// this module therefore does the default action itself.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    trainings: usize,
    idle: Arc<AtomicBool>,
    signals: Vec<c_int>,
}

/// A guard: while the guard exists, the first interrupt sets the stop flag, and an interrupt while the flag is set ends the
/// program.
pub(super) struct Interrupts(Vec<SigId>);

impl Interrupts {
    pub(super) fn catch(stop: &Arc<AtomicBool>) -> Result<Self> {
        // If a signal cannot be caught, the guard is dropped, and its handlers are unregistered.
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
            // The order of the two handlers matters: the first handler ends the program if the second handler has set the flag
            // at an earlier interrupt. The exit status 128 + signal is the status that a shell reports for a program that the
            // signal has ended.
            caught.0.push(flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?);
            caught.0.push(flag::register(signal, stop.clone())?);
        }
        Ok(caught)
    }
}

/// Catches interrupts while the returned guard exists, outside of a training: the first interrupt (see
/// [`interrupt_signals`]) sets `stop`, and an interrupt while `stop` is set ends the program. Returns `None` if the system
/// refuses the handlers.
pub fn catch_interrupts(stop: &Arc<AtomicBool>) -> Option<impl Drop + use<>> {
    Interrupts::catch(stop).ok()
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

/// Returns the signals that interrupt a program: SIGINT, SIGTERM and SIGHUP. SIGHUP is left out if it was ignored when
/// the program started, as with `nohup`.
pub fn interrupt_signals() -> Vec<c_int> {
    [SIGINT, SIGTERM].into_iter().chain(hangup()).collect()
}

/// Handles the signal SIGXFSZ, so that a write beyond the limit of the file size (`ulimit -f`) returns an error. By default,
/// the signal would end the program.
#[cfg(unix)]
fn heed_file_limit() -> Result<()> {
    flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(())
}

#[cfg(not(unix))]
fn heed_file_limit() -> Result<()> {
    Ok(())
}

/// Returns SIGHUP, the signal of a closed terminal. Returns `None` if SIGHUP was ignored when the program started, as
/// with `nohup`; this is read from `/proc`, if it exists.
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
