//! LIBSVM files, whole and damaged, and sparse rows in batches.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use unpadded::data::{Batch, Batching, Data, Field, Loader, Sample, SampleStream, Samples, Source};
use unpadded::ndarray::Array2;
use unpadded::tensor::{Csr, Dense, Storage};
use unpadded::{Result, Variable};
use unpadded_text::{
    FirstIndex, LabelledRow, LabelledRows, MalformedLines, ReadOptions, SkippedRecords, Target, TextFile,
};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::models::Random;

fn file(bytes: impl Into<Vec<u8>>) -> TextFile {
    // Tests may leak a few bytes for the life of a program that embeds its text.
    TextFile::embedded("f", Box::leak(bytes.into().into_boxed_slice()))
}

fn rows(text: &str) -> Result<Vec<LabelledRow>> {
    file(text).libsvm(FirstIndex::One)?.read_all()
}

fn row(label: f64, pairs: &[(i64, f32)]) -> LabelledRow {
    let (indices, values) = pairs.iter().copied().unzip();
    let mut row = LabelledRow::default();
    (row.label, row.indices, row.values) = (label, indices, values);
    row
}

/// The message without the line of code.
#[track_caller]
fn message<T>(result: Result<T>) -> String {
    format!("{:#}", result.map(drop).unwrap_err())
}

#[test]
fn a_line_is_a_label_and_pairs_in_any_order() -> Result<()> {
    let text = "+1 3:0.5 1:-2e1 \n\n# a comment\n-1\t7:1 # 9:9\r\n0\n1.50 qid:12 2:0 4:+3\n-0 1:.5";
    let mut query = row(1.5, &[(1, 0.0), (3, 3.0)]);
    query.query = Some(12);
    let expected = [
        row(1.0, &[(0, -20.0), (2, 0.5)]),
        row(-1.0, &[(6, 1.0)]),
        row(0.0, &[]),
        query,
        row(0.0, &[(0, 0.5)]),
    ];
    let read = rows(text)?;
    assert_eq!(read, expected);
    assert!(read[4].label.is_sign_positive());
    let from_zero = file("1 1:2 0:1\n").libsvm(FirstIndex::Zero)?.read_all()?;
    assert_eq!(from_zero, [row(1.0, &[(0, 1.0), (1, 2.0)])]);
    let largest = i64::MAX;
    assert_eq!(rows(&format!("1 {largest}:1"))?, [row(1.0, &[(largest - 1, 1.0)])]);
    assert_eq!(LabelledRows::new("f", rows(&format!("1 {largest}:1"))?).columns(), largest as usize);
    Ok(())
}

#[test]
fn around_a_file_there_may_be_gzip_or_a_zip_of_several() -> Result<()> {
    let text = b"1 2:1 1:4\n2 3:1\n";
    let expected = [row(1.0, &[(0, 4.0), (1, 1.0)]), row(2.0, &[(2, 1.0)])];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text).unwrap();
    assert_eq!(file(gzip.finish().unwrap()).libsvm(FirstIndex::One)?.read_all()?, expected);
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in [("bags/train.feat", &text[..]), ("bags/words.txt", b"who 6494\n")] {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    let zip = file(zip.finish().unwrap().into_inner());
    assert_eq!(zip.clone().member("bags/train.feat")?.libsvm(FirstIndex::One)?.read_all()?, expected);
    let several = message(zip.libsvm(FirstIndex::One));
    assert!(several.contains("expected one of `bags/train.feat`, `bags/words.txt`, got 2"), "{several}");
    let words = zip.member("bags/words.txt")?.libsvm(FirstIndex::One)?.read_all();
    assert_eq!(message(words), "f!bags/words.txt:1: expected a label that is a finite number, got \"who\"");
    Ok(())
}

