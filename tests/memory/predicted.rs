//! The memory that a predictor and a session compute before they run, beside the memory that they take.

use std::collections::BTreeMap;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Scope};
use unpadded::layers::{Crf, Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, ErrorKind, Lod, Program, Registry, Var, Variable, ops};

use crate::computed::{PROGRAMS, SLACK, check};
use crate::models::Random;
use crate::step_blocks::generator::{F32, Kind, case, seeds};
use crate::thorough::times;
use crate::{models, peak_memory};

const VOCABULARY: usize = 1000;

/// Adds a network to a builder, and returns its output.
type Build = fn(&Builder) -> Var;

/// A predictor of a program with its first weights.
pub(crate) fn predictor_of(
    program: Program,
    registry: &Registry,
    outputs: impl Iterator<Item = (String, VarId)>,
) -> Predictor {
    let named: BTreeMap<_, _> = outputs.map(|(name, id)| (name, program.var(id).name.clone())).collect();
    let mut scope = Scope::of(&program).unwrap();
    let kept = program.vars().filter(|(_, desc)| desc.persistable);
    let tensors = kept.map(|(_, desc)| (desc.name.clone(), scope.value(&desc.name).unwrap())).collect();
    let mut checkpoint = Checkpoint::of(program, named);
    checkpoint.tensors = tensors;
    Predictor::new(checkpoint, registry).unwrap()
}

/// A predictor of a model with its first weights.
pub(crate) fn predictor(net: Builder, outputs: &[(&str, Var)]) -> Predictor {
    let outputs = outputs.iter().map(|(name, var)| ((*name).to_owned(), var.id()));
    predictor_of(net.finish().unwrap(), &ops::catalogue(), outputs)
}

#[test]
fn the_computed_memory_of_sessions_is_the_peak_of_their_steps() {
    own_process!();
    const SESSIONS: usize = 100;
    let kinds: [(&str, Build); 2] = [
        ("stacked", |net| words_of(net).lstm(32).lstm(48).linear(20).softmax()),
        ("static rows", |net| (models::STATIC_ROWS.build)(net).outputs[0]),
    ];
    for (name, build) in kinds {
        for sequences in [1, 40] {
            let net = Builder::new();
            let output = build(&net);
            let predictor = predictor(net, &[("out", output)]).threads(1);
            let word = Variable::dense(ndarray::Array1::<i64>::ones(sequences));
            let x = Variable::dense(ndarray::Array2::<f32>::ones((sequences, models::INPUT)));
            let (begin, step) = match name {
                "stacked" => (vec![], [("text", &word)]),
                _ => (vec![("topic", &x)], [("x", &x)]),
            };
            let begun = || {
                let mut session = predictor.sessions(sequences, &["out"]).unwrap();
                session.begin(&begin).unwrap();
                session
            };
            let memory = begun().memory().unwrap();
            let own = |sessions: usize| {
                let mut all: Vec<_> = (0..sessions).map(|_| begun()).collect();
                let (first, ()) = peak_memory::of(|| all[0].step(&step).unwrap());
                all.iter_mut().for_each(|session| session.step(&step).unwrap());
                (first, all)
            };
            // Every session but the first uses the compiled step of the first.
            let (peak, (first, all)) = peak_memory::of(|| own(SESSIONS));
            let of_step = memory.total() - memory.state - memory.parameters;
            println!("{name}, {sequences} sequences: {first} bytes of the first step, {of_step} computed");
            println!("{} bytes of {} sessions, {} computed for each", peak - first, all.len(), memory.state);
            assert!(first <= of_step + memory.state, "{first} bytes of the first step, {memory:?}");
            assert!(
                of_step <= first + first * 15 / 100 + (64 << 10),
                "{first} bytes of the first step, {memory:?}"
            );
            let (held, computed) = (peak - first, SESSIONS * memory.state);
            assert!(
                held <= computed + memory.state && computed <= held + held * 15 / 100,
                "{held} bytes held, {computed} computed"
            );
        }
    }
}

/// A batch of sentences with `words` words.
fn sentences(words: usize, random: &mut Random) -> Variable {
    let longest = [1, 30, 2_000, words][random.below(4)].clamp(1, words);
    let (mut all, mut left) = (Vec::new(), words);
    while left > 0 {
        let length = (1 + random.below(longest)).min(left);
        all.push((0..length).map(|_| random.below(VOCABULARY) as i64).collect());
        left -= length;
    }
    Variable::from_sequences::<i64>(&all).unwrap()
}

