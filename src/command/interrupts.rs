//! Signals while a file is written: the first ends the command once its temporary file is removed.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::outcome::Outcome;

/// The signal that came, 0 for none.
pub(super) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Catches signals from now to the end of the program; the second signal ends it at once.
    pub(super) fn catch() -> Outcome<Self> {
        let (came, first) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup()) {
            // In this order: the first action reads what an earlier signal has set with the second.
            flag::register_conditional_shutdown(signal, 128 + signal, came.clone())?;
            flag::register(signal, came.clone())?;
            flag::register_usize(signal, first.clone(), usize::try_from(signal)?)?;
        }
        Ok(Self(first))
    }

    /// The signal that came, if one did.
    pub(super) fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
    }
}

/// The signal of a terminal's end, unless the program was begun with it ignored, as by `nohup`.
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
