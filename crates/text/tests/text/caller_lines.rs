//! An error names the line of the user's code, in this crate too; `tests/it/caller_lines.rs` of the engine checks the sources.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use unpadded::Result;
use unpadded::data::{Limits, Tokenizer, Vocabulary};
use unpadded_text::{
    DataPaths, FirstIndex, Folder, LabelledFiles, LabelledRow, LabelledRows, LabelledTexts, Pair, PairFiles,
    Pairs, PlainFiles, PlainText, QuestionKind, Questions, ReadOptions, RecordSource, TaggedFiles,
    TaggedTexts, Tagging, Target, TextFile, WordVectors, scheme_of,
};

use crate::calls::Calls;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-{name}-{}", std::process::id()))
}

/// A disk without room.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn the_error_of_a_call_names_its_line() {
    let calls = &mut Calls::default();
    let folder = path("caller_lines");
    fs::create_dir(&folder).unwrap();
    let nowhere = folder.join("nowhere");
    let broken = TextFile::embedded("broken.zip", b"PK\x03\x04 and no more");
    let gzip = TextFile::embedded("broken.gz", b"\x1f\x8b and no more");
    let line = TextFile::embedded("lines.txt", "one line without a tab\n");
    calls.at("TextFile::open", || TextFile::open(&nowhere));
    calls.at("TextFile::open", || TextFile::open(&folder));
    calls.at("TextFile::member", || line.clone().member("a"));
    calls.at("TextFile::member", || broken.clone().member("a"));
    calls.at("TextFile::labelled", || broken.labelled().map(drop));
    calls.at("TextFile::libsvm", || broken.libsvm(FirstIndex::One).map(drop));
    calls.at("TextFile::libsvm", || line.libsvm(FirstIndex::One)?.collect::<Result<Vec<_>>>());
    calls.at("TextFile::lines", || broken.lines().map(drop));
    calls.at("TextFile::text", || gzip.text());
    calls.at("TextFile::text", || TextFile::embedded("empty.txt", "").text());
    // An error in a file is found while the file is read, and names the line that began to read.
    calls.at("Records::read_all", || line.labelled()?.read_all());
    calls.at("Records::read_all", || TextFile::embedded("empty.txt", "").lines()?.read_all());
    calls.at("TextFile::labelled", || line.labelled()?.collect::<Result<Vec<_>>>());
    calls.at("TextFile::translations", || line.translations()?.collect::<Result<Vec<_>>>());

    calls.at("TextFile::translations", || broken.translations().map(drop));
    let pairs = Pairs::of_lines(&TextFile::embedded("pairs.txt", "a\tb\n")).unwrap();
    let (tokenizer, none) = (Tokenizer::characters(), Limits::default().max_size(0));
    calls.at("DataSet::open", || Pairs::open(&nowhere));
    let options = ReadOptions::new();
    calls.at("ReadOptions::or_note", || ReadOptions::new().or_note(""));
    calls.at("DataSet::open_with", || Pairs::open_with([&nowhere], &options));
    calls.at("Pairs::of_lines", || Pairs::of_lines(&line));
    calls.at("DataSet::sources", || pairs.sources(&tokenizer, &none));
    calls.at("DataSet::targets", || pairs.targets(&tokenizer, &none));
    let a = Vocabulary::labels(["a"]).unwrap();
    calls.at("DataSet::loader", || {
        pairs.loader(["x", "y", "z"], [&tokenizer, &tokenizer], [&a, &a], ["a", "a"]).map(drop)
    });

    let tagged = TaggedTexts::of_columns(&TextFile::embedded("tags.txt", "a O\n")).unwrap();
    let other = TextFile::embedded("other.txt", "a B-A\n");
    calls.at("DataSet::open", || TaggedTexts::open(&nowhere));
    calls.at("DataSet::open", || TaggedTexts::open(&folder));
    calls.at("DataSet::open_with", || TaggedTexts::open_with([&nowhere], &options));
    calls.at("DataSet::open", || PlainText::open(&nowhere));
    calls.at("DataSet::open_with", || PlainText::open_with([&nowhere], &options));
    let nowhere_else = [nowhere.clone()];
    calls.at("PlainText::read_within", || PlainText::read_within(&nowhere_else, &options, 1).map(drop));
    calls.at("RecordSource::read", || RecordSource::<Pair>::read(&nowhere_else, &options, 1).map(drop));
    calls.at("Questions::open", || Questions::open(&nowhere, &options, QuestionKind::Text).map(drop));
    let asked = folder.join("asked.csv");
    fs::write(&asked, "id,text\n1,a\n").unwrap();
    let questions = || Questions::open(&asked, &options, QuestionKind::Text).unwrap();
    calls.at("Questions::write_to", || questions().write_to(Box::new(Full), &["label"]));
    fs::write(&asked, "a\n").unwrap();
    let mut one = questions();
    one.write_to(Box::new(Full), &["label"]).unwrap();
    let question = one.next().unwrap().unwrap();
    calls.at("Questions::answer", || one.answer(&question, &[]));
    calls.at("Questions::finish", || one.finish());
    fs::remove_file(&asked).unwrap();
    calls.at("TaggedTexts::of_columns", || TaggedTexts::of_columns(&TextFile::embedded("a", "a b\na")));
    calls.at("TaggedTexts::of_parallel", || TaggedTexts::of_parallel(&other, &line, None));
    calls.at("TaggedTexts::of_parallel", || TaggedTexts::of_parallel(&other, &broken, None));
    let tagged_wrongly = TaggedTexts::of_columns(&TextFile::embedded("x", "a X-A\nb B-A\n")).unwrap();
    let few = Limits::default().max_size(0);
    calls.at("TaggedTexts::words", || tagged.words(str::to_owned, &few));
    calls.at("TaggedTexts::characters", || tagged.characters(&few));
    calls.at("TaggedTexts::tags", || TaggedTexts::tags([]));
    let words = tagged.words(str::to_owned, &Limits::default()).unwrap();
    let tags = TaggedTexts::tags([&tagged]).unwrap();
    let unknown = TaggedTexts::of_columns(&other).unwrap();
    calls.at("DataSet::samples", || unknown.samples(str::to_owned, &words, Some(&words), &tags, None));
    calls.at("tagged_texts::scheme", || scheme_of(&[&tagged_wrongly]));
    calls.at("Tagging::detect", || Tagging::detect([&["X-A".to_owned(), "B-A".to_owned()][..]]));
    let suffixed = Tagging::detect([&["A-B".to_owned(), "A-I".to_owned()][..]]).unwrap();
    calls.at("Tagging::standard", || suffixed.standard(&words));

    calls.at("Folder::open", || Folder::open(&folder));
    calls.at("Folder::open", || Folder::open(&nowhere));
    fs::write(folder.join("a.txt"), "a\n").unwrap();
    let one = || Folder::open(&folder).unwrap();
    calls.at("Folder::extension", || one().extension("csv"));
    calls.at("DataSet::open", || LabelledTexts::open(&nowhere));
    calls.at("DataSet::open", || LabelledTexts::open(folder.join("a.txt")));
    calls.at("DataSet::open_with", || LabelledTexts::open_with([&nowhere], &options));
    calls.at("DataSet::open", || LabelledFiles::open(&nowhere).map(drop));
    calls.at("DataSet::open_with", || LabelledFiles::open_with([&nowhere], &options).map(drop));
    let two = folder.join("parts");
    fs::create_dir_all(&two).unwrap();
    ["train.tsv", "train.csv"].iter().for_each(|name| fs::write(two.join(name), "a\n").unwrap());
    calls.at("DataPaths::find", || DataPaths::find(&two));
    fs::remove_dir_all(&two).unwrap();
    calls.at("LabelledTexts::of_lines", || LabelledTexts::of_lines(&line));
    calls.at("LabelledTexts::of_lines", || LabelledTexts::of_lines(&broken));
    let class = [("b".to_owned(), broken.clone())];
    calls.at("LabelledTexts::of_classes", || LabelledTexts::of_classes("a", class));
    let texts = LabelledTexts::of_lines(&TextFile::embedded("a.tsv", "a\tb\n")).unwrap();
    let (words, labels) = (Vocabulary::labels(["a"]).unwrap(), Vocabulary::labels(["c"]).unwrap());
    let (tokenizer, rare) = (Tokenizer::words(), Limits::default().min_count(2));
    calls.at("DataSet::vocabulary", || texts.vocabulary(&tokenizer, &rare));
    fs::write(folder.join("labelled.tsv"), "a\tb\n").unwrap();
    let files = LabelledFiles::open(folder.join("labelled.tsv")).unwrap();
    calls.at("DataSet::vocabulary", || files.vocabulary(&tokenizer, &rare));
    calls.at("DataSet::labels", || files.labels());
    calls.at("DataSet::loader", || files.loader(["x", "y"], &tokenizer, (&words, &labels)).map(drop));
    // An error of a sample has the line that made the sample.
    let none = files.clone().hold_out(0, 1).1;
    calls.at("DataSet::samples_by", || none.samples_by(1, |_| Ok(Vec::new())).map(drop));
    let none = LabelledTexts::new("none", []);
    calls.at("DataSet::samples_by", || none.samples_by(1, |_| Ok(Vec::new())).map(drop));
    let tagged = TaggedFiles::open_with([folder.join("labelled.tsv")], &options).unwrap();
    let known = [&words, &words, &labels];
    let form = str::to_owned;
    calls.at("DataSet::samples", || tagged.samples(form, known[0], Some(known[1]), known[2], None).map(drop));
    let pairs = PairFiles::open(folder.join("labelled.tsv")).unwrap();
    let feeds = ["x", "y", "z"];
    calls.at("DataSet::loader", || pairs.loader(feeds, [&tokenizer; 2], [&words; 2], ["(", ")"]).map(drop));
    fs::write(folder.join("gone.txt"), "a\n").unwrap();
    let plain = PlainFiles::open_with([folder.join("gone.txt")], &options).unwrap();
    calls.at("DataSet::open_with", || PlainFiles::open_with([&nowhere], &options));
    fs::remove_file(folder.join("labelled.tsv")).unwrap();
    fs::remove_file(folder.join("gone.txt")).unwrap();
    calls.at("PlainFiles::cut_off", || plain.clone().hold_out_end(2));
    calls.at("Files::hold_out_by_pass", || {
        files.clone().hold_out_by_pass(Arc::new(|_| false), &mut |_, _| ()).map(drop)
    });
    calls.at("DataSet::labels", || texts.labels());
    calls.at("DataSet::loader", || texts.loader(["x", "y"], &tokenizer, (&words, &labels)).map(drop));
    calls.at("DataSet::loader", || texts.loader(["x", "x"], &tokenizer, (&words, &words)).map(drop));
    calls.at("LabelledRow::of_line", || LabelledRow::of_line("x", FirstIndex::One).map(drop));
    calls.at("DataSet::open", || LabelledRows::open("nowhere.svm"));
    calls.at("LabelledRows::of_files", || LabelledRows::of_files([], FirstIndex::One));
    calls.at("LabelledRows::of_files", || LabelledRows::of_files([&broken], FirstIndex::One));
    calls.at("LabelledRows::of_files", || LabelledRows::of_files([&line], FirstIndex::One));
    let rows = TextFile::embedded("rows", "1 3:1\n1 4:1\n");
    let rows = LabelledRows::of_files([&rows], FirstIndex::One).unwrap();
    calls.at("LabelledRows::classes", || rows.classes());
    calls.at("LabelledRows::classes_with", || rows.classes_with(&rows));
    calls.at("LabelledRows::loader", || rows.loader(["x", "y"], 3, Target::Number).map(drop));
    calls.at("LabelledRows::loader", || rows.loader(["x", "y"], 4, Target::Class(&words)).map(drop));
    calls.at("LabelledRows::loader", || rows.loader(["x", "x"], 4, Target::Number).map(drop));
    calls.at("Folder::file_per_class", || one().file_per_class());
    calls.at("Folder::folder_per_class", || one().folder_per_class());
    fs::write(folder.join("a.csv"), "a\n").unwrap();
    fs::write(folder.join("b.csv"), "a\n").unwrap();
    calls.at("Folder::file_per_class", || one().file_per_class());

    let labels = Vocabulary::labels(["good", "bad"]).unwrap();
    let two = TextFile::embedded("vectors.txt", "good 1 2\nbad 3 4\n");
    fs::write(&nowhere, "good 1 2\nbad 3\n").unwrap();
    calls.at("WordVectors::open", || WordVectors::open(&nowhere, &labels));
    fs::remove_file(&nowhere).unwrap();
    calls.at("WordVectors::open", || WordVectors::open(&nowhere, &labels));
    calls.at("WordVectors::of", || WordVectors::of(&gzip, &labels));
    calls.at("WordVectors::of", || WordVectors::of(&line, &labels));
    let vectors = WordVectors::of(&two, &labels).unwrap();
    calls.at("WordVectors::fill", || vectors.fill(&mut unpadded::ndarray::Array2::zeros((2, 3))));

    fs::remove_dir_all(&folder).unwrap();
    insta::assert_snapshot!("messages", std::mem::take(calls).messages());
}
