//! Every shared data set, read as it is distributed and counted; missing data sets are named and left out. And the
//! embedded requests, counted likewise.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use unpadded::Result;
use unpadded::data::{
    Batching, Continuous, Data, Field, Limits, Loader, Samples, TagScheme, Tokenizer, Vocabulary,
};
use unpadded::tensor::Storage;
use unpadded_text::{
    DataPaths, Encoding, FirstIndex, Folder, LabelledRows, LabelledTexts, Pair, Pairs, PlainText,
    ReadOptions, TaggedTexts, Target, TextFile,
};

/// Returns the path of a shared data set, if it exists.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets").join(name);
    let there = path.exists();
    if !there {
        eprintln!("data set `{name}` is absent ({}): not tested", path.display());
    }
    there.then_some(path)
}

fn words(text: &str) -> usize {
    Tokenizer::whitespace().tokens(text).count()
}

#[test]
fn sst2() -> Result<()> {
    let Some(path) = shared("sst2") else { return Ok(()) };
    for (name, sentences, tokens) in [("train", 6920, 128_096), ("dev", 872, 16_331), ("test", 1821, 33_653)]
    {
        let reviews = TextFile::open(path.join(name).with_extension("tsv"))?.labelled()?.read_all()?;
        let counted: usize = reviews.iter().map(|review| words(&review.text)).sum();
        assert_eq!((reviews.len(), counted), (sentences, tokens), "{name}");
        let labels = Vocabulary::labels(reviews.iter().map(|review| &review.label))?;
        assert!(labels.tokens().eq(["0", "1"]));
        if name == "train" {
            assert_eq!((labels.count(0), labels.count(1)), (3310, 3610));
        }
    }
    Ok(())
}

/// The way from a file to batches, whole.
#[test]
fn sst2_in_batches() -> Result<()> {
    let Some(path) = shared("sst2/train.tsv") else { return Ok(()) };
    let reviews = TextFile::open(path)?.labelled()?.read_all()?;
    let tokenizer = Tokenizer::whitespace();
    let vocabulary =
        Vocabulary::of(reviews.iter().flat_map(|review| tokenizer.tokens(&review.text)), &Limits::default())?;
    let labels = Vocabulary::labels(reviews.iter().map(|review| &review.label))?;
    let fields = |text: &str, label: &str| -> Result<Vec<Field>> {
        Ok(vec![vocabulary.ids(tokenizer.tokens(text))?.into(), labels.lookup(label)?.into()])
    };
    let samples: Samples = reviews
        .iter()
        .map(|review| fields(&review.text, &review.label))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .collect();
    let loader =
        Loader::new(samples, &["words", "label"])?.batching(Batching::Tokens(2048)).shuffle(1).prefetch(2);
    let (mut tokens, mut padded, mut seen) = (0, 0, HashSet::new());
    for batch in loader.batches(Some(0), 0)? {
        let batch = batch?;
        assert!(batch.tokens <= 2048);
        (tokens, padded) = (tokens + batch.tokens, padded + batch.padded);
        assert!(batch.numbers.iter().all(|&number| seen.insert(number)));
    }
    assert_eq!((tokens, seen.len()), (128_096, 6920));
    assert!(padded > 2 * tokens, "in random order, padding would have more than doubled the rows: {padded}");
    Ok(())
}

#[test]
fn mr() -> Result<()> {
    let Some(path) = shared("mr") else { return Ok(()) };
    let classes = Folder::open(path)?.file_per_class()?;
    let mut found = Vec::new();
    for (label, file) in classes {
        assert!(file.text().is_err(), "it is no UTF-8");
        let lines: Vec<String> = file.encoding(Encoding::Windows1252).lines()?.collect::<Result<_>>()?;
        let accents = lines.iter().flat_map(|line| line.chars()).filter(|c| !c.is_ascii()).count();
        found.push((label, lines.len(), lines.iter().map(|line| words(line)).sum::<usize>(), accents));
    }
    let [neg, pos] = &found[..] else { panic!("{found:?}") };
    assert_eq!((neg.0.as_str(), neg.1, neg.2), ("neg", 5331, 111_613));
    assert_eq!((pos.0.as_str(), pos.1, pos.2), ("pos", 5331, 112_428));
    assert_eq!(neg.3 + pos.3, 316);
    Ok(())
}

