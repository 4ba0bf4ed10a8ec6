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

mod answer;
mod dataset;
mod detect;
mod format;
mod memory;
mod record;
mod source;
mod word_vectors;

pub mod prelude;

pub use answer::answers::{AnswerCell, Question};
pub use answer::questions::{QuestionKind, Questions};
pub use dataset::data_set::{
    Change, DataSet, DataStorage, HoldOutRule, Passes, Record, RecordPass, RecordStorage, is_held,
};
pub use dataset::files::{FileRecords, Files, LabelledFiles, PairFiles, TaggedFiles};
pub use dataset::folds::Fold;
pub use dataset::labelled_rows::{LabelledRows, Target};
pub use dataset::labelled_texts::LabelledTexts;
pub use dataset::pairs::Pairs;
pub use dataset::record_source::RecordSource;
pub use dataset::tagged_texts::scheme as scheme_of;
pub use dataset::tagged_texts::{TaggedText, TaggedTexts};
pub use detect::options::ReadOptions;
pub use detect::tag_spelling::{TagSpelling, Tagging};
pub use format::FileFormat;
pub use format::dictionary::are_pronunciations;
pub use format::labels::LabelNotation;
pub use format::libsvm::{FirstIndex, LabelledRow};
pub use record::plain::{FileText, PlainFiles, PlainSource, PlainText};
pub use record::plan::Plan;
pub use source::encoding::{Encoding, NamedEncoding};
pub use source::folder::Folder;
pub use source::parts::DataPaths;
pub use source::path_text::{path_of_text, text_of_path};
pub use source::records::{LabelledText, MalformedLines, Pair, Records, SkippedRecords};
pub use source::skipped::{SkipReport, SkippedLine};
pub use source::text_file::TextFile;
pub use word_vectors::WordVectors;

#[cfg(test)]
mod tests;
