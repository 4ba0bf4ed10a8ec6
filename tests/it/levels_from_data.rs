//! Sequences whose lengths the data decides: erased and sliced, at the root and in step blocks.

use unpadded::executor::{Executor, Run, Scope, interpret};
use unpadded::layers::{Gru, init};
use unpadded::op::{
    Attributes, Backward, CheckCase, Extent, Facts, Forward, InferShape, LodEffect, NewLevels, Op,
};
use unpadded::ops::{Pool, catalogue};
use unpadded::program::{Append, BlockId, Recurrence, VarId, Vars};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Result, Var, Variable, operator};

use super::step_blocks::generator::{Case, Dice};
use super::step_blocks::holds;

/// Different ids.
const IDS: usize = 5;

/// The feeds of a program: ids in nested sequences, floats beside them, and for each of the last sequences where a piece
/// of it begins and how long that is.
#[derive(Clone, Copy)]
struct Feeds {
    ids: Var,
    x: Var,
    from: Var,
    count: Var,
}

fn feeds(net: &Builder, levels: usize) -> Result<Feeds> {
    let ids = net.feed("ids", DType::I64, &[], levels);
    let x = net.feed_like("x", DType::F64, &[3], ids);
    net.watch(x);
    let each = net.lod_of(ids);
    let from = net.feed_like("from", DType::I64, &[], each);
    let count = net.feed_like("count", DType::I32, &[1], each);
    Ok(Feeds { ids, x, from, count })
}

/// Values for them.
fn batch(feeds: &Feeds, lengths: &[Vec<usize>]) -> Result<Vec<(VarId, Variable)>> {
    let lod = Lod::from_lengths(lengths)?;
    let mut dice = Dice::new(lod.rows() as u64 + 17);
    let rows = lod.rows();
    let ids: Vec<i64> = (0..rows).map(|_| dice.below(IDS) as i64).collect();
    let x: Vec<f64> = (0..3 * rows).map(|_| dice.number()).collect();
    let last = lengths.last().map_or(&[][..], Vec::as_slice);
    let from: Vec<usize> = last.iter().map(|&n| dice.below(n + 1)).collect();
    let count: Vec<i32> = last.iter().zip(&from).map(|(n, from)| dice.below(n - from + 1) as i32).collect();
    let from: Vec<i64> = from.into_iter().map(|n| n as i64).collect();
    let upper = lod.upper().cloned();
    Ok(vec![
        (feeds.ids.id(), Variable::new(Dense::from_vec(&[rows], ids)?, Some(lod.clone()))?),
        (feeds.x.id(), Variable::new(Dense::from_vec(&[rows, 3], x)?, Some(lod))?),
        (feeds.from.id(), Variable::new(Dense::from_vec(&[from.len()], from)?, upper.clone())?),
        (feeds.count.id(), Variable::new(Dense::from_vec(&[count.len(), 1], count)?, upper)?),
    ])
}

/// Batches of nested sequences: the usual one, a larger and a smaller one, empty sequences, none.
fn shapes(levels: usize) -> Vec<Vec<Vec<usize>>> {
    let deepest: [&[usize]; 5] =
        [&[3, 0, 5, 1, 2, 4], &[7, 4, 0, 6, 9, 1, 3, 8, 2], &[2, 1], &[0, 0, 0], &[]];
    let middle: [&[usize]; 5] = [&[2, 0, 3, 1], &[4, 2, 1, 0, 2], &[1, 1], &[2, 0, 1], &[]];
    let top: [&[usize]; 5] = [&[1, 3], &[2, 0, 3], &[2], &[1, 2], &[]];
    let all = (0..5).map(|i| [top[i], middle[i], deepest[i]].map(<[usize]>::to_vec));
    all.map(|shape| shape[3 - levels..].to_vec()).collect()
}

