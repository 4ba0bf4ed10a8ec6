//! A step that attends to a whole sub-sequence of its own sequence, of its own feed and of another: values, gradients against
//! differences, equal bits on any number of threads and alone, and lanes.

use unpadded::executor::Executor;
use unpadded::layers::{Attention, Linear, init};
use unpadded::ops::{DotAttention, Pool};
use unpadded::program::{Recurrence, Step};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Var, Variable};

use super::generator::{Batch, Case, Dice};
use super::holds;

const WIDTH: usize = 3;
/// Rows of a table.
const IDS: usize = 5;

/// Lengths of the usual batch, a larger and a smaller one, one of empty sequences, and none.
const SOURCES: [&[usize]; 5] = [&[2, 4, 0, 1, 3], &[1, 5, 2, 0, 3, 1, 7], &[2, 1], &[0, 0, 3], &[]];
const TARGETS: [&[usize]; 5] = [&[3, 0, 2, 4, 1], &[6, 1, 0, 2, 5, 3, 1], &[1, 4], &[2, 0, 0], &[]];

#[derive(Clone, Copy)]
struct Feeds {
    source: Var,
    target: Var,
    /// An id for each row of the target.
    ids: Var,
}

fn some(lod: std::sync::Arc<Lod>, salt: u64) -> Variable {
    let mut dice = Dice::new(salt + lod.rows() as u64);
    let numbers = (0..lod.rows() * WIDTH).map(|_| dice.number()).collect();
    let rows = Dense::from_vec(&[lod.rows(), WIDTH], numbers).unwrap();
    Variable::sequences(rows, lod).unwrap()
}

fn batch(feeds: Feeds, source: &[Vec<usize>], target: &[usize]) -> Batch {
    let target = Lod::from_lengths1(target).unwrap();
    let mut dice = Dice::new(17);
    let ids = (0..target.rows()).map(|_| dice.below(IDS) as i64).collect();
    let ids = Dense::from_vec(&[target.rows()], ids).unwrap();
    vec![
        (feeds.source.id(), some(Lod::from_lengths(source).unwrap(), 1)),
        (feeds.target.id(), some(target.clone(), 2)),
        (feeds.ids.id(), Variable::sequences(ids, target).unwrap()),
    ]
}

/// A case with a source of `levels` levels: below each sequence of [`SOURCES`] sequences of 1, 2 and 0 rows, and so on.
fn case(levels: usize, build: impl FnOnce(&Builder, Feeds) -> Vec<Var>) -> Case {
    let net = Builder::new().seed(7);
    let source = net.feed("source", DType::F64, &[WIDTH], levels);
    let target = net.feed("target", DType::F64, &[WIDTH], 1);
    let ids = net.feed_like("ids", DType::I64, &[], target);
    let feeds = Feeds { source, target, ids };
    net.watch(source);
    net.watch(target);
    let results = build(&net, feeds);
    // Every feed is used, whatever the case does.
    let unused = net.sum(net.tanh(net.cast(ids, DType::F64)));
    let mut loss = net.sum(net.square(source)) + net.sum(net.square(target)) + unused;
    for &result in &results {
        loss = loss + net.sum(net.square(result));
    }
    let values = results.iter().chain([&loss]).map(|v| v.id()).collect();
    let (registry, loss) = (net.registry(), loss.id());
    let mut batches: Vec<Batch> = SOURCES
        .iter()
        .zip(TARGETS)
        .map(|(source, target)| {
            let mut lengths = vec![source.to_vec()];
            for _ in 1..levels {
                let rows = lengths[lengths.len() - 1].iter().sum();
                lengths.push((0..rows).map(|i: usize| (i + 1) % 3).collect());
            }
            batch(feeds, &lengths, target)
        })
        .collect();
    let first = batches.remove(0);
    let case = Case::of(net.finish().unwrap(), registry, loss, first, values).unwrap();
    Case { others: batches, ..case }
}

#[track_caller]
fn held(levels: usize, build: impl FnOnce(&Builder, Feeds) -> Vec<Var>) -> Case {
    let case = case(levels, build);
    if let Err(what) = holds(&case) {
        panic!("{what}");
    }
    case
}

