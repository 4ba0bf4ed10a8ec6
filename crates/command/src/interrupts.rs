//! Handling of signals outside of a training: while an output file is written, the first signal ends the command after its
//! temporary file is removed; while a test file is scored, it ends the command with a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::{flag, low_level};
use unpadded::train::{catch_interrupts, interrupt_signals};

use super::outcome::{self, Outcome};
use super::terminal;

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

    pub(super) fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
    }
}

/// Returns the result of `work`, which runs in a thread of its own. At a signal during the work, prints the line `said`, calls
/// `end`, and ends the program; the exit code is 128 plus the number of the signal.
pub(super) fn until_signal<T: Send>(
    said: &str,
    end: impl FnOnce() -> Outcome<()>,
    work: impl FnOnce() -> T + Send,
) -> Outcome<T> {
    const EACH: Duration = Duration::from_millis(50);
    let (came, first) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    // This guard also turns off the handlers of a training that has ended, which would end the program without a message. A
    // second signal ends the program at once.
    let _caught = catch_interrupts(&came);
    let mut handlers = Vec::new();
    for signal in interrupt_signals() {
        handlers.push(flag::register_usize(signal, first.clone(), usize::try_from(signal)?)?);
    }
    let (running, ended) = channel::<()>();
    let done = std::thread::scope(|scope| -> Outcome<T> {
        let work = move || {
            let _running = running;
            work()
        };
        let worker = std::thread::Builder::new().spawn_scoped(scope, work)?;
        loop {
            let works = ended.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout);
            // A signal since the last look is reported even if the work has ended.
            let signal = first.load(Ordering::SeqCst);
            if signal > 0 {
                terminal::say(said);
                if let Err(e) = end() {
                    terminal::say(format!("warning: the report is not written: {}", outcome::said(&*e)));
                }
                std::process::exit(128 + i32::try_from(signal).unwrap_or_default());
            }
            if !works {
                break;
            }
        }
        Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    for handler in handlers {
        low_level::unregister(handler);
    }
    done
}