fn case(levels: usize, build: impl FnOnce(&Builder, Feeds) -> Vec<Var>) -> Result<Case> {
    let mut registry = catalogue();
    registry.add::<Groups>()?;
    let net = Builder::with_registry(registry).seed(3);
    let feeds = feeds(&net, levels)?;
    let results = build(&net, feeds);
    let mut loss: Option<Var> = None;
    for &result in &results {
        let part = net.sum(net.square(result));
        loss = Some(loss.map_or(part, |sum| sum + part));
    }
    // A feed that is not read has no buffer, and is still fed.
    let used =
        net.sum(net.cast(net.lod_of(net.sequence_slice(feeds.x, feeds.from, feeds.count)), DType::F64));
    let loss = net.add(loss.unwrap(), net.add(used, net.sum(net.tanh(feeds.x))));
    let values = results.iter().chain([&loss]).map(|v| v.id()).collect();
    let (registry, loss) = (net.registry(), loss.id());
    let mut batches =
        shapes(levels).into_iter().map(|lengths| batch(&feeds, &lengths)).collect::<Result<Vec<_>>>()?;
    let first = batches.remove(0);
    let case = Case::of(net.finish()?, registry, loss, first, values)?;
    Ok(Case { others: batches, ..case })
}

#[track_caller]
fn held(levels: usize, build: impl FnOnce(&Builder, Feeds) -> Vec<Var>) -> Case {
    let case = case(levels, build).unwrap();
    if let Err(what) = holds(&case) {
        panic!("{what}");
    }
    case
}

fn table(net: &Builder) -> Var {
    net.parameter("table", DType::F64, &[IDS, 3], init::uniform(-0.8, 0.8))
}

fn looked_up(net: &Builder, ids: Var, table: Var) -> Var {
    net.lookup(ids, table, None, false)
}

#[test]
fn at_the_root() {
    for levels in 1..=3 {
        held(levels, |net, feeds| {
            let left = net.sequence_erase(feeds.ids, &[1, 3]);
            let words = net.tanh(looked_up(net, left, table(net)));
            let piece = net.sequence_slice(feeds.x, feeds.from, feeds.count);
            let means = net.sequence_pool(net.square(piece), Pool::Mean);
            let states = net.gru(words, Gru::new(3));
            // Sequences that are made of made ones.
            let again = net.sequence_erase(net.sequence_erase(left, &[]), &[0]);
            let rest =
                net.sequence_slice(states, net.lod_of(again), net.lod_of(net.sequence_erase(left, &[2, 4])));
            vec![means, net.sequence_pool(states, Pool::Last), net.scale(rest, 0.5, 0.1)]
        });
    }
}

#[test]
fn classes_of_erased_rows_are_fused() {
    held(1, |net, feeds| {
        let left = net.sequence_erase(feeds.ids, &[4]);
        let rows = net.gru(looked_up(net, left, table(net)), Gru::new(4));
        let weight = net.parameter("classes", DType::F64, &[4, 70], init::uniform(-0.8, 0.8));
        let logits = net.append("linear", &[("x", &[rows]), ("weight", &[weight])], Default::default());
        vec![net.cross_entropy(logits, left)]
    });
}

#[test]
fn words_of_sentences_in_a_step() {
    for levels in 2..=3 {
        held(levels, |net, feeds| {
            let table = table(net);
            let level = Some(levels - 2);
            let inputs = (feeds.ids, feeds.x, feeds.from, feeds.count);
            let options = Recurrence { level, reverse: levels == 3 };
            let (out, kept) = net.recurrent_with(options, inputs, |step, (ids, x, from, count)| {
                let left = step.sequence_erase(ids, &[0, 2]);
                let words = step.tanh(looked_up(step, left, table));
                let sum = step.sequence_pool(words, Pool::Sum);
                let before = step.memory_of(DType::F64, &[3]);
                // A memory reaches the rows that are sliced, but not where.
                let moved = step.add(x, step.sequence_expand_as(before, x));
                let piece = step.tanh(step.sequence_slice(moved, from, count));
                let next = step.add(sum, step.sequence_pool(piece, Pool::Sqrt));
                let next = step.tanh(next);
                step.update(before, next);
                (next, step.last(before))
            });
            vec![out, kept]
        });
    }
}

