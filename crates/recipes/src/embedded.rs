//! The texts that are part of this crate, so that a first training needs no file.

use unpadded::Result;
use unpadded_text::{LabelledTexts, PlainText, TaggedTexts, TextFile};

macro_rules! file {
    ($($name:literal)+) => {
        TextFile::embedded(concat!($($name),+), include_str!(concat!("../../../", $($name),+)))
    };
}

pub(super) fn reviews(train: bool) -> Result<LabelledTexts> {
    LabelledTexts::of_lines(&match train {
        true => file!("datasets/reviews/train.tsv"),
        false => file!("datasets/reviews/dev.tsv"),
    })
}

pub(super) fn requests(train: bool) -> Result<TaggedTexts> {
    macro_rules! files {
        ($part:literal) => {
            [file!($part "/seq.in"), file!($part "/seq.out"), file!($part "/label")]
        };
    }
    let [words, tags, labels] =
        if train { files!("datasets/requests/train") } else { files!("datasets/requests/dev") };
    TaggedTexts::of_parallel(&words, &tags, Some(&labels))
}

pub(super) fn prose() -> Result<PlainText> {
    Ok(PlainText::new("datasets/prose/prose.txt", include_str!("../../../datasets/prose/prose.txt")))
}
