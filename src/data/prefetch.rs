//! Prefetching: a background thread makes batches before they are used.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::{Batch, Batches, Data};
use crate::error::{Error, ErrorKind, Result};

/// Makes up to `ahead` batches in advance, in a background thread. The thread ends after the last batch; if the
/// iterator is dropped earlier, the thread ends once the next batch is ready. If the thread panics, the last item is an
/// error with the panic message.
pub(super) fn prefetch(batches: Batches, ahead: usize) -> Result<Batches> {
    let receiver = made_by_a_thread(batches, ahead, None)?;
    Ok(Box::new(BatchReceiver(receiver)))
}

/// Returns the batches of `data`, and stops when `stop` is set. If `stop` is set while a read is blocked, for example
/// by a slow network disk, the read is abandoned: the last item is an error, and the returned flag is set.
pub(crate) fn until_stopped(
    data: &dyn Data,
    batches: Batches,
    stop: &Arc<AtomicBool>,
) -> Result<(Batches, Arc<AtomicBool>)> {
    if !data.may_wait() {
        return Ok((batches, Arc::default()));
    }
    // The thread makes a batch only on request, so that no record is read in advance.
    let (ask, asked) = sync_channel(1);
    let receiver = made_by_a_thread(batches, 1, Some(asked))?;
    let (stop, given_up) = (Arc::clone(stop), Arc::<AtomicBool>::default());
    let batches = Stoppable { ask, receiver, stop, given_up: Arc::clone(&given_up) };
    Ok((Box::new(batches), given_up))
}

/// Starts a thread that makes batches: up to `ahead` batches in advance, or one per request if `asked` is given.
fn made_by_a_thread(
    mut batches: Batches,
    ahead: usize,
    asked: Option<Receiver<()>>,
) -> Result<Receiver<Result<Batch>>> {
    let (sender, receiver) = sync_channel(ahead);
    let work = move || {
        loop {
            if asked.as_ref().is_some_and(|asked| asked.recv().is_err()) {
                return;
            }
            let item = catch_unwind(AssertUnwindSafe(|| batches.next())).unwrap_or_else(|panic| {
                let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Some(Err(Error::new("thread that reads data", "no panic", format!("`{message}`"))))
            });
            let last = !matches!(item, Some(Ok(_)));
            // Sending fails if the receiver was dropped together with the iterator.
            if item.is_none_or(|item| sender.send(item).is_err()) || last {
                return;
            }
        }
    };
    let started = thread::Builder::new().name("unpadded data".into()).spawn(work);
    started.map_err(|e| Error::of(ErrorKind::Io, "thread that reads data", "to start", e.to_string()))?;
    Ok(receiver)
}

/// An iterator over the batches that a thread has made. Dropping the iterator does not wait for the thread, because a
/// read from a pipe may block the thread forever.
struct BatchReceiver(Receiver<Result<Batch>>);

impl Iterator for BatchReceiver {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.0.recv().ok()
    }
}

/// An iterator over batches that checks the flag `stop` while it waits for a batch.
struct Stoppable {
    ask: SyncSender<()>,
    receiver: Receiver<Result<Batch>>,
    stop: Arc<AtomicBool>,
    given_up: Arc<AtomicBool>,
}

impl Iterator for Stoppable {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        const LOOKS: Duration = Duration::from_millis(50);
        // Sending the request fails if the thread has ended: there are no more batches.
        self.ask.send(()).ok()?;
        loop {
            match self.receiver.recv_timeout(LOOKS) {
                Ok(item) => return Some(item),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::SeqCst) => {
                    self.given_up.store(true, Ordering::SeqCst);
                    return Some(Err(Error::of(ErrorKind::Io, "next batch", "data", "an interrupt first")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
