//! Data: from files of text to ragged batches.