/// A number from 1 to 100,000; small numbers are as likely as large ones.
fn any_size(random: &mut Random) -> usize {
    10f64.powf(random.below(5001) as f64 / 1000.0) as usize
}

/// Returns the line of the figures of a run on a predictor that has not run, and whether the computed memory fits the peak.
fn compare(
    name: &str,
    predictor: &Predictor,
    (feeds, outputs): (&[(&str, &Variable)], &[&str]),
    (bounded, exact): (bool, bool),
) -> (bool, String) {
    let memory = predictor.memory(feeds, outputs).unwrap();
    // A batch that just fits runs as a whole, and no rows of words are kept.
    let limited = predictor.clone().most_rows(usize::MAX).memory_limit(memory.total() as u64);
    let (peak, ran) = peak_memory::of(|| limited.run(feeds, outputs));
    // The numbers of a random program may overflow.
    if let Err(error) = ran {
        assert_ne!(error.kind(), ErrorKind::Memory, "{name}: {error}");
        return (true, format!("{name}: {error}"));
    }
    let computed = memory.total()
        - memory.parameters
        - memory.state
        - feeds.iter().map(|(_, value)| bytes(value)).sum::<usize>();
    let fits = (!bounded || computed >= peak) && (!exact || computed <= peak + peak * 15 / 100 + SLACK);
    (
        fits,
        format!(
            "{:.3} {name}: {computed} bytes computed, {peak} measured\n{memory:?}",
            computed as f64 / peak as f64
        ),
    )
}

/// The bytes of a dense value and of its LoD.
fn bytes(value: &Variable) -> usize {
    let lod = value.lod();
    let offsets =
        lod.iter().flat_map(|lod| (0..lod.levels()).map(|level| size_of_val(lod.level(level).unwrap())));
    value.shape().iter().product::<usize>() * value.dtype().size_of() + offsets.sum::<usize>()
}

/// The embeddings of the words of a text.
fn words_of(net: &Builder) -> Var {
    net.feed("text", DType::I64, &[], 1).embedding(Embedding::new(VOCABULARY, 16))
}

#[test]
fn the_computed_memory_of_predictors_is_the_peak_of_a_run() {
    own_process!();
    let networks: [(&str, usize, Build); 4] = [
        ("lstm", 1, |net| {
            let x = words_of(net);
            x.lstm(16).sequence_pool(Pool::Max).linear(5).softmax()
        }),
        ("attention", 1, |net| {
            let x = words_of(net);
            let h = net.concat(&[x.lstm(16), net.lstm(x, Lstm::new(16).backwards())]);
            let weights = net.sequence_softmax(h.linear(8).tanh().linear(1));
            (h * weights).sequence_pool(Pool::Sum).linear(5).softmax()
        }),
        ("tagger", 2, |net| {
            let chars = net.feed("text", DType::I64, &[], 2).embedding(Embedding::new(VOCABULARY, 8));
            let x = chars.lstm(8).sequence_pool(Pool::Last);
            let h = net.concat(&[x.lstm(16), net.lstm(x, Lstm::new(16).backwards())]);
            net.layer(Crf::new()).of(h.linear(7))
        }),
        ("gru", 1, |net| {
            let x = words_of(net);
            x.gru(16).sequence_pool(Pool::Last).linear(5)
        }),
    ];
    check(networks.into_iter().flat_map(|(name, levels, build)| {
        let mut random = Random(3);
        [(1, 1), (1, 100), (2, 100), (1, 3_000), (2, 20_000), (2, 100_000)].map(|(threads, words)| {
            let net = Builder::new();
            let output = build(&net);
            let predictor = predictor(net, &[("out", output)]).threads(threads);
            let mut text = sentences(words, &mut random);
            if levels == 2 {
                let lengths = text.lod().unwrap().lengths(0).unwrap().collect();
                let of_words: Vec<usize> = (0..words).map(|_| 1 + random.below(9)).collect();
                let ids: Vec<i64> =
                    (0..of_words.iter().sum()).map(|_| random.below(VOCABULARY) as i64).collect();
                let ids = Dense::from_vec(&[ids.len()], ids).unwrap();
                text = Variable::new(ids, Some(Lod::from_lengths(&[lengths, of_words]).unwrap())).unwrap();
            }
            let name = format!("{name}, {words} words, {threads} threads");
            compare(&name, &predictor, (&[("text", &text)], &["out"]), (true, true))
        })
    }));
}