/// Checks that the loops of a case run in lanes, forward and backward, and the calls of their steps.
#[track_caller]
fn in_lanes(case: &Case) -> String {
    let fetch: Vec<_> = [case.loss].into_iter().chain(case.gradients.iter().copied()).collect();
    let text = Executor::new(&case.program, &case.registry, &fetch, 1).unwrap().listing().to_string();
    assert!(!text.contains("all sequences together"), "{text}");
    assert_eq!(text.matches("each thread its own sequences").count(), 2, "{text}");
    text
}

fn spread(width: usize) -> Linear {
    Linear::new(width).weight_init(init::uniform(-0.8, 0.8)).bias_init(init::uniform(-0.8, 0.8))
}

/// A decoder whose state is updated with the output of `attend`.
fn decoder(net: &Builder, target: Var, attend: impl FnOnce(&Step, Var) -> Var) -> Vec<Var> {
    let (out, last) = net.recurrent(target, |step, x| {
        let h = step.memory_of(DType::F64, &[WIDTH]);
        let context = attend(step, h);
        let next = (x + context.linear(spread(WIDTH)) + h.linear(spread(WIDTH))).tanh();
        step.update(h, next);
        (next, step.last(h))
    });
    vec![out, last]
}

/// Returns the lines of the listing's loops, without the calls before and after the loops.
fn steps(listing: &str) -> Vec<&str> {
    let mut inside = false;
    listing
        .lines()
        .filter(|line| {
            let line = line.trim();
            inside = match line {
                _ if line.starts_with("the loop, at every step") => true,
                _ if line.starts_with("after the loop") || line.starts_with("before the loop") => false,
                _ => inside,
            };
            inside
        })
        .collect()
}

#[test]
fn additive_attention_as_one_operator_and_by_hand() {
    for by_hand in [false, true] {
        let case = held(1, |net, feeds| {
            let v = net.parameter("v", DType::F64, &[4], init::uniform(-1.0, 1.0));
            let mut seen = None;
            let results = decoder(net, feeds.target, |_, h| {
                let (query, keys) = (h.linear(spread(4)), feeds.source.linear(spread(4).named("keys")));
                if by_hand {
                    let met = (query.sequence_expand_as(keys) + keys).tanh();
                    let weights = (met * v).sum_features().sequence_softmax();
                    return (feeds.source * weights).sequence_pool(Pool::Sum);
                }
                let (context, weights) = query.additive_attention_with(keys, feeds.source, v);
                seen = Some(weights);
                // A gradient reaches the weights by another way, too.
                context + weights.square().sequence_pool(Pool::Sum)
            });
            assert_eq!(seen.is_some(), !by_hand);
            results
        });
        let text = in_lanes(&case);
        // The product of the keys runs once before the loop, its gradients and the gradient of `v` after the loop.
        let steps = steps(&text);
        assert!(!steps.iter().any(|line| line.contains("keys.weight")), "{text}");
        assert!(!steps.iter().any(|line| line.contains("-> v@grad")), "{text}");
        if !by_hand {
            // One call for all of its gradients.
            let calls = steps.iter().filter(|line| line.contains("additive_attention #")).count();
            assert_eq!(calls, 2, "{text}");
        }
    }
}

#[test]
fn attention_with_products_in_one_and_more_heads() {
    for heads in [1, 2] {
        let case = held(1, |net, feeds| {
            decoder(net, feeds.target, |_, h| h.attention(Attention::new(heads).width(4).over(feeds.source)))
        });
        let text = in_lanes(&case);
        assert!(!steps(&text).iter().any(|line| line.contains("key.weight")), "{text}");
        let steps = steps(&text);
        assert_eq!(steps.iter().filter(|line| line.contains("dot_attention #")).count(), 2, "{text}");
    }
    let case = held(1, |net, feeds| {
        decoder(net, feeds.target, |step, h| {
            let (out, log_sums) =
                step.dot_attention_with(h, feeds.source, feeds.source, DotAttention::heads(3));
            out * log_sums.tanh()
        })
    });
    in_lanes(&case);
}

