//! Tests of the loader's guarantees, and of failures in threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::data::{Field, SampleStream, Samples};

/// Returns the fields of samples with the given lengths; each id encodes its sample and its position.
fn fields(lengths: &[usize]) -> Vec<Vec<Field>> {
    let one = |(i, &n): (usize, &usize)| {
        let ids = (0..n).map(|t| (i * 1000 + t) as i64).collect::<Vec<_>>();
        vec![Field::Ints(ids), Field::Int(i as i64)]
    };
    lengths.iter().enumerate().map(one).collect()
}

fn samples(lengths: &[usize]) -> Samples {
    fields(lengths).into_iter().collect()
}

/// Returns a stream of samples of these lengths; each pass makes the samples again.
fn streamed(lengths: &[usize]) -> SampleStream {
    let samples = samples(lengths);
    SampleStream::new(samples.fingerprint(), move || samples.open())
}

const NAMES: &[&str] = &["words", "label"];

fn all(loader: &Loader, epoch: Option<u64>, from: u64) -> Vec<Batch> {
    loader.batches(epoch, from).unwrap().collect::<Result<_>>().unwrap()
}

fn numbers(batches: &[Batch]) -> Vec<u64> {
    batches.iter().flat_map(|batch| batch.numbers.clone()).collect()
}

fn batching() -> impl Strategy<Value = Batching> {
    prop_oneof![(1usize..9).prop_map(Batching::Sequences), (1usize..40).prop_map(Batching::Tokens)]
}

proptest! {
    #[test]
    fn an_epoch_has_each_sample_once_and_is_resumed_anywhere(
        lengths in prop::collection::vec(0usize..20, 1..60),
        batching in batching(),
        seed in prop::option::of(any::<u64>()),
        buffer in prop::option::of(1usize..70),
        epoch in prop::option::of(0u64..5),
        from in 0u64..70,
        (ahead, stream) in (0usize..3, any::<bool>()),
    ) {
        let make = |ahead| {
            let loader = if stream {
                Loader::new(streamed(&lengths), NAMES)
            } else {
                Loader::new(samples(&lengths), NAMES)
            };
            let mut loader = loader.unwrap().batching(batching).prefetch(ahead);
            loader.seed = seed;
            loader.buffer = buffer;
            loader
        };
        let loader = make(0);
        let batches = all(&loader, epoch, 0);
        // Another loader, with or without prefetch, resumes the epoch at batch `from`, as another process would.
        let rest = batches.get(from as usize..).unwrap_or_default();
        prop_assert_eq!(&all(&make(ahead), epoch, from)[..], rest);
        prop_assert_eq!(loader.fingerprint(), make(ahead).fingerprint());

        let mut seen = numbers(&batches);
        if epoch.is_none() || seed.is_none() {
            prop_assert!(seen.is_sorted());
        }
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..lengths.len() as u64));
        if let Some(count) = loader.batch_count() {
            prop_assert_eq!(count, batches.len() as u64);
        }
        for (i, batch) in batches.iter().enumerate() {
            let lengths: Vec<usize> = batch.numbers.iter().map(|&n| lengths[n as usize]).collect();
            let [(_, words), (_, label)] = &batch.values[..] else { panic!() };
            for (s, &number) in batch.numbers.iter().enumerate() {
                prop_assert_eq!(label.as_slice::<i64>().unwrap()[s], number as i64);
                let words = words.slice_sequences(s..s + 1).unwrap();
                let expected = (0..lengths[s] as i64).map(|t| number as i64 * 1000 + t);
                prop_assert!(expected.eq(words.as_slice::<i64>().unwrap().iter().copied()));
            }
            // Each label is a row, so even a batch of empty sequences has rows.
            let rows: usize = lengths.iter().sum();
            let (longest, n) = (lengths.iter().copied().max().unwrap(), lengths.len());
            let expected = if rows >= n { (rows, longest * n) } else { (n, n) };
            prop_assert_eq!((batch.tokens, batch.padded), expected);
            let counted = |n: usize| n.max(1);
            match batching {
                Batching::Sequences(n) => prop_assert!(lengths.len() == n || i + 1 == batches.len()),
                Batching::Tokens(budget) => {
                    let rows: usize = lengths.iter().copied().map(counted).sum();
                    prop_assert!(rows <= budget || lengths.len() == 1);
                    if let Some(next) = batches.get(i + 1) {
                        let next = counted(next.values[0].1.slice_sequences(0..1).unwrap().rows());
                        prop_assert!(rows + next > budget, "the next sample had room");
                    }
                }
                Batching::Memory => unreachable!("no such batches here"),
            }
        }
    }
}

#[test]
fn epochs_and_seeds_differ_and_repeat() {
    for buffer in [None, Some(10)] {
        let order = |seed: u64, epoch| {
            let mut loader = Loader::new(samples(&[1; 50]), NAMES).unwrap().shuffle(seed);
            loader.buffer = buffer;
            numbers(&all(&loader, Some(epoch), 0))
        };
        assert_eq!(order(1, 4), order(1, 4));
        assert_ne!(order(1, 4), order(1, 5));
        assert_ne!(order(1, 4), order(2, 4));
    }
}

