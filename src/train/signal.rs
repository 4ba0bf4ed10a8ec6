//! Interrupts: Ctrl-C sets a flag while a training runs, and ends the program at other times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::SIGINT;
use signal_hook::{SigId, flag, low_level};

use crate::error::Result;

/// How many trainings catch interrupts, and the flag that is up while none does. Once a handler is installed the
/// system's own is gone for good, so one of ours does what it did when no training runs.
static RUNNING: Mutex<(usize, Option<Arc<AtomicBool>>)> = Mutex::new((0, None));

/// While it lives, the first interrupt sets the flag, and one that comes while the flag is set ends the program.
pub(super) struct Interrupts(Vec<SigId>);

impl Interrupts {
    pub(super) fn catch(stop: &Arc<AtomicBool>) -> Result<Self> {
        {
            let (running, idle) = &mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = match idle {
                Some(idle) => idle,
                none => {
                    let up = Arc::new(AtomicBool::new(false));
                    flag::register_conditional_default(SIGINT, up.clone())?;
                    none.insert(up)
                }
            };
            *running += 1;
            idle.store(false, Ordering::SeqCst);
        }
        // In this order: the first looks at what an interrupt before has set with the second.
        let mut caught = Self(Vec::with_capacity(2));
        caught.0.push(flag::register_conditional_shutdown(SIGINT, 130, stop.clone())?);
        caught.0.push(flag::register(SIGINT, stop.clone())?);
        Ok(caught)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let (running, idle) = &mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        *running -= 1;
        if let (0, Some(idle)) = (*running, idle) {
            idle.store(true, Ordering::SeqCst);
        }
        for id in self.0.drain(..) {
            low_level::unregister(id);
        }
    }
}
