//! A training without the feature `terminal`: there is no progress bar, and interrupts are not caught.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Result;

pub(super) enum NoBar {}

impl NoBar {
    pub(super) fn new(_: u64) -> Option<Self> {
        None
    }

    pub(super) fn say(&self, _: &dyn Display) {
        match *self {}
    }

    pub(super) fn show(&self, _: [u64; 2], _: String, _: String) {
        match *self {}
    }
}

pub(super) struct NoInterrupts;

impl NoInterrupts {
    pub(super) fn catch(_: &Arc<AtomicBool>) -> Result<Self> {
        Ok(Self)
    }
}