#[test]
fn a_malformed_line_says_file_line_pair_and_reason() {
    let index = "expected an index from 1 to 9223372036854775807 in pair";
    let label = "expected a label that is a finite number, got";
    let value = "expected a value that is finite in f32 in pair";
    for (line, expected) in [
        ("1 1:1 31", "expected index:value in pair 2, got \"31\"".to_owned()),
        ("1 qid:3 2", "expected index:value in pair 1, got \"2\"".into()),
        ("1 -4:1", format!("{index} 1, got \"-4:1\"")),
        ("1 2:1 1.5:1", format!("{index} 2, got \"1.5:1\"")),
        ("1 :1", format!("{index} 1, got \":1\"")),
        ("1 9223372036854775808:1", format!("{index} 1, got \"9223372036854775808:1\"")),
        ("1 1:1 qid:3", format!("{index} 2, got \"qid:3\"")),
        (
            "1 3:1 0:1",
            format!("{index} 2, got \"0:1\": the setting `first_index` 0 reads a file that counts from 0"),
        ),
        ("1 1:1 2:nan", format!("{value} 2, got \"2:nan\"")),
        ("1 1:-inf", format!("{value} 1, got \"1:-inf\"")),
        ("1 1:1e39", format!("{value} 1, got \"1:1e39\"")),
        ("1 1:", format!("{value} 1, got \"1:\"")),
        ("1 1:2:3", format!("{value} 1, got \"1:2:3\"")),
        ("1 9:1 3:1 4:1 3:1 9:2", "expected each index once, got index 3 of pair 2 again in pair 4".into()),
        ("good 1:1", format!("{label} \"good\"")),
        ("nan 1:1", format!("{label} \"nan\"")),
        ("1e999 1:1", format!("{label} \"1e999\"")),
        ("1,3 1:1", format!("{label} \"1,3\": a row with several labels is not supported")),
        ("1:1 2:1", format!("{label} \"1:1\", which is a pair")),
        ("1 qid:x 2:1", "expected a whole number, 0 or more, behind `qid:`, got \"x\"".into()),
    ] {
        let text = format!("1 1:1\n\n{line} # said\n1 1:1\n");
        assert_eq!(message(rows(&text)), format!("f:3: {expected}"), "{line}");
        let mut records = file(text).malformed(MalformedLines::Skip).libsvm(FirstIndex::One).unwrap();
        assert_eq!(records.read_all().unwrap(), [row(1.0, &[(0, 1.0)]), row(1.0, &[(0, 1.0)])]);
        let SkippedRecords { count: 1, first, .. } = records.skipped() else {
            panic!("{:?}", records.skipped())
        };
        assert_eq!(format!("{:#}", first[0]), format!("f:3: {expected}"));
    }
    let zero = file("1 5:1 0:1 -1:1").libsvm(FirstIndex::Zero).unwrap().read_all();
    let expected = "f:1: expected an index from 0 to 9223372036854775807 in pair 3, got \"-1:1\"";
    assert_eq!(message(zero), expected);
    let zero = file("1 5:1 0:1 5:1").libsvm(FirstIndex::Zero).unwrap().read_all();
    assert_eq!(message(zero), "f:1: expected each index once, got index 5 of pair 1 again in pair 3");
}

/// A row as a file of its kind has it.
fn written(row: &LabelledRow) -> String {
    let query = row.query.map_or_else(String::new, |query| format!(" qid:{query}"));
    let pairs = row.indices.iter().zip(&row.values).map(|(index, value)| format!(" {}:{value}", index + 1));
    format!("{}{query}{}\n", row.label, pairs.collect::<String>())
}

#[test]
fn ten_thousand_damaged_lines() -> Result<()> {
    let random = &mut Random(15);
    let mut bytes = Vec::new();
    for i in 0..10_000 {
        let pairs = 0..random.below(8);
        let pairs: String = pairs.map(|_| format!(" {}:{}", random.below(40), random.below(9))).collect();
        let query = if random.below(3) == 0 { " qid:3" } else { "" };
        let mut line = format!("{}{query}{pairs} # {i}", i % 3).into_bytes();
        for _ in 0..random.below(4) {
            let at = random.below(line.len());
            const ODD: &[u8] = b":: -+.,#0e9\t\n\r\0\xff\xc3qid";
            match random.below(4) {
                0 => line[at] ^= 1 << random.below(8),
                1 => line.insert(at, ODD[random.below(ODD.len())]),
                2 if line.len() > 1 => drop(line.remove(at)),
                _ => line.truncate(at + 1),
            }
        }
        bytes.extend_from_slice(&line);
        bytes.push(b'\n');
    }
    let mut records = file(bytes).malformed(MalformedLines::Skip).libsvm(FirstIndex::One)?;
    let read = records.read_all()?;
    let skipped = records.skipped().count;
    assert!(read.len() > 2000 && skipped > 2000, "{} read, {skipped} skipped", read.len());
    for row in &read {
        assert!(row.indices.is_sorted_by(|a, b| a < b) && row.indices.first().is_none_or(|&i| i >= 0));
        assert!(row.label.is_finite() && row.values.iter().all(|value| value.is_finite()));
        assert_eq!(row.indices.len(), row.values.len());
    }
    // Rows survive a round trip: written and read again, they are equal.
    assert_eq!(rows(&read.iter().map(written).collect::<String>())?, read);
    let mut all = LabelledRows::new("f", read);
    let entries = |all: &LabelledRows| all.records().iter().map(|row| row.indices.len()).sum::<usize>();
    let before = entries(&all);
    let dropped = all.drop_beyond(20);
    assert!(dropped > 0 && all.columns() == 20 && entries(&all) == before - dropped);
    let loader = all.loader(["x", "y"], 20, Target::Number)?;
    let batches = loader.batches(None, 0)?.collect::<Result<Vec<_>>>()?;
    assert_eq!(
        batches.iter().map(|batch| csr(&batch.values[0].1).indices().len()).sum::<usize>(),
        before - dropped
    );
    Ok(())
}