#[test]
fn a_loop_over_what_a_step_made() {
    for levels in 2..=3 {
        held(levels, |net, feeds| {
            let table = table(net);
            let options = Recurrence { level: Some(levels - 2), reverse: false };
            let out = net.recurrent_with(options, (feeds.ids, feeds.x), |step, (ids, x)| {
                let left = step.sequence_erase(ids, &[1]);
                let others = step.lod_of(step.sequence_erase(ids, &[0, 2, 3, 4]));
                let rows = step.sequence_slice(x, others, step.lod_of(left));
                let rows = step.dropout(rows, 0.3);
                let before = step.memory_of(DType::F64, &[3]);
                // They start with the state of the previous outer step, so that these loops run step by step.
                let read = step.recurrent(left, |inner, id| {
                    let h = inner.memory_from(before);
                    let word = inner.dropout(looked_up(inner, id, table), 0.2);
                    inner.update(h, inner.tanh(inner.add(h, word)));
                    inner.last(h)
                });
                let state = step.recurrent(rows, |inner, row| {
                    let h = inner.memory_from(before);
                    inner.update(h, inner.tanh(inner.add(h, row)));
                    inner.last(h)
                });
                let state = step.add(read, state);
                step.update(before, state);
                state
            });
            vec![out]
        });
    }
}

#[test]
fn made_in_a_loop_of_a_loop() {
    held(3, |net, feeds| {
        let table = table(net);
        let options = Recurrence { level: Some(0), reverse: false };
        let inputs = (feeds.ids, feeds.x, feeds.from, feeds.count);
        let out = net.recurrent_with(options, inputs, |paragraph, (ids, x, from, count)| {
            let before = paragraph.memory_of(DType::F64, &[3]);
            let options = Recurrence { level: Some(0), reverse: true };
            let (state, whole) = paragraph.recurrent_with(
                options,
                (ids, x, from, count),
                |sentence, (ids, x, from, count)| {
                    let h = sentence.memory_from(before);
                    let left = sentence.sequence_erase(ids, &[3]);
                    let words = sentence.sequence_pool(looked_up(sentence, left, table), Pool::Mean);
                    let piece = sentence.sequence_slice(sentence.square(x), from, count);
                    let met = sentence.mul(piece, sentence.sequence_expand_as(h, piece));
                    let sum = sentence.add(words, sentence.sequence_pool(met, Pool::Sum));
                    let next = sentence.tanh(sentence.add(sum, h));
                    sentence.update(h, next);
                    (sentence.last(h), next)
                },
            );
            let all = paragraph.sequence_pool(whole, Pool::Sum);
            paragraph.update(before, paragraph.tanh(paragraph.add(all, state)));
            state
        });
        vec![out]
    });
}

#[test]
fn of_static_sub_sequences() {
    held(1, |net, feeds| {
        let table = table(net);
        let (again, rows) = (net.sequence_erase(feeds.ids, &[2]), feeds.x);
        let out = net.recurrent(feeds.ids, |step, id| {
            let before = step.memory_of(DType::F64, &[3]);
            // The same sequences at every step.
            let left = step.sequence_erase(feeds.ids, &[0, 1]);
            let words = step.sequence_pool(looked_up(step, left, table), Pool::Sum);
            // Ids of each step in the rows of its sequence: rows of steps with rows of sequences. They decide early.
            let spread = step.sequence_expand_as(id, again);
            let mine = step.sequence_erase(spread, &[1, 2, 4]);
            let (from, count) = (step.sequence_erase(mine, &[0]), step.sequence_erase(mine, &[3]));
            let window = step.sequence_slice(rows, step.lod_of(from), step.lod_of(count));
            let some = step.sequence_slice(rows, feeds.from, feeds.count);
            let seen = step.add(step.sequence_pool(some, Pool::Mean), step.sequence_pool(window, Pool::Mean));
            let next = step.tanh(step.add(step.add(words, before), seen));
            step.update(before, next);
            next
        });
        vec![out]
    });
}