#[test]
fn movie_reviews() -> Result<()> {
    let Some(path) = shared("movie_reviews/movie_reviews.zip") else { return Ok(()) };
    let files = Folder::open(path)?.extension("txt")?.folder_per_class()?;
    let (mut sentences, mut tokens) = (0, 0);
    for label in ["neg", "pos"] {
        assert_eq!(files.iter().filter(|(l, _)| l == label).count(), 1000);
    }
    for (_, file) in &files {
        // Some reviews have blank lines inside, so a file is a document by its lines, not by `documents`.
        for line in file.lines()? {
            let words = words(&line?);
            (sentences, tokens) = (sentences + usize::from(words > 0), tokens + words);
        }
    }
    assert_eq!((files.len(), sentences, tokens), (2000, 64_720, 1_492_681));
    Ok(())
}

#[test]
fn conll2000() -> Result<()> {
    let Some(path) = shared("conll2000") else { return Ok(()) };
    for (name, sentences, tokens) in [("train.txt", 8936, 211_727), ("test.txt", 2012, 47_377)] {
        let read = TaggedTexts::open(path.join(name))?;
        let read = read.records();
        assert_eq!(
            (read.len(), read.iter().map(|text| text.words.len()).sum::<usize>()),
            (sentences, tokens)
        );
        if name == "train.txt" {
            assert_eq!(Vocabulary::labels(read.iter().flat_map(|text| &text.tags))?.len(), 22);
        }
    }
    Ok(())
}

#[test]
fn snips() -> Result<()> {
    let Some(path) = shared("snips") else { return Ok(()) };
    for (part, utterances, tokens) in [("train", 13_084, 117_700), ("valid", 700, 6384), ("test", 700, 6354)]
    {
        let lines =
            |name: &str| TextFile::open(path.join(part).join(name))?.lines()?.collect::<Result<Vec<_>>>();
        let (text, tags, intents) = (lines("seq.in")?, lines("seq.out")?, lines("label")?);
        assert_eq!((text.len(), tags.len(), intents.len()), (utterances, utterances, utterances));
        assert!(text.iter().zip(&tags).all(|(text, tags)| words(text) == words(tags)));
        assert_eq!(text.iter().map(|line| words(line)).sum::<usize>(), tokens);
        assert_eq!(Vocabulary::labels(&intents)?.len(), 7);
    }
    Ok(())
}

#[test]
fn requests() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets/requests");
    let (train, dev) = (TaggedTexts::open(folder.join("train"))?, TaggedTexts::open(folder.join("dev"))?);
    let labelled = |part: &TaggedTexts| part.records().iter().all(|text| text.label.is_some());
    assert!(labelled(&train) && labelled(&dev));
    for (part, requests, tokens, slots) in [(&train, 1960, 16_641, 3778), (&dev, 400, 3323, 747)] {
        let (mut words, mut chunks) = (0, 0);
        for text in part.records() {
            let tags: Vec<&str> = text.tags.iter().map(String::as_str).collect();
            let found = TagScheme::Iob2.chunks(&tags)?;
            let begun = tags.iter().filter(|tag| tag.starts_with("B-")).count();
            assert_eq!(found.len(), begun, "{}", text.words.join(" "));
            (words, chunks) = (words + tags.len(), chunks + begun);
        }
        assert_eq!((part.records().len(), words, chunks), (requests, tokens, slots));
        // Every kind of slot begins and continues in both parts.
        let labels = Vocabulary::labels(part.records().iter().filter_map(|text| text.label.as_deref()))?;
        assert_eq!((labels.len(), TaggedTexts::tags([part])?.len()), (8, 37));
    }
    let lower = |part: &TaggedTexts| -> HashSet<String> {
        part.records().iter().map(|text| text.words.join(" ").to_lowercase()).collect()
    };
    assert!(lower(&train).is_disjoint(&lower(&dev)), "a held-out request is in training");
    Ok(())
}

#[test]
fn names() -> Result<()> {
    let Some(path) = shared("names") else { return Ok(()) };
    let classes = Folder::open(path)?.extension("txt")?.file_per_class()?;
    let mut names = Vec::new();
    for (label, file) in &classes {
        for name in file.lines()? {
            names.push((name?, label));
        }
    }
    let count = |label: &str| names.iter().filter(|(_, l)| *l == label).count();
    assert_eq!((classes.len(), names.len(), count("Russian"), count("Vietnamese")), (18, 20_050, 9384, 73));
    let characters: HashSet<char> = names.iter().flat_map(|(name, _)| name.chars()).collect();
    // 84 with the end of a line.
    assert_eq!(characters.len(), 83);
    Ok(())
}