#[test]
fn the_computed_memory_of_predictors_of_random_programs_is_the_peak_of_a_run() {
    own_process!();
    check(seeds(PROGRAMS).map(|seed| {
        let case = case(seed, Kind { wide: seed % 2 == 0, ..F32 }).unwrap();
        let mut random = Random(seed);
        let wanted: Vec<VarId> = (0..3).map(|_| case.values[random.below(case.values.len())]).collect();
        let named: Vec<String> = wanted.iter().enumerate().map(|(k, _)| format!("{k}")).collect();
        let outputs: Vec<&str> = named.iter().map(String::as_str).collect();
        let program = &case.forward;
        let predictor =
            predictor_of(program.clone(), &case.registry, named.iter().cloned().zip(wanted.iter().copied()));
        let predictor = predictor.threads(1 + seed as usize % 2);
        let feeds: Vec<(&str, &Variable)> =
            case.feeds.iter().map(|(id, value)| (program.var(*id).name.as_str(), value)).collect();
        let counts = Executor::new(program, &case.registry, &wanted, 1).unwrap().counts(&case.fed()).unwrap();
        compare(
            &format!("seed {seed}"),
            &predictor,
            (&feeds, &outputs),
            (counts.is_bounded(), counts.is_exact()),
        )
    }));
}

#[test]
fn a_predictor_never_keeps_more_than_its_limit() {
    own_process!();
    /// Bytes of the programs that are compiled meanwhile, which the limit does not count.
    const PLANS: usize = 256 << 10;
    const LISTS: [&[&str]; 5] = [&["class"], &["tags"], &["read"], &["class", "read"], &["rows"]];
    let mut random = Random(11);
    for number in 0..times(4) {
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], 1);
        let x = words.embedding(Embedding::new(VOCABULARY, 16));
        let (rows, back) = (x.lstm(16), net.lstm(x, Lstm::new(16).backwards()));
        let both = net.concat(&[rows, back]);
        let class = rows.sequence_pool(Pool::Max).linear(5).softmax();
        let weights = net.sequence_softmax(both.tanh().linear(1));
        let read = (both * weights).sequence_pool(Pool::Sum).linear(5);
        let tags = net.layer(Crf::new()).of(both.linear(7));
        let outputs = [("class", class), ("tags", tags), ("read", read), ("rows", rows)];
        let most_rows = [16_384, 1_000_000][random.below(2)];
        let first = predictor(net, &outputs).threads(1 + number % 2).most_rows(most_rows);
        let sizes: Vec<usize> = (0..16).map(|_| any_size(&mut random)).collect();
        let batches: Vec<Variable> = sizes.iter().map(|&words| sentences(words, &mut random)).collect();
        let memories = batches.iter().map(|words| {
            first.memory(&[("words", words)], LISTS[random.below(LISTS.len())]).unwrap().total()
        });
        let mut memories: Vec<usize> = memories.collect();
        memories.sort_unstable();
        // Some batches just fit, or there is room for the rows of words.
        let limit =
            if number % 2 == 0 { memories[10 + random.below(6)] } else { (40 + random.below(60)) << 20 };
        let first = first.memory_limit(limit as u64);
        let clone = first.clone();
        let little = Variable::from_sequence(vec![1i64]).unwrap();
        let parameters = first.memory(&[("words", &little)], &["class", "tags", "read"]).unwrap().parameters;
        let (mut ran, mut refused) = (0, 0);
        let (peak, ()) = peak_memory::of(|| {
            for words in &batches {
                let predictor = [&first, &clone][random.below(2)];
                match predictor.run(&[("words", words)], LISTS[random.below(LISTS.len())]) {
                    Ok(_) => ran += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Memory);
                        assert!(predictor.last_memory() > limit as u64);
                        refused += 1;
                    }
                }
            }
        });
        let share = (peak + parameters) as f64 / limit as f64;
        println!("{share:.3} of {limit} bytes, {ran} batches ran, {refused} were refused");
        assert!(
            peak + parameters <= limit + PLANS && ran >= 8,
            "{share} of {limit} bytes, {ran} ran, {refused} were refused"
        );
    }
}