/// A program whose step has an integer memory, spread over the words of a sentence.
fn remembered(build: impl FnOnce(&Builder, Var, Var)) -> Result<Case> {
    case(2, |net, feeds| {
        let start =
            net.cast(net.sequence_pool(net.cast(net.lod_of(feeds.ids), DType::F64), Pool::Sum), DType::I64);
        let out = net.recurrent_with(
            Recurrence { level: Some(0), reverse: false },
            (feeds.ids, feeds.x),
            |step, (ids, x)| {
                let before = step.memory_from(start);
                let spread = step.sequence_expand_as(before, ids);
                build(step, spread, ids);
                step.update(before, step.lod_of(ids));
                step.sequence_pool(x, Pool::Sum)
            },
        );
        vec![out]
    })
}

#[test]
fn a_memory_may_not_decide() {
    let refused = "sequence_erase #1 in the step over `ids`: variable `sequence_expand_as`: value that decides the sequences made in a step: expected a value that depends on no memory, because the rows of all steps are counted before the first step, got a value that depends on `";
    let outcome = remembered(|step, spread, _| drop(step.sequence_erase(spread, &[1]).list()));
    let error = outcome.err().unwrap().to_string();
    assert!(error.starts_with(refused) && error.contains("levels_from_data.rs"), "{error}");

    // A program that nobody checked while it was built.
    let case = remembered(|_, _, _| ()).unwrap();
    let mut program = case.forward.clone();
    holds(&case).unwrap();
    let spread = program.find("sequence_expand_as").unwrap();
    let request = with!(Append::forward("sequence_erase"), inputs: vec![("x", vec![spread])], attributes: unpadded::op::Attributes::new().with("tokens", vec![1]));
    program.append(&case.registry, BlockId(1), request).unwrap();
    let error = Executor::new(&program, &case.registry, &[case.loss], 1).err().unwrap().to_string();
    assert!(error.starts_with("sequence_erase #") && error.contains("in the step over `ids`"), "{error}");
    assert!(error.contains(refused.split("made in a step: ").last().unwrap()), "{error}");
}

/// Returns the errors of the executor and of the interpreter for a batch.
fn refused(case: &Case, batch: &[(VarId, Variable)]) -> [String; 3] {
    let feeds: Vec<(VarId, &Variable)> = batch.iter().map(|(id, value)| (*id, value)).collect();
    let numbers: Vec<u64> = (0..case.feeds[0].1.batch_size() as u64).map(|i| 40 + i).collect();
    let run = Run::infer(&feeds).numbers(&numbers);
    let compiled = |threads: usize| {
        let executor = Executor::new(&case.program, &case.registry, &case.values, threads)?;
        let mut executor = if threads > 1 { crate::models::divided(executor) } else { executor };
        executor.run(&mut Scope::of(&case.program)?, &run)
    };
    let direct = || interpret(&case.program, &case.registry, &mut Scope::of(&case.program)?, &run).map(drop);
    [compiled(1), compiled(3), direct()].map(|outcome: Result<()>| outcome.unwrap_err().to_string())
}