#[test]
fn labels_are_classes_in_the_order_of_their_numbers_or_as_they_are() -> Result<()> {
    let labelled = |text: &str| rows(text).map(|rows| LabelledRows::new("f", rows)).unwrap();
    let classes =
        |text: &str| labelled(text).classes().map(|v| v.tokens().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(classes("+1 1:1\n-1.0 1:1\n1")?, ["-1", "1"]);
    assert_eq!(classes("1 1:1\n-0 1:1\n0")?, ["0", "1"]);
    assert_eq!(classes("10 1:1\n2 1:1\n-3")?, ["-3", "2", "10"]);
    assert_eq!(
        (labelled("5\n7\n5\n").classes()?.count(0), labelled("5\n7\n5\n").classes()?.count(1)),
        (2, 1)
    );
    assert_eq!(message(classes("1\n1\n")), "labels in `f`: expected at least two, got only `1`");
    let whole = "labels in `f`: expected whole numbers, because the labels are classes, got";
    assert_eq!(message(classes("1\n0.5\n")), format!("{whole} 0.5 of row 1"));
    assert_eq!(message(classes("1e300\n1\n")), format!("{whole} 1{} of row 0", "0".repeat(300)));

    let feeds = ["x", "y"];
    let signs = labelled("-1 1:1\n+1 3:1\n").classes()?;
    let targets = |text: &str, target| -> Result<Variable> {
        let batch = labelled(text).loader(feeds, 3, target)?.batches(None, 0)?.next().unwrap()?;
        Ok(batch.values[1].1.clone())
    };
    assert_eq!(targets("1 1:1\n-1 1:1\n", Target::Class(&signs))?.as_slice::<i64>()?, [1, 0]);
    assert_eq!(targets("0.25\n-7\n", Target::Number)?.as_slice::<f32>()?, [0.25, -7.0]);
    let other = message(targets("1\n0 1:1\n", Target::Class(&signs)));
    assert_eq!(other, "token: expected one of `-1`, `1`, got `0`; the label of row 1 in `f`");
    let large = message(targets("1\n1e39\n", Target::Number));
    let shown = "label of row 1 in `f`: expected a number that is finite in f32, got 1";
    assert!(large.starts_with(shown), "{large}");
    Ok(())
}

#[test]
fn columns_are_those_of_train() -> Result<()> {
    let [first, second] = ["1 5:1\n", "0 2:1 9:1\n\n1\n"].map(file);
    let mut all = LabelledRows::of_files([&first, &second], FirstIndex::One)?;
    assert_eq!((all.name(), all.records().len(), all.columns()), ("f, f", 3, 9));
    assert_eq!(
        message(LabelledRows::of_files([], FirstIndex::One)),
        "files of rows: expected at least one, got none"
    );
    let beyond = message(all.loader(["x", "y"], 8, Target::Number));
    let expected = "index of row 1 in `f, f`: expected 0 or more and less than 8, the number of columns, got 8; \
                    `LabelledRows::drop_beyond` leaves such entries out";
    assert_eq!(beyond, expected);
    assert_eq!((all.drop_beyond(9), all.drop_beyond(8), all.drop_beyond(8), all.columns()), (0, 1, 0, 5));
    assert_eq!(all.records()[1], row(0.0, &[(1, 1.0)]));
    assert_eq!((all.drop_beyond(0), all.columns()), (2, 0));
    let empty = message(LabelledRows::new("none", Vec::new()).loader(["x", "y"], 8, Target::Number));
    assert_eq!(empty, "rows of `none`: expected at least one, got none");
    // Rows from elsewhere are looked at.
    let odd = LabelledRows::new("own", vec![row(1.0, &[(2, 1.0), (-1, 1.0)])]);
    assert_eq!(odd.columns(), 3);
    assert!(
        message(odd.loader(["x", "y"], 3, Target::Number)).contains("of row 0 in `own`: expected 0 or more")
    );
    let mut odd = row(1.0, &[(2, 1.0), (1, 1.0)]);
    odd.values = vec![1.0];
    let odd = LabelledRows::new("own", vec![odd]).loader(["x", "y"], 3, Target::Number);
    assert_eq!(message(odd), "field `x` of sample 0: expected a value for each of its 2 indices, got 1");
    Ok(())
}

#[test]
fn what_is_held_out_depends_on_the_seed_and_the_row() -> Result<()> {
    let text: String =
        (0..3000).map(|i| format!("{} {}:1 {}:2\n", i % 2, i % 500 + 1, 600 + i % 7)).collect();
    let all = LabelledRows::new("f", rows(&text)?);
    let held = |all: &LabelledRows, seed| all.clone().hold_out(5, seed);
    let (rest, out) = held(&all, 1);
    assert_eq!(rest.records().len() + out.records().len(), 3000);
    assert!((450..750).contains(&out.records().len()), "{}", out.records().len());
    assert!(!out.records().iter().any(|row| rest.records().contains(row)), "equal rows on both sides");
    assert_eq!(held(&all, 1).1, out);
    assert_ne!(held(&all, 2).1, out);
    let more = LabelledRows::new("f", [all.records().to_vec(), rows("0 9:9\n")?].concat());
    assert!(held(&more, 1).1.records().starts_with(out.records()));
    // Rows of a query stay together, whatever they hold.
    let text: String = (0..900).map(|i| format!("0 qid:{} {}:1\n", i / 3, i + 1)).collect();
    let (rest, out) = held(&LabelledRows::new("f", rows(&text)?), 1);
    assert!(out.records().len() > 90 && rest.records().len() > 450);
    assert!(!out.records().iter().any(|a| rest.records().iter().any(|b| a.query == b.query)));
    assert_eq!(held(&all, 1).1.name(), "f, held out");
    assert_eq!(all.clone().hold_out(0, 1).0, all);
    Ok(())
}

/// The csr in a variable.
fn csr(value: &Variable) -> &Csr {
    let Storage::Csr(csr) = value.storage() else { panic!("{:?}", value.storage()) };
    csr
}

const COLUMNS: usize = 11;

/// Rows with columns in any order, some of them again; of some, none.
fn entries(random: &mut Random) -> (Vec<i64>, Vec<f32>) {
    (0..random.below(7)).map(|_| (random.below(COLUMNS) as i64, random.below(100) as f32)).unzip()
}

/// Samples of a sparse row, a sequence of such, and their own number.
fn samples(count: i64) -> Samples {
    let random = &mut Random(7);
    let sample = |i: i64| {
        let (indices, values) = entries(random);
        let rows: Vec<_> = (0..random.below(5)).map(|_| entries(random)).collect();
        let ends = rows.iter().scan(0, |end, (indices, _)| {
            *end += indices.len() as i64;
            Some(*end)
        });
        let indptr = std::iter::once(0).chain(ends).collect();
        let of_rows: Vec<i64> = rows.iter().flat_map(|(indices, _)| indices.clone()).collect();
        let numbers: Dense =
            unpadded::ndarray::Array1::from_iter(rows.iter().flat_map(|(_, values)| values.clone())).into();
        let bags = Csr::new([rows.len(), COLUMNS], indptr, of_rows, numbers).unwrap();
        vec![Field::Sparse { columns: COLUMNS, indices, values }, bags.into(), i.into()]
    };
    (0..count).map(sample).collect()
}

fn dense(csr: &Csr) -> Array2<f32> {
    csr.to_dense().unwrap().into_array::<f32>().unwrap().into_dimensionality().unwrap()
}

const NAMES: &[&str] = &["bag", "bags", "number"];

#[test]
fn sparse_rows_are_batched_in_every_order() -> Result<()> {
    let samples = samples(60);
    let all: Vec<Sample> = samples.in_memory().unwrap().iter().collect();
    let stream = || {
        let samples = samples.clone();
        SampleStream::new(samples.fingerprint(), move || samples.open())
    };
    let loaders = [
        Loader::new(samples.clone(), NAMES)?,
        Loader::new(samples.clone(), NAMES)?.batching(Batching::Sequences(7)).shuffle(3).prefetch(2),
        Loader::new(samples.clone(), NAMES)?.batching(Batching::Tokens(9)).shuffle(3),
        Loader::new(stream(), NAMES)?.batching(Batching::Sequences(8)).shuffle(4).buffer(10),
    ];
    for loader in loaders {
        let batches: Vec<Batch> = loader.batches(Some(2), 0)?.collect::<Result<_>>()?;
        let again: Vec<Batch> = loader.batches(Some(2), 2)?.collect::<Result<_>>()?;
        assert_eq!(again, batches[2.min(batches.len())..]);
        let mut seen: Vec<u64> = batches.iter().flat_map(|batch| batch.numbers.clone()).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..60));
        for batch in &batches {
            let [(_, bag), (_, bags), (_, number)] = &batch.values[..] else { panic!() };
            let batch_samples: Vec<&Sample> = batch.numbers.iter().map(|&n| &all[n as usize]).collect();
            assert!(number.as_slice::<i64>()?.iter().zip(&batch_samples).all(|(&n, s)| n == s.number as i64));
            assert_eq!((bag.shape(), bag.lod()), (&[batch_samples.len(), COLUMNS][..], None));
            let bag = dense(csr(bag));
            let lengths: Vec<usize> = batch_samples.iter().map(|sample| sample.fields[1].rows()).collect();
            assert_eq!(bags.lod().unwrap().lengths(0)?.collect::<Vec<_>>(), lengths);
            let (bags, mut at) = (dense(csr(bags)), 0);
            for (r, sample) in batch_samples.iter().enumerate() {
                let Field::Sparse { indices, values, .. } = &sample.fields[0] else { panic!() };
                let mut expected = vec![0.0; COLUMNS];
                indices.iter().zip(values).for_each(|(&i, value)| expected[i as usize] += value);
                assert_eq!(bag.row(r).to_vec(), expected);
                let Field::SparseRows(own) = &sample.fields[1] else { panic!() };
                let next = at + lengths[r];
                assert_eq!(bags.slice(unpadded::ndarray::s![at..next, ..]), dense(own));
                at = next;
            }
            let (rows, longest) = (at, lengths.iter().copied().max().unwrap());
            let expected = if rows > batch_samples.len() {
                (rows, longest * batch_samples.len())
            } else {
                (batch_samples.len(), batch_samples.len())
            };
            assert_eq!((batch.tokens, batch.padded), expected);
            assert_eq!(bags.nrows(), rows);
        }
    }
    Ok(())
}

