//! Profiles: the counts are complete, results do not change, and traces stay small and valid.

use std::time::Duration;

use unpadded::executor::{Bound, Entry, Executor, LoopPhase, Profile, Run, Scope};
use unpadded::layers::Embedding;
use unpadded::op::Pass;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::VarId;
use unpadded::{Builder, DType, ErrorKind, Variable, ops};

use crate::models::{self, HIDDEN, INPUT, Model};

/// Trains for some steps, profiled or not; returns the losses and the profile.
fn train(
    model: &Model,
    documents: &[Vec<usize>],
    threads: usize,
    profiled: bool,
) -> (Vec<f64>, Option<Profile>) {
    let net = Builder::new();
    let made = (model.build)(&net);
    let mut program = net.finish().unwrap();
    Sgd::new(1e-3).minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
    let mut executor = Executor::new(&program, &ops::catalogue(), &[made.loss.id()], threads).unwrap();
    if threads > 1 {
        executor.divide_everything();
    }
    let mut scope = Scope::of(&program).unwrap();
    let values = models::batch(model, documents, 1);
    let ids = model.feeds.iter().map(|f| program.find(f.name()).unwrap());
    let feeds: Vec<(VarId, &Variable)> = ids.zip(&values).collect();
    if profiled {
        executor.start_profile();
    }
    let mut losses = Vec::new();
    for step in 0..STEPS {
        executor.run(&mut scope, &Run::train(&feeds, step)).unwrap();
        losses.push(executor.scalar(made.loss).unwrap());
    }
    (losses, executor.take_profile())
}

const STEPS: u64 = 3;

fn profile(model: &Model, documents: &[Vec<usize>], threads: usize) -> Profile {
    let (plain, none) = train(model, documents, threads, false);
    let (profiled, profile) = train(model, documents, threads, true);
    assert!(none.is_none());
    assert_eq!(plain, profiled, "a profile changes the losses");
    let profile = profile.unwrap();
    assert_eq!((profile.runs, profile.threads), (STEPS, threads));
    let known: Duration = profile.entries.iter().map(|e| e.time).sum();
    // Each entry's time is rounded by itself.
    assert!(known <= profile.wall + Duration::from_micros(10), "{known:?} of {:?}\n{profile}", profile.wall);
    profile
}

/// The calls, rows and operations of the products in one part, over all steps, sorted.
fn products(profile: &Profile, part: LoopPhase, backward: bool) -> Vec<(u64, u64, u64)> {
    let is_product =
        |e: &&Entry| e.part == part && e.kind == "linear" && (e.pass == Pass::Backward) == backward;
    let mut found: Vec<_> =
        profile.entries.iter().filter(is_product).map(|e| (e.calls, e.rows, e.cost.flops)).collect();
    found.sort();
    found
}

#[test]
fn products_are_counted_whatever_the_threads() {
    // Twelve sequences of 40 words and one of 3, so that the loop is divided.
    let mut documents = vec![vec![40]; 12];
    documents.push(vec![3]);
    let tokens = 12 * 40 + 3;
    for threads in [1, 2] {
        let profile = profile(&models::TRAINED, &documents, threads);
        let gates = 4 * HIDDEN as u64;
        let (input, state) = (2 * INPUT as u64 * gates, 2 * HIDDEN as u64 * gates);
        let all = STEPS * tokens;
        assert_eq!(products(&profile, LoopPhase::Before, false), [(STEPS, all, all * input)]);
        let steps = products(&profile, LoopPhase::Loop, false);
        assert_eq!(steps.iter().map(|s| (s.1, s.2)).collect::<Vec<_>>(), [(all, all * state)]);
        assert!(steps[0].0 >= STEPS * 40, "{steps:?}");
        // Backward: the state's gradient in the loop; behind it both weights', the input's, and a bias'.
        let steps = products(&profile, LoopPhase::Loop, true);
        assert_eq!(steps.iter().map(|s| s.2).collect::<Vec<_>>(), [all * state]);
        let after: u64 = products(&profile, LoopPhase::After, true).iter().map(|s| s.2).sum();
        assert_eq!(after, all * (state + 2 * input + gates));
        // Each thread ran sequences of its own.
        let cell = profile.entries.iter().find(|e| e.kind == "lstm_cell").unwrap();
        assert_eq!(cell.threads.len(), threads);
        assert!(cell.threads.iter().all(|busy| *busy > Duration::ZERO), "{:?}", cell.threads);
    }
}

