//! Signals outside of a training end the command: after its temporary file is removed, or with a message.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::{SigId, flag, low_level};
use unpadded::train::{catch_interrupts, interrupt_signals};

use super::outcome::{self, Outcome};
use super::terminal;

/// A guard that catches signals: the first signal is recorded, and a second signal ends the program at once.
pub(super) struct Interrupts {
    /// The number of the first signal; 0 if no signal was received.
    first: Arc<AtomicUsize>,
    handlers: Vec<SigId>,
    /// This guard also turns off the handlers of a training that has ended, which would end the program without a message.
    _caught: Box<dyn Any>,
}

impl Interrupts {
    pub(super) fn catch() -> Outcome<Self> {
        let (first, _caught) = (Arc::new(AtomicUsize::new(0)), Box::new(catch_interrupts(&Arc::default())));
        let mut caught = Self { first, handlers: Vec::new(), _caught };
        for signal in interrupt_signals() {
            let number = usize::try_from(signal)?;
            caught.handlers.push(flag::register_usize(signal, caught.first.clone(), number)?);
        }
        Ok(caught)
    }

    /// Returns the number of the received signal; `None` if no signal was received.
    pub(super) fn signal(&self) -> Option<u8> {
        u8::try_from(self.first.load(Ordering::SeqCst)).ok().filter(|&signal| signal > 0)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            low_level::unregister(handler);
        }
    }
}

/// Returns the result of `work`, in a thread of its own. A signal prints `message`, calls `end`, and exits with 128 plus its number.
pub(super) fn until_signal<T: Send>(
    message: &str,
    end: impl FnOnce() -> Outcome<()>,
    work: impl FnOnce() -> T + Send,
) -> Outcome<T> {
    const EACH: Duration = Duration::from_millis(50);
    let interrupts = Interrupts::catch()?;
    let (running, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let work = move || {
            let _running = running;
            work()
        };
        let worker = std::thread::Builder::new().spawn_scoped(scope, work)?;
        loop {
            let works = ended.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout);
            // A signal since the last look is reported even if the work has ended.
            if let Some(signal) = interrupts.signal() {
                terminal::say(message);
                if let Err(e) = end() {
                    terminal::say(format!("warning: the report is not written: {}", outcome::message(&*e)));
                }
                std::process::exit(128 + i32::from(signal));
            }
            if !works {
                break;
            }
        }
        Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
