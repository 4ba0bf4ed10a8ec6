//! The texts that are part of the library, so that a first training needs no file.

use unpadded::Result;
use unpadded_text::{LabelledTexts, PlainText, TaggedTexts, TextFile};

/// Returns the embedded movie reviews: the training part, or the held-out part.
pub(super) fn reviews(train: bool) -> Result<LabelledTexts> {
    let (name, text) = match train {
        true => ("datasets/reviews/train.tsv", include_str!("../../../datasets/reviews/train.tsv")),
        false => ("datasets/reviews/dev.tsv", include_str!("../../../datasets/reviews/dev.tsv")),
    };
    LabelledTexts::of_lines(&TextFile::embedded(name, text))
}

macro_rules! parallel {
    ($part:literal) => {
        [
            (
                concat!("datasets/requests/", $part, "/seq.in"),
                include_str!(concat!("../../../datasets/requests/", $part, "/seq.in")),
            ),
            (
                concat!("datasets/requests/", $part, "/seq.out"),
                include_str!(concat!("../../../datasets/requests/", $part, "/seq.out")),
            ),
            (
                concat!("datasets/requests/", $part, "/label"),
                include_str!(concat!("../../../datasets/requests/", $part, "/label")),
            ),
        ]
    };
}

/// Returns the embedded requests with tags: the training part, or the held-out part.
pub(super) fn requests(train: bool) -> Result<TaggedTexts> {
    let files = if train { parallel!("train") } else { parallel!("dev") };
    let [words, tags, labels] = files.map(|(name, text)| TextFile::embedded(name, text));
    TaggedTexts::of_parallel(&words, &tags, Some(&labels))
}

/// Returns the embedded prose for language models: early versions of this project's documents.
pub(super) fn prose() -> Result<PlainText> {
    Ok(PlainText::new("datasets/prose/prose.txt", include_str!("../../../datasets/prose/prose.txt")))
}
