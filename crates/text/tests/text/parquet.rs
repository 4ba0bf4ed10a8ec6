//! Parquet files that pyarrow wrote (`fixtures/make_parquet.py`), read where CSV and JSON Lines are.

// Most tests and their imports are of the feature.
#![cfg_attr(not(feature = "parquet"), allow(unused_imports))]

use std::path::{Path, PathBuf};

use unpadded::data::{Data, Limits, Loader, Tokenizer};
use unpadded_text::{
    FileFormat, LabelledFiles, LabelledTexts, MalformedLines, Pairs, PlainText, ReadOptions, TaggedTexts,
};

use crate::models::Random;
#[cfg(feature = "parquet")]
use crate::thorough::times;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/text/fixtures/parquet_{name}.parquet"))
}

/// A message without the folder.
#[track_caller]
fn error<T>(outcome: unpadded::Result<T>) -> String {
    let folder = fixture("").parent().unwrap().display().to_string() + "/";
    format!("{:#}", outcome.err().unwrap()).replace(&folder, "")
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_the_feature_an_error_names_it() {
    let expected = "file `parquet_reviews.parquet`, which is Parquet: expected a build with the feature `parquet` (`--features parquet`), got a build without this feature";
    assert_eq!(error(LabelledTexts::open(fixture("reviews"))), expected);
}

#[cfg(feature = "parquet")]
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-parquet-{}-{name}", std::process::id()))
}

/// The reviews that the fixtures hold.
#[cfg(feature = "parquet")]
fn reviews() -> Vec<unpadded_text::LabelledText> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/reviews/train.tsv");
    LabelledTexts::open(path).unwrap().records()[..40].to_vec()
}

#[cfg(feature = "parquet")]
#[test]
fn columns_are_found_and_every_kind_of_value_is_read() {
    let (file, expected) = (fixture("reviews"), reviews());
    let found = LabelledTexts::open(&file).unwrap();
    assert_eq!(found.records(), expected);
    let read_as = found.read_as().to_string();
    assert!(read_as.starts_with("`parquet`, text in `text`, label in `label`"), "{read_as}");

    let labels = |label: &str| -> Vec<String> {
        let options = ReadOptions::new().label(label);
        let found = LabelledTexts::open_with([&file], &options).unwrap();
        found.records().iter().map(|one| one.label.clone()).collect()
    };
    let good: Vec<bool> = expected.iter().map(|one| one.label == "positive").collect();
    assert_eq!(labels("good"), good.iter().map(bool::to_string).collect::<Vec<_>>());
    assert_eq!(labels("number"), good.iter().map(|&good| u8::from(good).to_string()).collect::<Vec<_>>());
    assert_eq!(labels("share")[..2], ["0.1", "1.1"]);
    assert_eq!(labels("about.by")[..4], ["writer 0", "writer 1", "writer 2", "writer 0"]);
    assert_eq!(labels("about.long")[0], expected[0].text.len().to_string());

    let options = ReadOptions::new().source("label").target("text");
    let pairs = Pairs::open_with([&file], &options).unwrap();
    assert!(pairs.records().iter().zip(&expected).all(|(a, b)| a.source == b.label && a.target == b.text));
    let text = PlainText::open(&file).unwrap();
    assert!(text.text().lines().eq(expected.iter().map(|one| one.text.as_str())));
}

#[cfg(feature = "parquet")]
#[test]
fn pages_are_read_however_they_are_written_and_packed() {
    let expected = &reviews()[..6];
    for name in ["none", "gzip", "lz4", "v2"] {
        let found = LabelledTexts::open(fixture(&format!("reviews_{name}"))).unwrap();
        assert_eq!(found.records(), expected, "{name}");
    }
    let zstd = LabelledTexts::open(fixture("reviews_zstd"));
    if cfg!(feature = "parquet-zstd") {
        assert_eq!(zstd.unwrap().records(), expected);
    } else {
        let known = "compression of `text` in file `parquet_reviews_zstd.parquet`: expected snappy, gzip, lz4 or no compression, got zstd; build the program with `--features parquet-zstd`, which needs a C compiler";
        assert!(error(zstd).starts_with(known));
    }
    let brotli = error(LabelledTexts::open(fixture("reviews_brotli")));
    assert!(brotli.contains("got brotli; write the file with another compression"), "{brotli}");

    // Under another name, and with gzip around it.
    let bytes = std::fs::read(fixture("reviews")).unwrap();
    let other = path("other.csv");
    std::fs::write(&other, &bytes).unwrap();
    assert_eq!(LabelledTexts::open(&other).unwrap().records(), reviews());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &bytes).unwrap();
    std::fs::write(&other, packed.finish().unwrap()).unwrap();
    assert_eq!(LabelledTexts::open(&other).unwrap().records(), reviews());
    std::fs::remove_file(other).ok();
}

#[cfg(feature = "parquet")]
#[test]
fn tagged_texts_have_lists_and_the_names_of_their_tags() {
    let named = TaggedTexts::open(fixture("tagged")).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/requests/train");
    let expected = &TaggedTexts::open(folder).unwrap().records()[..12].to_vec();
    assert_eq!(named.records(), expected);
    assert_eq!(TaggedTexts::open(fixture("tagged_texts")).unwrap().records(), expected);
    // Without the names, tags are numbers.
    let numbered = TaggedTexts::open(fixture("tagged_numbers")).unwrap();
    assert_eq!(numbered.records().len(), 12);
    for (a, b) in numbered.records().iter().zip(expected) {
        assert_eq!((&a.words, a.tags.len()), (&b.words, b.tags.len()));
        assert!(a.tags.iter().all(|tag| tag.parse::<u8>().is_ok()), "{:?}", a.tags);
    }
}