#[test]
fn tables_count_the_rows_that_are_touched() {
    let profile = profile(&models::TRAINED, &[vec![5], vec![], vec![2]], 1);
    let row = 4 * INPUT as u64;
    let forward = profile.entries.iter().find(|e| e.operator == "embedding #0").unwrap();
    assert_eq!((forward.rows, forward.cost.written), (STEPS * 7, STEPS * 7 * row));
    // Gradients and parameters of seven words (that the batch may repeat), not of the whole table.
    let update =
        profile.entries.iter().filter(|e| e.kind == "sgd").find(|e| e.cost.written == STEPS * 7 * row);
    assert!(update.is_some(), "{profile}");
}

#[test]
fn tables_print_and_add_up() {
    for model in [models::TRAINED, models::TRAINED_NESTED, models::STATIC_ROWS, models::LOOP_IN_LOOP] {
        let profile = profile(&model, &[vec![3, 2], vec![], vec![4], vec![1, 0, 2]], 2);
        let text = profile.to_string();
        assert!(text.contains("linear"), "{text}");
        assert_eq!(text.lines().count(), profile.entries.len() + 4, "{text}");
        assert!(profile.entries.is_sorted_by(|a, b| a.time >= b.time));
        assert!(
            profile.time_in(LoopPhase::Loop) > Duration::ZERO
                && profile.time_in(LoopPhase::Moves) > Duration::ZERO
        );
        json(&profile.chrome_trace());
    }
}

#[test]
fn each_entry_says_what_bounds_it() {
    let profile = profile(&models::TRAINED, &[vec![60], vec![50], vec![55], vec![58]], 2);
    let (rates, text) = (profile.rates(), profile.to_string());
    let of_bytes = |entry: &Entry, reached: f64, rate: f64| {
        let expected = entry.bytes_per_second() / rate;
        assert!((reached / expected - 1.0).abs() < 1e-9, "{reached} and {expected}: {}", entry.operator);
        reached
    };
    let mut found = 0;
    for (entry, line) in profile.entries.iter().zip(text.lines().skip(3)) {
        let bound = entry.bound(&rates);
        let message = bound.map_or("-".to_owned(), |bound| bound.to_string());
        assert!(line.contains(&format!("  {message}  ")), "{message}: {line}");
        let bytes = entry.cost.read + entry.cost.written;
        let reached = match bound {
            Some(Bound::MultiplyAdds(reached)) => {
                let of_peak = profile.of_peak(entry).unwrap();
                assert!((reached / of_peak - 1.0).abs() < 1e-9, "{reached} and {of_peak}: {line}");
                reached
            }
            Some(Bound::L2(reached)) => of_bytes(entry, reached, rates.bandwidth.l2),
            Some(Bound::L3(reached)) => of_bytes(entry, reached, rates.bandwidth.l3),
            Some(Bound::Memory(reached)) => of_bytes(entry, reached, rates.bandwidth.memory),
            Some(Bound::Waiting) => {
                assert!(entry.part == LoopPhase::Stepping || entry.side_by_side.len() == 2, "{line}");
                continue;
            }
            None => {
                assert_eq!((entry.cost.flops, bytes), (0, 0), "{line}");
                continue;
            }
            Some(bound) => panic!("{bound:?}: {line}"),
        };
        assert!(reached.is_finite() && reached > 0.0, "{reached}: {line}");
        found += 1;
    }
    assert!(found > 5, "{text}");
    // Entries of the loop are recorded with their lanes, entries outside of the loop without.
    let cell = profile.entries.iter().find(|e| e.kind == "lstm_cell").unwrap();
    assert!(cell.side_by_side.iter().all(|busy| !busy.is_zero()), "{:?}", cell.side_by_side);
    let update = profile.entries.iter().find(|e| e.kind == "sgd").unwrap();
    assert!(update.side_by_side.iter().all(Duration::is_zero), "{:?}", update.side_by_side);
}