#[test]
fn tatoeba() -> Result<()> {
    let Some(path) = shared("tatoeba-fra-eng/fra-eng.zip") else { return Ok(()) };
    let zip = TextFile::open(path)?;
    assert!(zip.translations().is_err(), "it has several files");
    let pairs = zip.member("fra.txt")?.translations()?.read_all()?;
    let count =
        |side: fn(&unpadded_text::Pair) -> &str| pairs.iter().map(|pair| words(side(pair))).sum::<usize>();
    assert_eq!((pairs.len(), count(|p| &p.source), count(|p| &p.target)), (142_787, 880_139, 958_541));
    assert_eq!(pairs.iter().map(|pair| &pair.source).collect::<HashSet<_>>().len(), 98_659);
    Ok(())
}

#[test]
fn tinyshakespeare() -> Result<()> {
    let Some(path) = shared("tinyshakespeare/input.txt") else { return Ok(()) };
    let text = TextFile::open(path)?.text()?;
    let tokenizer = Tokenizer::characters();
    let characters = Vocabulary::of(tokenizer.tokens(&text), &Limits::default().without_specials())?;
    let ids = characters.ids(tokenizer.tokens(&text))?;
    assert_eq!((ids.len(), characters.len()), (1_115_394, 65));
    let stream = Continuous::new(ids, 32, 64, ["x", "y"])?;
    let mut rows = 0;
    for batch in stream.batches(Some(0), 0)? {
        rows += batch?.tokens;
    }
    assert_eq!(rows, 1_115_393);
    Ok(())
}

#[test]
fn warandpeace() -> Result<()> {
    let Some(path) = shared("warandpeace/warandpeace.txt") else { return Ok(()) };
    let (text, bytes) = (TextFile::open(&path)?.text()?, std::fs::read(&path)?);
    // Only a byte order mark and the ends of lines may differ.
    let kept = |text: &str| text.chars().filter(|c| !matches!(c, '\r' | '\u{feff}')).count();
    assert_eq!(kept(&text), kept(&String::from_utf8_lossy(&bytes)));
    assert_eq!(words(&text), 566_308);
    Ok(())
}

#[test]
fn wikitext() -> Result<()> {
    let Some(path) = shared("wikitext-2-valid-test") else { return Ok(()) };
    for (name, lines, tokens) in [("wiki.valid.tokens", 3760, 213_886), ("wiki.test.tokens", 4358, 241_211)] {
        let read: Vec<String> = TextFile::open(path.join(name))?.lines()?.collect::<Result<_>>()?;
        assert_eq!((read.len(), read.iter().map(|line| words(line)).sum::<usize>()), (lines, tokens));
    }
    Ok(())
}

/// The entries of the rows.
fn entries(rows: &LabelledRows) -> usize {
    rows.records().iter().map(|row| row.indices.len()).sum()
}

/// Test fits the columns and classes of train, and the other way round train has an entry too many.
#[test]
fn a9a() -> Result<()> {
    let Some(path) = shared("a9a") else { return Ok(()) };
    let read = |name: &str| LabelledRows::of_files([&TextFile::open(path.join(name))?], FirstIndex::One);
    let (mut train, test) = (read("a9a")?, read("a9a.t")?);
    assert_eq!((train.records().len(), entries(&train), train.columns()), (32_561, 451_592, 123));
    assert_eq!((test.records().len(), entries(&test), test.columns()), (16_281, 225_731, 122));
    assert!(train.records().iter().all(|row| row.values.iter().all(|&value| value == 1.0)));
    let classes = train.classes()?;
    assert!(classes.tokens().eq(["-1", "1"]));
    assert_eq!((classes.count(0), classes.count(1)), (24_720, 7841));

    let feeds = ["x", "class"];
    let loader =
        test.loader(feeds, train.columns(), Target::Class(&classes))?.batching(Batching::Sequences(512));
    let (mut seen, mut positive) = (0, 0);
    for batch in loader.shuffle(1).prefetch(2).batches(Some(0), 0)? {
        let batch = batch?;
        let (x, class) = (&batch.values[0].1, batch.values[1].1.as_slice::<i64>()?);
        let Storage::Csr(csr) = x.storage() else { panic!("{x:?}") };
        assert!(x.shape() == [batch.numbers.len(), 123] && x.lod().is_none() && csr.is_canonical());
        (seen, positive) = (seen + csr.indices().len(), positive + class.iter().sum::<i64>());
    }
    assert_eq!((seen, positive), (225_731, 3846));
    assert!(train.loader(feeds, test.columns(), Target::Class(&classes)).is_err());
    assert_eq!((train.drop_beyond(122), entries(&train)), (1, 451_591));
    Ok(())
}

