//! The plan for reading the records of a data set: each pass over the records follows the plan.

use std::fmt;
use std::sync::Arc;

use unpadded::Result;

use crate::ReadOptions;
use crate::source::records::{Stream, to_first_error};
use crate::source::skipped::SkipLog;

/// The plan for reading a data set: the files of the data set, and the way in which the records are read.
pub struct Plan<R> {
    /// The name that messages show for the data set.
    pub(crate) name: String,
    /// The options that are set, and the detected format and columns.
    pub(crate) options: ReadOptions,
    pub(crate) records: StreamOpener<R>,
}

/// A function that starts a pass over the records of a data set, from the first record.
#[derive(Clone)]
pub(crate) struct StreamOpener<R>(Arc<dyn Fn() -> Stream<R> + Send + Sync>);

impl<R> StreamOpener<R> {
    pub(crate) fn new(open: impl Fn() -> Stream<R> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(&self) -> Stream<R> {
        (self.0)()
    }
}

impl<R> fmt::Debug for StreamOpener<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamOpener")
    }
}

pub(crate) type Opener<R> = Box<dyn Fn() -> Result<Stream<R>> + Send + Sync>;

impl<R: 'static> Plan<R> {
    /// Counts the records of each pass, `size` for each item, and checks the share of malformed records at its end.
    pub(crate) fn checked(mut self, size: fn(&R) -> u64) -> Self {
        let (raw, log) = (self.records, Arc::clone(&self.options.skips.0));
        self.records = StreamOpener::new(move || {
            let (mut records, log, mut read) = (raw.open(), Arc::<SkipLog>::clone(&log), 0);
            to_first_error(move || match records.next().transpose()? {
                Some(record) => {
                    read += size(&record);
                    log.count(read);
                    Ok(Some(record))
                }
                None => log.check().map(|()| None),
            })
        });
        self
    }
}

impl<R: Send + 'static> Plan<R> {
    /// Returns a plan that reads the records of several inputs, in the order of the inputs.
    pub(crate) fn of(name: String, options: ReadOptions, inputs: Vec<Opener<R>>) -> Self {
        let inputs: Arc<[Opener<R>]> = inputs.into();
        let open = move || -> Stream<R> {
            let inputs = Arc::clone(&inputs);
            let open_input = move |at: usize| inputs.get(at).map(|open| open());
            let opened = (0..).map_while(open_input);
            let records =
                |found: Result<Stream<R>>| found.unwrap_or_else(|e| Box::new(std::iter::once(Err(e))));
            let mut records = opened.flat_map(records);
            to_first_error(move || records.next().transpose())
        };
        Self { name, options, records: StreamOpener::new(open) }
    }
}