#[test]
fn sparse_fields_that_do_not_fit_are_refused_by_sample() -> Result<()> {
    let bag = |columns, indices: &[i64]| {
        let values = vec![1.0; indices.len()];
        Field::Sparse { columns, indices: indices.to_vec(), values }
    };
    let bags = |columns, indices: &[i64]| {
        let values = unpadded::ndarray::Array1::from_elem(indices.len(), 1.0f32);
        let indptr = (0..=indices.len() as i64).collect();
        Field::from(Csr::new([indices.len(), columns], indptr, indices.to_vec(), values).unwrap())
    };
    let refusal = |fields: [Field; 2]| {
        let samples = fields.map(|field| vec![field]).into_iter().collect::<Samples>();
        let stream = samples.clone();
        let stream = SampleStream::new(0, move || stream.open());
        let streamed = Loader::new(stream, &["x"])?.batches(None, 0)?.try_for_each(|batch| batch.map(drop));
        let whole = Loader::new(samples, &["x"]).map(drop);
        assert_eq!(streamed.clone().map_err(|e| format!("{e:#}")), whole.map_err(|e| format!("{e:#}")));
        streamed
    };
    let what = "field `x` of sample 1: expected";
    let beyond = |got| {
        format!("{what} indices of 0 or more and less than 3, its number of columns, got {got} at place 1")
    };
    assert_eq!(message(refusal([bag(3, &[2]), bag(3, &[0, 3])])), beyond("3"));
    assert_eq!(message(refusal([bag(3, &[2]), bag(3, &[0, -1])])), beyond("-1"));
    assert_eq!(
        message(refusal([bag(3, &[2]), bag(4, &[0])])),
        format!("{what} a sparse row of 3 columns, as in the samples before, got a sparse row of 4 columns")
    );
    assert_eq!(
        message(refusal([bags(3, &[2]), bags(4, &[])])),
        format!(
            "{what} a sequence of sparse rows of 3 columns, as in the samples before, got a sequence of sparse rows of 4 columns"
        )
    );
    assert_eq!(
        message(refusal([bags(3, &[]), bag(3, &[])])),
        format!(
            "{what} a sequence of sparse rows of 3 columns, as in the samples before, got a sparse row of 3 columns"
        )
    );
    assert_eq!(
        message(refusal([bag(3, &[]), 1i64.into()])),
        format!("{what} a sparse row of 3 columns, as in the samples before, got one integer")
    );
    let wide = Csr::new([1, 3], vec![0, 1], vec![0], unpadded::ndarray::array![1.0f64])?;
    assert_eq!(message(refusal([bags(3, &[]), wide.into()])), format!("{what} rows of f32, got f64"));
    // Empty ones are fine.
    let empty =
        vec![Sample::new(0, [bags(3, &[]), bag(3, &[])]), Sample::new(1, [bags(3, &[]), bag(3, &[])])];
    let batch = Batch::new(&["a".into(), "b".into()], &empty)?;
    assert_eq!((batch.values[0].1.shape(), batch.values[1].1.shape()), (&[0, 3][..], &[2, 3][..]));
    assert_eq!((batch.tokens, batch.padded), (2, 2));

    let tagged: Samples =
        [vec![bags(3, &[0, 1]), vec![1i64, 2].into()], vec![bags(3, &[0]), vec![1i64, 2].into()]]
            .into_iter()
            .collect();
    let unlike = Loader::new(tagged, &["bags", "tags"])?.same_lengths(["bags", "tags"], 1);
    assert_eq!(message(unlike), "length of field `tags` of sample 1: expected 1, as in field `bags`, got 2");
    Ok(())
}