#[cfg(feature = "parquet")]
#[test]
fn a_file_is_streamed_and_trained_on() -> unpadded::Result<()> {
    let (file, tokenizer) = (fixture("reviews"), Tokenizer::words());
    let whole = LabelledTexts::open(&file)?;
    let (words, labels) = (whole.vocabulary(&tokenizer, &Limits::default())?, whole.labels()?);
    let streamed = LabelledFiles::open(&file)?.loader(["words", "label"], &tokenizer, (&words, &labels))?;
    let numbers = |data: &Loader| -> unpadded::Result<Vec<_>> {
        data.batches(None, 0)?.map(|batch| batch.map(|batch| (batch.numbers, batch.tokens))).collect()
    };
    let in_memory = whole.loader(["words", "label"], &tokenizer, (&words, &labels))?;
    assert_eq!(numbers(&streamed)?, numbers(&in_memory)?);
    Ok(())
}

#[cfg(feature = "parquet")]
#[test]
fn what_does_not_fit_is_said_with_its_row() {
    let with = |options: ReadOptions, name: &str| error(LabelledTexts::open_with([fixture(name)], &options));
    let new = ReadOptions::new;
    let missing = with(new().label("lable"), "reviews");
    let expected = "field `lable` of file `parquet_reviews.parquet`, the label: expected one of `id`, `text`, `label`, `number`, \
                    `good`, `share`, `about.by`, `about.long`, `day`, `bytes`, got `lable`; the nearest is `label`";
    assert!(missing.starts_with(expected), "{missing}");
    let day = with(new().label("day"), "reviews");
    let expected = "field `day` of file `parquet_reviews.parquet`: expected texts, numbers, truth values, or lists of these, got INT32 \
                    (Date)";
    assert!(day.starts_with(expected), "{day}");
    let bytes = with(new().label("bytes"), "reviews");
    let expected = "row 1 of parquet_reviews.parquet: expected UTF-8 in the field `bytes`, got other bytes from place 0 on";
    assert!(bytes.starts_with(expected), "{bytes}");
    let nulls = with(new(), "nulls");
    let expected = "row 3 of parquet_nulls.parquet: expected a string in the field `text`, got null; read as `parquet`, since its \
                    first bytes are `PAR1`; `format` (`data.format` in a config) overrides it";
    assert_eq!(nulls, expected);
    let rest = LabelledTexts::open_with([fixture("nulls")], &new().malformed(MalformedLines::Skip)).unwrap();
    let rest: Vec<&str> = rest.records().iter().map(|one| one.text.as_str()).collect();
    assert_eq!(rest, ["a", "b", "d", "f"]);
    let list = with(new().text("tokens"), "tagged_texts");
    assert!(
        list.starts_with(
            "row 1 of parquet_tagged_texts.parquet: expected a string in the field `tokens`, got a list"
        ),
        "{list}"
    );
    let tagged = error(TaggedTexts::open(fixture("reviews")));
    assert!(
        tagged.starts_with("field of the tokens in file `parquet_reviews.parquet`: expected a field"),
        "{tagged}"
    );
    let other = error(LabelledTexts::open_with(
        [Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/reviews/dev.tsv")],
        &new().format(FileFormat::Parquet),
    ));
    assert!(other.contains("expected a Parquet file, which begins with `PAR1`, got other bytes"), "{other}");
}

/// Returns the error of a file, which does not depend on how the file is read.
#[cfg(feature = "parquet")]
fn wrong(file: &Path) -> Vec<String> {
    let labels = ReadOptions::new().text("label");
    let outcomes = [
        LabelledTexts::open(file).map(drop),
        TaggedTexts::open(file).map(drop),
        PlainText::open_with([file], &labels).map(drop),
    ];
    outcomes.into_iter().filter_map(|outcome| outcome.err().map(|e| format!("{e:#}"))).collect()
}

#[cfg(feature = "parquet")]
#[test]
fn damaged_files_are_errors() {
    let damaged = path("damaged.parquet");
    for name in [
        "reviews",
        "reviews_gzip",
        "reviews_lz4",
        "reviews_none",
        "reviews_v2",
        "nulls",
        "tagged",
        "tagged_texts",
    ] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let mut random = Random(name.len() as u64);
        let (mut refused, mut stopped, count) = (0, 0, times(300));
        for turn in 0..count {
            let mut bytes = bytes.clone();
            // A Parquet file has its metadata at the end.
            let from = if turn % 3 == 0 { 0 } else { bytes.len() - bytes.len() / 3 };
            match random.below(8) {
                0 => bytes.truncate(random.below(bytes.len())),
                1 => drop(bytes.drain(from..from + random.below(bytes.len() - from))),
                kind => {
                    for _ in 0..1 + random.below(3) {
                        let at = from + random.below(bytes.len() - from);
                        match kind {
                            2 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                            3 => bytes[at] = bytes[at].wrapping_add(1),
                            4 => bytes[at] ^= 0x80,
                            _ => bytes[at] = random.below(256) as u8,
                        }
                    }
                }
            }
            std::fs::write(&damaged, &bytes).unwrap();
            let wrong = wrong(&damaged);
            refused += usize::from(wrong.len() == 3);
            stopped += usize::from(wrong.iter().any(|shown| shown.contains("its reader stopped")));
        }
        println!(
            "{name}: {refused} of {count} damaged files are refused, {stopped} behind a panic of the crate"
        );
        assert!(refused > count / 10, "{name}: {refused} of {count}");
    }
    let bytes = std::fs::read(fixture("reviews")).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let truncated = format!("{:#}", LabelledTexts::open(&damaged).unwrap_err());
    assert!(
        truncated
            .contains("expected a Parquet file, which ends with `PAR1`, got other bytes: it was cut short"),
        "{truncated}"
    );
    std::fs::remove_file(damaged).ok();
}
