//! TEXTDOC

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
