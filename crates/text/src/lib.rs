//! Files of text as data sets for [`unpadded`]: formats, columns, headers, encodings and tag schemes are detected from the head
//! of a file, unless [`ReadOptions`] set them. A data set makes the vocabularies and the batches of a training.
//!
//! | from | to | by |
//! |---|---|---|
//! | a path, a pattern or a list of them | a data set, whose format and columns are detected | `open` and `open_with` of a [`DataSet`]: [`LabelledTexts`], [`Pairs`], [`TaggedTexts`], [`LabelledRows`]; and of [`PlainText`], with [`ReadOptions`] and [`FileFormat`] |
//! | a folder or a JSON file that is divided already | the paths of training, validation and test data | [`DataPaths`] |
//! | a file, plain or compressed with gzip or zip | records | [`TextFile`], [`Folder`] |
//! | labelled texts | vocabularies, a part held out, a loader | [`LabelledTexts`] in memory, [`LabelledFiles`] in files larger than memory |
//! | texts and their translations | vocabularies, a part held out, all translations of each text, a loader | [`Pairs`] in memory, [`PairFiles`] in files larger than memory |
//! | words with tags, in columns or parallel files | chunks, vocabularies, a part held out, samples | [`TaggedTexts`] in memory, [`TaggedFiles`] in files larger than memory, [`Tagging`] |
//! | files of pre-trained word vectors | the rows of an embedding's table | [`WordVectors`] |
//! | LIBSVM files | columns, classes, a part held out, a loader of sparse batches | [`LabelledRows`] |
//! | one long text | batches of its pieces, by [`Continuous`](unpadded::data::Continuous) | [`PlainText`] in memory, or [`PlainFiles`] larger than memory |
//! | a file whose records a model answers | the answers beside the records | [`Questions`] |
//!
//! Streaming needs bounded memory: a line, a shuffle buffer, and a few prefetched batches.
//!
//! ```no_run
//! use unpadded_text::prelude::*;
//!
//! let (train, dev) = LabelledTexts::open("reviews.csv")?.hold_out(10, 1);
//! let cut = Tokenizer::words().lowercase();
//! let (words, labels) = (train.vocabulary(&cut, &Limits::default())?, train.labels()?);
//! let batches = train.loader(["words", "label"], &cut, (&words, &labels))?.batching(Batching::Sequences(32));
//! # let _ = (dev, batches);
//! # Ok::<(), unpadded::Error>(())
//! ```

mod archive;
mod conll;
mod data_set;
mod encoding;
mod files;
mod folder;
mod folds;
mod gzip;
mod head;
mod hold_out;
mod kind;
mod labelled_rows;
mod labelled_texts;
mod libsvm;
mod lines;
mod memory;
mod open;
mod pairs;
mod parallel;
mod plan;
mod record_source;
mod records;
mod tag_spelling;
mod tagged_texts;
mod text_file;
mod watched;
mod word_vectors;

pub mod prelude;

pub use data_set::{Change, DataSet, Passes, Record, RecordPass};
pub use encoding::{Encoding, NamedEncoding};
pub use files::{Files, LabelledFiles, PairFiles, Survey, TaggedFiles};
pub use folder::Folder;
pub use folds::Fold;
pub use labelled_rows::{LabelledRows, Target};
pub use labelled_texts::LabelledTexts;
pub use libsvm::{FirstIndex, LabelledRow};
pub use open::{
    AnswerCell, DataPaths, FileFormat, PlainFiles, PlainText, Question, QuestionKind, Questions, ReadOptions,
};
pub use open::{PlainSource, are_pronunciations};
pub use pairs::Pairs;
pub use plan::Plan;
pub use record_source::RecordSource;
pub use records::{ColumnSpec, LabelledText, MalformedLines, Pair, Records, SkippedRecords};
pub use tag_spelling::{TagSpelling, Tagging};
pub use tagged_texts::scheme as scheme_of;
pub use tagged_texts::{TaggedText, TaggedTexts};
pub use text_file::TextFile;
pub use word_vectors::WordVectors;
