//! The plan for reading the records of a data set: each pass over the records follows the plan.

use std::fmt;
use std::sync::Arc;

use unpadded::Result;

use crate::ReadOptions;
use crate::source::records::{Stream, to_first_error};

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

/// A function that starts a pass over the records of a file, from the first record.
pub(crate) type Opener<R> = Box<dyn Fn() -> Result<Stream<R>> + Send + Sync>;

impl<R: Send + 'static> Plan<R> {
    /// Returns a plan that reads the records of several inputs, in the order of the inputs.
    pub(crate) fn of(name: String, options: ReadOptions, inputs: Vec<Opener<R>>) -> Self {
        let inputs: Arc<[Opener<R>]> = inputs.into();
        let open = move || -> Stream<R> {
            let inputs = Arc::clone(&inputs);
            let of = move |at: usize| inputs.get(at).map(|open| open());
            let opened = (0..).map_while(of);
            let records =
                |found: Result<Stream<R>>| found.unwrap_or_else(|e| Box::new(std::iter::once(Err(e))));
            let mut records = opened.flat_map(records);
            to_first_error(move || records.next().transpose())
        };
        Self { name, options, records: StreamOpener::new(open) }
    }
}
