//! Batches made ahead, by a thread in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::{Batch, Batches};
use crate::error::{Error, ErrorKind, Result};

/// The same batches, up to `ahead` of them ready before they are asked for. The thread ends after the last one, or
/// when it has the next one ready after the iterator was dropped. Its panic is the last item, an error.
pub(super) fn prefetch(mut batches: Batches, ahead: usize) -> Result<Batches> {
    let (sender, receiver) = sync_channel(ahead);
    let work = move || {
        loop {
            let item = catch_unwind(AssertUnwindSafe(|| batches.next())).unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Some(Err(Error::new("thread that reads data", "no panic", format!("`{said}`"))))
            });
            let last = !matches!(item, Some(Ok(_)));
            // Nobody listens any more: the iterator was dropped.
            if item.is_none_or(|item| sender.send(item).is_err()) || last {
                return;
            }
        }
    };
    let started = thread::Builder::new().name("unpadded data".into()).spawn(work);
    started.map_err(|e| Error::of(ErrorKind::Io, "thread that reads data", "to start", e.to_string()))?;
    Ok(Box::new(Ahead(receiver)))
}

/// The receiving end. The thread is not joined when this is dropped: it may wait for a pipe that never says a word.
struct Ahead(Receiver<Result<Batch>>);

impl Iterator for Ahead {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.0.recv().ok()
    }
}