#[test]
fn bags_of_20_newsgroups() -> Result<()> {
    let Some(path) = shared("20news-bow/20ng.zip") else { return Ok(()) };
    let zip = TextFile::open(path)?;
    assert!(zip.libsvm(FirstIndex::One).is_err(), "it has several files");
    let read = |name: &str| LabelledRows::of_files([&zip.clone().member(name)?], FirstIndex::One);
    let (train, test) = (read("20ng/train.feat")?, read("20ng/test.feat")?);
    let words = |rows: &LabelledRows| rows.records().iter().flat_map(|row| &row.values).sum::<f32>();
    assert_eq!((train.records().len(), entries(&train), words(&train)), (11_268, 729_545, 1_128_881.0));
    assert_eq!((test.records().len(), entries(&test), words(&test)), (7505, 477_078, 720_898.0));
    assert_eq!((train.columns(), test.columns()), (2000, 2000));
    let classes = train.classes()?;
    assert!(classes.tokens().eq((1..=20).map(|class| class.to_string())));
    let loader = test.loader(["x", "class"], 2000, Target::Class(&classes))?;
    assert_eq!(loader.batches(None, 0)?.next().unwrap()?.values[0].1.shape(), [32, 2000]);
    let (rest, held) = train.hold_out(10, 1);
    assert!(
        (1000..1250).contains(&held.records().len()) && rest.records().len() + held.records().len() == 11_268
    );
    Ok(())
}

#[test]
fn the_others_are_lines_of_their_own_formats() -> Result<()> {
    let rows = |file: TextFile| file.lines().map(Iterator::count);
    for (name, lines) in [
        ("cmudict/cmudict.dict", 135_166),
        ("sst-trees/train.txt", 8544),
        ("sst-trees/dev.txt", 1101),
        ("sst-trees/test.txt", 2210),
    ] {
        let Some(path) = shared(name) else { continue };
        assert_eq!(rows(TextFile::open(path)?)?, lines, "{name}");
    }
    let Some(path) = shared("20news-bow/20ng.zip") else { return Ok(()) };
    let zip = TextFile::open(path)?;
    assert_eq!(rows(zip.member("20ng/vocab.new")?)?, 2000);
    Ok(())
}

/// Counts the texts of each label.
fn of_labels(texts: &LabelledTexts) -> Result<Vec<(String, usize)>> {
    let count = |label: &str| texts.records().iter().filter(|text| text.label == label).count();
    Ok(texts.labels()?.tokens().map(|label| (label.to_owned(), count(label))).collect())
}

/// The path alone is enough.
#[test]
fn labelled_texts_are_opened_by_their_path() -> Result<()> {
    let open = |name: &str| shared(name).map(LabelledTexts::open).transpose();
    let counts = |texts: &LabelledTexts| -> Result<String> {
        let found = of_labels(texts)?.into_iter().map(|(label, count)| format!("{label} {count}"));
        Ok(found.collect::<Vec<_>>().join(", "))
    };
    for (name, expected) in [
        ("sst2/train.tsv", "0 3310, 1 3610"),
        ("sst2/dev.tsv", "0 428, 1 444"),
        ("sst2/test.tsv", "0 912, 1 909"),
        ("mr", "neg 5331, pos 5331"),
        ("movie_reviews/movie_reviews.zip", "neg 1000, pos 1000"),
        ("sst-trees/train.txt", "0 1092, 1 2218, 2 1624, 3 2322, 4 1288"),
        ("sst-trees/dev.txt", "0 139, 1 289, 2 229, 3 279, 4 165"),
        ("sst-trees/test.txt", "0 279, 1 633, 2 389, 3 510, 4 399"),
    ] {
        if let Some(texts) = open(name)? {
            assert_eq!(counts(&texts)?, expected, "{name}");
        }
    }
    if let Some(names) = open("names")? {
        assert_eq!((names.records().len(), names.labels()?.len()), (20_050, 18));
        assert!(names.distinct().records().len() < 20_050);
    }
    if let Some(mr) = open("mr")? {
        let (all, accents) = (mr.records(), |text: &str| text.chars().filter(|c| !c.is_ascii()).count());
        assert_eq!(all.iter().map(|text| accents(&text.text)).sum::<usize>(), 316, "Windows-1252");
    }
    if let Some(path) = shared("movie_reviews/movie_reviews.zip") {
        let (rest, held) = LabelledTexts::open(path)?.hold_out(10, 1);
        assert!(
            (150..250).contains(&held.records().len()) && rest.records().len() + held.records().len() == 2000
        );
        assert!(rest.records().iter().all(|text| text.text.lines().count() > 0 && words(&text.text) > 10));
    }
    if let Some(path) = shared("sst2") {
        let parts = DataPaths::find(&path)?;
        assert!(parts.train.ends_with("train.tsv") && parts.dev.is_some() && parts.test.is_some());
        let shown = LabelledTexts::open(path).unwrap_err().to_string();
        assert!(shown.contains("expected the files of one part"), "{shown}");
    }
    Ok(())
}