/// A step that attends to the whole sequence that it is a step of.
#[test]
fn attention_to_the_steps_own_sequence() {
    let case = held(1, |net, feeds| {
        let v = net.parameter("v", DType::F64, &[WIDTH], init::uniform(-1.0, 1.0));
        let backwards = Recurrence { level: None, reverse: true };
        let out = net.recurrent_with(backwards, feeds.target, |step, x| {
            let h = step.memory_of(DType::F64, &[WIDTH]);
            let seen = h.additive_attention(feeds.target.linear(spread(WIDTH)), feeds.target, v);
            let next = (x * h + seen).tanh();
            step.update(h, next);
            next
        });
        vec![out]
    });
    in_lanes(&case);
}

/// Many operators over the rows of static sub-sequences: some whose results are kept for the backward pass, random ones, sums
/// over sequences, and rows of several sequences side by side.
#[test]
fn chains_of_operators_over_static_sub_sequences() {
    let case = held(1, |net, feeds| {
        decoder(net, feeds.target, |step, h| {
            let wide = h.sequence_expand_as(feeds.source);
            let met = step.dropout(wide * feeds.source, 0.25).sigmoid() + wide.tanh().square();
            let first = met.linear(spread(2)).tanh().sequence_pool(Pool::First);
            let turned = met.sequence_reverse().sequence_pool(Pool::Max);
            step.concat(&[first, turned]) * feeds.source.sequence_pool(Pool::Mean).linear(spread(5)).tanh()
        })
    });
    in_lanes(&case);
}

/// Rows of a table that a step looks up by an id which it remembers: its gradient is selected rows, of all steps at once.
#[test]
fn look_ups_by_what_the_step_before_remembered() {
    let case = held(1, |net, feeds| {
        let table = net.parameter("table", DType::F64, &[IDS, WIDTH], init::uniform(-0.8, 0.8));
        let v = net.parameter("v", DType::F64, &[WIDTH], init::uniform(-1.0, 1.0));
        let out = net.recurrent((feeds.target, feeds.ids), |step: &Step, (x, id): (Var, Var)| {
            let (h, before) = (step.memory_of(DType::F64, &[WIDTH]), step.memory_of(DType::I64, &[]));
            let word = step.lookup(before, table, None, true);
            let next = (h.additive_attention(feeds.source, feeds.source, v) + word * x).tanh();
            step.update(h, next);
            step.update(before, id);
            next
        });
        vec![out]
    });
    let text = in_lanes(&case);
    assert!(!steps(&text).iter().any(|line| line.contains("-> table@grad")), "{text}");
}

/// Documents of sentences of words: at every step the sentences attend to their words, and the state to the sentences.
#[test]
fn attention_below_attention() {
    let case = held(2, |net, feeds| {
        let [v, w] =
            ["v", "w"].map(|name| net.parameter(name, DType::F64, &[WIDTH], init::uniform(-1.0, 1.0)));
        decoder(net, feeds.target, |step, h| {
            let sentences = feeds.source.sequence_pool(Pool::Mean);
            let asked = h.sequence_expand_as(sentences) + sentences;
            let seen = step.additive_attention(asked, feeds.source.linear(spread(WIDTH)), feeds.source, v);
            h.additive_attention(seen.tanh(), seen, w)
        })
    });
    in_lanes(&case);
}

/// Loops inside loops over three levels: the innermost step attends to the words of all of its paragraph.
#[test]
fn attention_over_three_levels() {
    let outer = Recurrence { level: Some(0), reverse: false };
    held(3, |net, feeds| {
        let v = net.parameter("v", DType::F64, &[WIDTH], init::uniform(-1.0, 1.0));
        let out = net.recurrent_with(outer, feeds.source, |step, paragraph| {
            let around = step.memory_of(DType::F64, &[WIDTH]);
            let last = step.recurrent_with(outer, paragraph, |step, sentence| {
                let h = step.memory_from(around);
                let sentences = paragraph.sequence_pool(Pool::Sum);
                let seen = h.additive_attention(sentences.tanh(), sentences, v);
                let next = (seen + sentence.sequence_pool(Pool::Mean) + h.linear(spread(WIDTH))).tanh();
                step.update(h, next);
                step.last(h)
            });
            let next = (last + around).tanh();
            step.update(around, next);
            next
        });
        vec![out]
    });
}
