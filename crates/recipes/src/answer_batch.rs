//! How many texts a model answers together.

use unpadded::Result;

/// The largest batch of texts that a model answers together. All computed values of a batch are in memory, so the size of a
/// batch is limited; the answers do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerBatch {
    texts: usize,
    bytes: usize,
}

impl AnswerBatch {
    /// The maximum number of texts in a batch of [`Model::batch`](super::Model::batch).
    pub const TEXTS: usize = 256;

    /// Returns a batch of at most [`Self::TEXTS`] texts that is complete from `bytes` bytes of text on.
    pub(super) const fn of_bytes(bytes: usize) -> Self {
        Self { texts: Self::TEXTS, bytes }
    }

    /// Sets the maximum number of texts.
    #[must_use]
    pub fn texts(self, texts: usize) -> Self {
        Self { texts, ..self }
    }

    /// Returns whether a batch with this number of texts and of bytes of text is complete.
    pub fn is_complete(self, texts: usize, bytes: usize) -> bool {
        texts >= self.texts || bytes >= self.bytes
    }

    /// Passes records to `each` batch by batch; `size` is the length of a record in bytes.
    pub(super) fn divide<R>(
        self,
        records: &mut dyn Iterator<Item = Result<R>>,
        size: &dyn Fn(&R) -> usize,
        each: &mut dyn FnMut(&[R]) -> Result<()>,
    ) -> Result<()> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for record in records {
            let record = record?;
            bytes += size(&record);
            batch.push(record);
            if self.is_complete(batch.len(), bytes) {
                each(&batch)?;
                batch.clear();
                bytes = 0;
            }
        }
        if batch.is_empty() { Ok(()) } else { each(&batch) }
    }
}
