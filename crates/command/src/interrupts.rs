//! Handling of signals while an output file is written: the first signal ends the command after its temporary file is
//! removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::flag;
use unpadded::train::interrupt_signals;

use super::outcome::Outcome;

/// The number of the received signal; 0 if no signal was received.
pub(super) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Catches signals until the program ends: the first signal is recorded, and a second signal ends the program at once.
    pub(super) fn catch() -> Outcome<Self> {
        let (came, first) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for signal in interrupt_signals() {
            // The order of the first two actions matters. The first action ends the program if the flag `came` is set, and
            // the second action sets this flag; in the other order, the first signal would already end the program.
            flag::register_conditional_shutdown(signal, 128 + signal, came.clone())?;
            flag::register(signal, came.clone())?;
            flag::register_usize(signal, first.clone(), usize::try_from(signal)?)?;
        }
        Ok(Self(first))
    }

    /// Returns the number of the received signal; `None` if no signal was received.
    pub(super) fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
    }
}
