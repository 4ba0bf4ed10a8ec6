//! The plan for reading the records of a data set: each pass over the records follows the plan.

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
    /// Starts a pass over the records, from the first record.
    pub(crate) open: Arc<dyn Fn() -> Stream<R> + Send + Sync>,
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
        Self { name, options, open: Arc::new(open) }
    }
}