#[test]
fn what_is_out_of_range_names_the_sequence() {
    let one = case(1, |net, feeds| vec![net.sequence_slice(feeds.x, feeds.from, feeds.count)]).unwrap();
    let in_step = |net: &Builder, feeds: Feeds| {
        let options = Recurrence { level: Some(0), reverse: false };
        let inputs = (feeds.x, feeds.from, feeds.count);
        net.recurrent_with(options, inputs, |step, (x, from, count)| {
            step.sequence_pool(step.sequence_slice(x, from, count), Pool::Sum)
        })
        .list()
    };
    let two = case(2, in_step).unwrap();
    for (case, row, sample) in [(&one, 2, "sample 42"), (&two, 3, "sample 42, position 1")] {
        let mut batch = case.feeds.clone();
        let from = batch[2].1.as_mut_slice::<i64>().unwrap();
        from[row] = 100;
        let expected = format!("sequence of {sample}: expected an offset and a length inside its");
        for error in refused(case, &batch) {
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains(" from 100 on"), "{error}");
            assert!(
                error.starts_with("sequence_slice #") && error.contains("levels_from_data.rs"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_run_that_was_refused_leaves_the_next_one_whole() {
    let case = case(2, |net, feeds| vec![net.sequence_slice(feeds.x, feeds.from, feeds.count)]).unwrap();
    let mut executor = Executor::new(&case.program, &case.registry, &case.values, 1).unwrap();
    let mut scope = Scope::of(&case.program).unwrap();
    executor.run(&mut scope, &Run::infer(&case.fed())).unwrap();
    let before = executor.fetch(case.values[0]).unwrap();
    let mut wrong = case.feeds.clone();
    wrong[2].1.as_mut_slice::<i64>().unwrap()[0] = -1;
    let feeds: Vec<(VarId, &Variable)> = wrong.iter().map(|(id, value)| (*id, value)).collect();
    assert!(executor.run(&mut scope, &Run::infer(&feeds)).is_err());
    executor.run(&mut scope, &Run::infer(&case.fed())).unwrap();
    assert!(before == executor.fetch(case.values[0]).unwrap());
}

#[test]
fn windows_are_refused() {
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 1);
    let left = net.sequence_erase(ids, &[0]);
    let count = net.lod_of(left);
    let registry = net.registry();
    let error = net.finish().unwrap().streamed(&registry, &[count.id()]).unwrap_err().to_string();
    let expected =
        "expected an operator that takes sequences in pieces, got an operator that needs whole sequences";
    assert!(error.starts_with("sequence_erase #0") && error.contains(expected), "{error}");
}

#[test]
fn a_listing_shows_the_calls() {
    let case = held(2, |net, feeds| {
        let out =
            net.recurrent_with(Recurrence { level: Some(0), reverse: false }, feeds.ids, |step, ids| {
                let left = step.sequence_erase(ids, &[1]);
                step.sequence_pool(looked_up(step, left, table(net)), Pool::Sum)
            });
        vec![out]
    });
    let executor = Executor::new(&case.program, &case.registry, &case.values, 1).unwrap();
    let listing = executor.listing().to_string();
    let at = |text: &str| listing.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{listing}"));
    let offsets = at("sequence_erase #0 (ids.step) -> the offsets of level");
    assert!(at("before the loop, one step after the other") < offsets);
    assert!(offsets < at("before memory is reserved for its output, for one step after the other"));
    // An operator that depends on no memory runs over all steps at once.
    let all = at("before the loop, over all steps at once");
    assert!(all < at("sequence_erase #0 (ids.step) -> sequence_erase:") && all < at("embedding #1"));
    assert!(!listing.contains("at every step"), "{listing}");
}

operator! {
    /// Each sequence of f64 rows in groups of two levels: each row twice, as a group of its own. By the attribute `how`, the
    /// offsets follow from offsets or are declared as data; some values of `how` declare falsely.
    struct Groups = "test.groups" { how: String }
    inputs { X = x: one }
    outputs { OUT = out: one }
}

impl Groups {
    fn rows<T>(
        from: impl Iterator<Item = std::ops::Range<usize>>,
        mut each: impl FnMut(usize) -> Result<T>,
    ) -> Result<()> {
        from.flatten().try_for_each(|row| each(row).map(drop))
    }
}

impl Op for Groups {
    fn facts(&self) -> Facts {
        match self.how.as_str() {
            "offsets" | "not said" => Facts::sequence_wise(LodEffect::Replaces),
            "row-wise" => Facts { lod: LodEffect::FromData(&[0]), ..Facts::row_wise() },
            "no slot" => Facts::sequence_wise(LodEffect::FromData(&[1])),
            _ => Facts::sequence_wise(LodEffect::FromData(&[0])),
        }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(0)?;
        let mut out = s.input(0).clone();
        let x = out.lod.clone();
        out.lod.pop();
        let both = match self.how.as_str() {
            "offsets" | "none so" => {
                // A sequence has as many groups as rows, and a group two rows.
                let groups = s.new_level(&out.lod, |levels, offsets| {
                    offsets.extend(levels.lod(&x).map_or(&[][..], |lod| lod.offsets()));
                    Ok(())
                })?;
                out.lod.push(groups);
                let rows = s.new_level(&out.lod, |levels, offsets| {
                    let count = levels.lod(&x).map_or(0, |lod| lod.rows());
                    offsets.extend((0..=count).map(|group| 2 * group));
                    Ok(())
                })?;
                (groups, rows)
            }
            "elsewhere" => (s.level_from_data(&out.lod)?, s.level_from_data(&[])?),
            _ => {
                let groups = s.level_from_data(&out.lod)?;
                let below: Vec<_> = out.lod.iter().copied().chain([groups]).collect();
                (groups, s.level_from_data(&below)?)
            }
        };
        out.lod = s.levels(0).iter().copied().take(x.len() - 1).chain([both.0, both.1]).collect();
        out.shape[0] = Extent::Rows(both.1);
        s.set(0, out);
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (x, sequences) = (run.input::<f64>(0)?, run.sequences(0)?);
        run.offsets(0).extend([0].into_iter().chain(sequences.iter().map(|rows| rows.end)));
        if self.how != "too few" {
            run.offsets(1).extend((0..=x.rows()).map(|group| 2 * group));
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out) = (run.input::<f64>(0)?, run.output::<f64>(0)?);
        Self::rows(run.sequences(0)?.iter(), |row| {
            out.row(2 * row).copy_from_slice(x.row(row));
            out.row(2 * row + 1).copy_from_slice(x.row(row));
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some(dout) = run.output_gradient::<f64>(0)? else { return Ok(()) };
        let Some((mut dx, store)) = run.gradient::<f64>(0)? else { return Ok(()) };
        Self::rows(run.sequences(0)?.iter(), |row| {
            for (k, d) in dx.row(row).iter_mut().enumerate() {
                let sum = dout.row(2 * row)[k] + dout.row(2 * row + 1)[k];
                store.put(d, sum);
            }
            Ok(())
        })
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

fn grouped(net: &Builder, x: Var, how: &str) -> Var {
    net.append("test.groups", &[("x", &[x])], Attributes::new().with("how", how))
}

#[test]
fn two_levels_made_at_once() {
    for how in ["offsets", "data"] {
        held(2, |net, feeds| {
            let all = net.tanh(grouped(net, feeds.x, how));
            let means = net.sequence_pool(net.sequence_pool(all, Pool::Sqrt), Pool::Sum);
            let options = Recurrence { level: Some(0), reverse: false };
            let inputs = (feeds.ids, feeds.x);
            let out = net.recurrent_with(options, inputs, |step, (ids, x)| {
                let before = step.memory_of(DType::F64, &[3]);
                let groups = grouped(step, x, how);
                let pooled = step.sequence_pool(step.square(groups), Pool::Sum);
                // A loop over the groups, whose step sees the rows of one.
                let over = Recurrence { level: Some(0), reverse: true };
                let read = step.recurrent_with(over, groups, |inner, rows| {
                    let h = inner.memory_from(before);
                    let seen = inner.sequence_pool(rows, Pool::Mean);
                    inner.update(h, inner.tanh(inner.add(h, seen)));
                    inner.last(h)
                });
                let words = step
                    .sequence_pool(looked_up(step, step.sequence_erase(ids, &[1]), table(net)), Pool::Sum);
                let next = step.add(step.add(read, words), step.sequence_pool(pooled, Pool::Mean));
                step.update(before, step.tanh(next));
                next
            });
            vec![means, out]
        });
    }
}

#[test]
fn groups_of_static_sub_sequences() {
    for how in ["offsets", "data"] {
        held(1, |net, feeds| {
            let out = net.recurrent(feeds.x, |step, x| {
                let before = step.memory_of(DType::F64, &[3]);
                let groups = grouped(step, feeds.x, how);
                let pooled = step.sequence_pool(step.sequence_pool(groups, Pool::Sum), Pool::Mean);
                let next = step.tanh(step.add(step.add(pooled, before), x));
                step.update(before, next);
                next
            });
            vec![out]
        });
    }
}

#[test]
fn what_an_operator_declares_is_held_against_its_shape_rule() {
    for (how, expected) in [
        ("not said", "expected `LodEffect::FromData` among its facts, got `LodEffect::Replaces`"),
        ("row-wise", "expected a sequence-wise or batch-wide operator, got a row-wise operator"),
        ("no slot", "expected input slots of the operator, got slots [1] of 1"),
        ("none so", "expected all levels to be made by `level_from_data`, got other levels, or none"),
        (
            "elsewhere",
            "expected each level in an output, below the level that it was made for, got other levels",
        ),
    ] {
        let built = case(1, |net, feeds| vec![grouped(net, feeds.x, how)]);
        let error = built.err().unwrap().to_string();
        assert!(error.starts_with("test.groups #1: levels that an operator makes from data: "), "{error}");
        assert!(error.contains(expected) && error.contains("levels_from_data.rs"), "{error}");
    }
    let few = case(1, |net, feeds| vec![grouped(net, feeds.x, "too few")]).unwrap();
    for error in refused(&few, &few.feeds) {
        assert!(error.starts_with("test.groups #1: offsets of LoD level 1: expected"), "{error}");
    }
}

/// Arrays that are unpadded by the same lengths share their sequences.
#[test]
fn arrays_unpadded_by_the_same_lengths_meet() {
    let net = Builder::new();
    let a = net.feed("a", DType::F64, &[3], 0);
    let b = net.feed("b", DType::F64, &[2], 0);
    let lengths = net.feed("lengths", DType::I64, &[], 0);
    let (rows, others) = (a.sequence_unpad(lengths), b.sequence_unpad(lengths));
    let sum = net.add(rows, others);
    let (registry, wanted) = (net.registry(), [rows.id(), sum.id()]);
    let program = net.finish().unwrap();
    let mut executor = Executor::new(&program, &registry, &wanted, 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let a_fed = Variable::dense(ndarray::array![[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]);
    let b_fed = Variable::dense(ndarray::array![[10.0, 20.0], [30.0, 0.0]]);
    let mut run = |given: [i64; 2]| -> Result<[Variable; 2]> {
        let lengths_fed = Variable::dense(ndarray::array![given[0], given[1]]);
        let feeds = [(a.id(), &a_fed), (b.id(), &b_fed), (lengths.id(), &lengths_fed)];
        executor.run(&mut scope, &Run::infer(&feeds))?;
        Ok([executor.fetch(wanted[0])?, executor.fetch(wanted[1])?])
    };
    let [rows, sum] = run([2, 1]).unwrap();
    assert_eq!(rows.as_slice::<f64>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(sum.as_slice::<f64>().unwrap(), [11.0, 22.0, 33.0]);
    assert_eq!(rows.lod(), sum.lod());
    let error = run([3, 1]).unwrap_err().to_string();
    assert!(error.contains("expected at most 2, the places of a row of `x`, got 3"), "{error}");
    // The second call names the operator that was called.
    let net = Builder::new();
    let (a, b) = (net.feed("a", DType::F64, &[3], 0), net.feed("b", DType::F64, &[], 0));
    let lengths = net.feed("lengths", DType::I64, &[], 0);
    a.sequence_unpad(lengths);
    b.sequence_unpad(lengths);
    let error = net.finish().err().unwrap().to_string();
    assert!(error.starts_with("sequence_unpad #1: ") && error.contains("rows of places"), "{error}");
}
