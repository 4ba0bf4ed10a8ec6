//! The texts that are part of this crate, so that a first training needs no file.

use unpadded::Result;
use unpadded_text::{LabelledTexts, PlainText, TaggedTexts, TextFile};

macro_rules! file {
    ($name:literal) => {
        TextFile::embedded($name, include_str!(concat!("../../../", $name)))
    };
}

pub(super) fn reviews(train: bool) -> Result<LabelledTexts> {
    LabelledTexts::of_lines(&match train {
        true => file!("datasets/reviews/train.tsv"),
        false => file!("datasets/reviews/dev.tsv"),
    })
}

pub(super) fn requests(train: bool) -> Result<TaggedTexts> {
    let [words, tags, labels] = match train {
        true => [
            file!("datasets/requests/train/seq.in"),
            file!("datasets/requests/train/seq.out"),
            file!("datasets/requests/train/label"),
        ],
        false => [
            file!("datasets/requests/dev/seq.in"),
            file!("datasets/requests/dev/seq.out"),
            file!("datasets/requests/dev/label"),
        ],
    };
    TaggedTexts::of_parallel(&words, &tags, Some(&labels))
}

pub(super) fn prose() -> Result<PlainText> {
    Ok(PlainText::new("datasets/prose/prose.txt", include_str!("../../../datasets/prose/prose.txt")))
}