#[test]
fn a_long_loop_has_few_events() {
    let profile = profile(&models::TRAINED, &[vec![600], vec![500]], 2);
    let trace = profile.chrome_trace();
    json(&trace);
    let events = trace.matches(r#""ph":"X""#).count();
    // An event a call outside loops, and in each loop one an instruction and thread.
    assert!(events < 3 * 150, "{events} events");
    assert!(trace.contains(r#""cat":"calls of all steps""#), "{trace}");
    assert!(trace.contains(r#""dropped_events":0"#));
}

#[test]
fn a_run_that_fails_does_not_spoil_the_next() {
    let net = Builder::new();
    let made = (models::TRAINED.build)(&net);
    let program = net.finish().unwrap();
    let mut executor = Executor::new(&program, &ops::catalogue(), &[made.loss.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    executor.start_profile();
    let refused = executor.run(&mut scope, &Run::infer(&[])).unwrap_err();
    assert_ne!(refused.kind(), ErrorKind::Io);
    let values = models::batch(&models::TRAINED, &[vec![2]], 1);
    let ids = models::TRAINED.feeds.iter().map(|f| program.find(f.name()).unwrap());
    let feeds: Vec<(VarId, &Variable)> = ids.zip(&values).collect();
    executor.run(&mut scope, &Run::infer(&feeds)).unwrap();
    assert_eq!(executor.take_profile().map(|p| p.runs), Some(1));
    assert!(executor.take_profile().is_none());
}

/// The table includes the operators and the time of a failed run: shares stay below 100 %.
#[test]
fn the_time_of_a_run_that_fails_counts() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = net.embedding(words, Embedding::new(5, 4));
    let wide = net.linear(x, 64);
    let label = net.feed_like("label", DType::I64, &[], words);
    let loss = net.mean(net.cross_entropy(wide, label));
    let program = net.finish().unwrap();
    let mut executor = Executor::new(&program, &ops::catalogue(), &[loss.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let [ids, wrong] =
        [[1i64, 2, 3], [1, 64, 0]].map(|ids| Variable::from_sequences(&[ids.to_vec()]).unwrap());
    executor.start_profile();
    let feeds = [(words.id(), &ids), (label.id(), &wrong)];
    assert!(executor.run(&mut scope, &Run::infer(&feeds)).is_err());
    let profile = executor.take_profile().unwrap();
    assert_eq!(profile.runs, 0);
    let known: Duration = profile.entries.iter().map(|e| e.time).sum();
    assert!(known > Duration::ZERO && known <= profile.wall + Duration::from_micros(10), "{profile}");
    json(&profile.chrome_trace());
}

/// Checks that a text is valid JSON, or panics at the first error.
#[track_caller]
fn json(text: &str) {
    let rest = value(text.trim_start()).unwrap_or_else(|at| panic!("no JSON at {:.60}", at));
    assert!(rest.trim().is_empty(), "{rest:.60} behind the JSON");
}

/// Parses a JSON value and returns the text after it, or the text where parsing fails.
fn value(text: &str) -> Result<&str, &str> {
    let text = text.trim_start();
    match text.as_bytes().first() {
        Some(b'{') => list(&text[1..], '}', |item| {
            let rest = string(item.trim_start())?.trim_start();
            value(rest.strip_prefix(':').ok_or(rest)?)
        }),
        Some(b'[') => list(&text[1..], ']', value),
        Some(b'"') => string(text),
        _ => {
            let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(text.len());
            text[..end].parse::<f64>().map_err(|_| text)?;
            Ok(&text[end..])
        }
    }
}

fn list<'a>(
    text: &'a str,
    end: char,
    item: impl Fn(&'a str) -> Result<&'a str, &'a str>,
) -> Result<&'a str, &'a str> {
    let mut rest = text.trim_start();
    if let Some(done) = rest.strip_prefix(end) {
        return Ok(done);
    }
    loop {
        rest = item(rest)?.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.strip_prefix(end).ok_or(rest),
        }
    }
}

fn string(text: &str) -> Result<&str, &str> {
    let mut chars = text.strip_prefix('"').ok_or(text)?.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok(&text[i + 2..]),
            '\\' => drop(chars.next()),
            c if c.is_control() => return Err(text),
            _ => {}
        }
    }
    Err(text)
}