/// The trees without the neutral ones are the sentences of SST-2, in another order.
#[test]
fn trees_are_the_sentences() -> Result<()> {
    let (Some(trees), Some(sentences)) = (shared("sst-trees"), shared("sst2")) else { return Ok(()) };
    for (part, count) in [("train", 6920), ("dev", 872), ("test", 1821)] {
        let path = trees.join(part).with_extension("txt");
        let of_trees = LabelledTexts::open_with([path], &ReadOptions::new().binary())?;
        let of_lines = LabelledTexts::open(sentences.join(part).with_extension("tsv"))?;
        assert_eq!((of_trees.records().len(), of_lines.records().len()), (count, count), "{part}");
        assert_eq!(of_labels(&of_trees)?, of_labels(&of_lines)?, "{part}");
    }
    Ok(())
}

#[test]
fn pairs_are_opened_by_their_path() -> Result<()> {
    if let Some(path) = shared("tatoeba-fra-eng/fra-eng.zip") {
        let pairs = Pairs::open(&path)?;
        assert_eq!((pairs.records().len(), pairs.by_source().len()), (142_787, 98_659));
        assert_eq!(Pairs::open(format!("{}!fra.txt", path.display()))?.records(), pairs.records());
        let (rest, held) = pairs.hold_out(20, 1);
        let sources: HashSet<&str> = held.records().iter().map(|pair| pair.source.as_str()).collect();
        assert!((6000..8500).contains(&held.records().len()));
        assert!(rest.records().iter().all(|pair| !sources.contains(pair.source.as_str())));
    }
    if let Some(path) = shared("cmudict/cmudict.dict") {
        let number = |pair: &Pair| {
            let bytes = Sha256::digest(&pair.source);
            bytes.iter().fold(0, |rest, &byte| (rest * 256 + u64::from(byte)) % 20)
        };
        let (test, others) = Pairs::open(path)?.hold_out_by(Arc::new(move |pair| number(pair) != 0));
        let (train, dev) = others.hold_out_by(Arc::new(move |pair| number(pair) == 1));
        let counts = [&train, &dev, &test].map(|part| (part.by_source().len(), part.records().len()));
        assert_eq!(counts.iter().map(|(words, _)| words).sum::<usize>(), 126_052);
        let phonemes = train.targets(&Tokenizer::whitespace(), &Limits::default().without_specials())?;
        assert_eq!((counts, phonemes.len()), ([(113477, 121434), (6166, 6552), (6409, 6874)], 39));
    }
    Ok(())
}

#[test]
fn tagged_texts_are_opened_by_their_path() -> Result<()> {
    if let Some(path) = shared("conll2000/train.txt") {
        let chunks = TaggedTexts::open(&path)?;
        assert_eq!((chunks.records().len(), TaggedTexts::tags([&chunks])?.len()), (8936, 22));
        let speech = TaggedTexts::open_with([path], &ReadOptions::new().tags("2"))?;
        assert_eq!((speech.records().len(), TaggedTexts::tags([&speech])?.len()), (8936, 44));
    }
    if let Some(path) = shared("snips") {
        let parts = DataPaths::find(path)?;
        for (part, count) in
            [(Some(&parts.train), 13_084), (parts.dev.as_ref(), 700), (parts.test.as_ref(), 700)]
        {
            let texts = part.map(TaggedTexts::open).transpose()?;
            assert_eq!(
                texts.as_ref().map(|texts| {
                    let all = texts.records();
                    (all.len(), all.iter().all(|text| text.label.is_some()))
                }),
                Some((count, true))
            );
        }
    }
    Ok(())
}

#[test]
fn plain_text_is_opened_by_its_path() -> Result<()> {
    for (name, size) in [
        ("tinyshakespeare/input.txt", 202_651),
        ("warandpeace/warandpeace.txt", 566_308),
        ("wikitext-2-valid-test/wiki.valid.tokens", 213_886),
        ("wikitext-2-valid-test/*.tokens", 213_886 + 241_211),
    ] {
        let Some(path) = shared(name.split(['*']).next().unwrap_or(name)) else { continue };
        let path = if name.contains('*') { path.join("*.tokens") } else { path };
        let text = PlainText::open(path)?;
        assert_eq!(words(text.text()), size, "{name}");
        let whole = text.text().len();
        let (rest, last) = text.hold_out_end(10);
        assert!(rest.text().ends_with('\n') && rest.text().len() + last.text().len() == whole);
    }
    Ok(())
}