#[test]
fn all_of_a_sparse_field_is_in_the_fingerprint() {
    let sparse = |columns, indices: &[i64], values: &[f32]| Field::Sparse {
        columns,
        indices: indices.to_vec(),
        values: values.to_vec(),
    };
    let rows = |columns, indptr: &[i64], values: &[f32]| {
        let values = unpadded::ndarray::Array1::from_vec(values.to_vec());
        Field::from(Csr::new([indptr.len() - 1, columns], indptr.to_vec(), vec![0, 1], values).unwrap())
    };
    let fields = [
        sparse(3, &[0, 1], &[1.0, 2.0]),
        sparse(4, &[0, 1], &[1.0, 2.0]),
        sparse(3, &[0, 2], &[1.0, 2.0]),
        sparse(3, &[0, 1], &[1.0, 3.0]),
        rows(3, &[0, 1, 2], &[1.0, 2.0]),
        rows(4, &[0, 1, 2], &[1.0, 2.0]),
        rows(3, &[0, 2, 2], &[1.0, 2.0]),
        rows(3, &[0, 1, 2], &[1.0, 3.0]),
    ];
    let prints = fields.map(|field| Samples::from(vec![Sample::new(0, [field])]).fingerprint());
    for (i, print) in prints.iter().enumerate() {
        assert!(!prints[..i].contains(print), "{i}");
    }
}