#[test]
fn all_that_decides_the_batches_is_in_the_fingerprint() {
    let fingerprint = |lengths: &[usize], change: fn(Loader) -> Loader| {
        change(Loader::new(samples(lengths), NAMES).unwrap()).fingerprint()
    };
    let prints = [
        fingerprint(&[1, 2], |l| l),
        fingerprint(&[2, 1], |l| l),
        fingerprint(&[1, 2], |l| l.batching(Batching::Sequences(33))),
        fingerprint(&[1, 2], |l| l.batching(Batching::Tokens(32))),
        fingerprint(&[1, 2], |l| l.shuffle(0)),
        fingerprint(&[1, 2], |l| l.shuffle(1)),
        fingerprint(&[1, 2], |l| l.shuffle(1).buffer(2)),
        Loader::new(samples(&[1, 2]), &["label", "words"]).unwrap().fingerprint(),
    ];
    for (i, print) in prints.iter().enumerate() {
        assert!(!prints[..i].contains(print), "{i}");
    }
    assert_eq!(fingerprint(&[1, 2], |l| l.prefetch(3)), prints[0]);
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    let fingerprint = |fields: Vec<Vec<Field>>, names: &[&str]| {
        Loader::new(fields.into_iter().collect::<Samples>(), names).map(drop).unwrap_err().to_string()
    };
    assert_eq!(fingerprint(vec![], NAMES), "samples to load: expected at least one, got none");
    assert_eq!(fingerprint(fields(&[1]), &[]), "names of feeds: expected at least one, got none");
    assert_eq!(
        fingerprint(fields(&[1]), &["x", "y", "x"]),
        "names of feeds: expected each once, got `x` twice"
    );
    let mut odd = fields(&[1, 1]);
    odd[1].pop();
    let expected = "fields of sample 1: expected 2, one for each of `words`, `label`, got 1";
    assert_eq!(fingerprint(odd, NAMES), expected);
    let mut odd = fields(&[1, 1]);
    odd[1][0] = 3i64.into();
    let expected = "field `words` of sample 1: expected a sequence of integers, as in the samples before, got one integer";
    assert_eq!(fingerprint(odd.clone(), NAMES), expected);
    // A stream is checked while it is read, also across batches.
    let stream: Samples = odd.into_iter().collect();
    let stream = SampleStream::new(0, move || stream.open());
    let loader = Loader::new(stream, NAMES).unwrap().batching(Batching::Sequences(1));
    let items: Vec<_> = loader.batches(None, 0).unwrap().collect();
    assert!(items.len() == 2 && items[0].is_ok());
    assert_eq!(items[1].as_ref().unwrap_err().to_string(), expected);

    for batching in [Batching::Sequences(0), Batching::Tokens(0)] {
        assert!(Loader::new(samples(&[1]), NAMES).unwrap().batching(batching).batches(None, 0).is_err());
    }
    assert!(Loader::new(samples(&[1]), NAMES).unwrap().buffer(0).batches(None, 0).is_err());
    let stream = SampleStream::new(0, || Err(Error::new("file", "to be there", "nothing"))).size(3);
    let loader = Loader::new(stream, NAMES).unwrap();
    assert_eq!(loader.batch_count(), Some(1));
    assert!(loader.batches(None, 0).is_err());
}

/// Returns a loader of a stream: ten samples, the result of `last`, and five more samples.
fn ten_and(last: impl Fn() -> Result<Sample> + Clone + Send + Sync + 'static) -> Loader {
    let stream = SampleStream::new(0, move || {
        let last = last.clone();
        let good = fields(&[2; 10]).into_iter().zip(0..).map(|(fields, n)| Ok(Sample::new(n, fields)));
        Ok(Box::new(
            good.chain(std::iter::once_with(last))
                .chain(fields(&[1; 5]).into_iter().map(|f| Ok(Sample::new(0, f)))),
        ))
    });
    Loader::new(stream, NAMES).unwrap().batching(Batching::Sequences(2))
}

#[test]
fn an_error_comes_in_its_place_and_is_the_last() {
    let loader = ten_and(|| Err(Error::new("line", "text", "nothing")));
    for loader in [loader.prefetch(0), ten_and(|| Err(Error::new("line", "text", "nothing"))).prefetch(2)] {
        let mut batches = loader.batches(Some(0), 0).unwrap();
        assert_eq!(batches.by_ref().take(5).filter(Result::is_ok).count(), 5);
        assert!(batches.next().unwrap().is_err());
        assert!(batches.next().is_none() && batches.next().is_none());
        // The error is reported even if it is among the skipped samples.
        let mut late = loader.batches(Some(0), 7).unwrap();
        assert!(late.next().unwrap().is_err() && late.next().is_none());
    }
}

#[test]
fn a_panic_in_the_thread_is_an_error() {
    let loader = ten_and(|| panic!("no such {}", "thing")).prefetch(1);
    let items: Vec<_> = loader.batches(None, 0).unwrap().collect();
    assert_eq!(items.len(), 6);
    let message = items[5].as_ref().unwrap_err().to_string();
    assert_eq!(message, "thread that reads data: expected no panic, got `no such thing`");
}

#[test]
fn the_thread_ends_with_the_iterator() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let endless = SampleStream::new(0, move || {
        let held = Arc::clone(&held);
        let forever = (0..).map(move |n| {
            let _ = &held;
            Ok(Sample::new(n, [Field::Ints(vec![1]), Field::Int(0)]))
        });
        Ok(Box::new(forever))
    });
    let loader = Loader::new(endless, NAMES).unwrap().shuffle(1).buffer(5).prefetch(2);
    let mut batches = loader.batches(Some(0), 0).unwrap();
    assert!(batches.next().unwrap().is_ok());
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(batches);
    let start = Instant::now();
    while Arc::strong_count(&alive) > 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "the thread still runs");
        std::thread::yield_now();
    }
}