#[test]
fn indices_count_from_0_where_a_file_has_one() -> Result<()> {
    let path = |name: &str, text: &str| {
        let path = std::env::temp_dir().join(format!("unpadded-{name}-{}.svm", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    };
    let (zero, one) = (path("zero", "1 3:1\n-1 0:2 1:1\n"), path("one", "1 3:1\n-1 1:2\n"));
    let (from_zero, from_one) = (LabelledRows::open(&zero)?, LabelledRows::open(&one)?);
    assert_eq!((from_zero.first_index(), from_zero.columns()), (FirstIndex::Zero, 4));
    assert_eq!((from_one.first_index(), from_one.columns()), (FirstIndex::One, 3));
    assert_eq!(
        (&from_zero.records()[1].indices[..], &from_one.records()[1].indices[..]),
        (&[0, 1][..], &[0][..])
    );
    let as_set = LabelledRows::open_with([&one], &ReadOptions::new().first_index(FirstIndex::Zero))?;
    assert_eq!((as_set.records()[0].indices[0], as_set.first_index()), (3, FirstIndex::Zero));
    let (rest, held) = as_set.hold_out(2, 1);
    assert_eq!((rest.first_index(), held.first_index()), (FirstIndex::Zero, FirstIndex::Zero));
    let shown = message(LabelledRows::open_with([&zero], &ReadOptions::new().first_index(FirstIndex::One)));
    let expected = "the setting `first_index` 0 reads a file that counts from 0";
    assert!(shown.contains(":2: expected an index from 1") && shown.ends_with(expected), "{shown}");
    [zero, one].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    Ok(())
}
