//! W3: a table of many rows, of which a step touches few. Each rule and size in a process of its own, so that the peak memory
//! is its own.

use std::process::Command;

use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::{Builder, DType};

use crate::models::Model;
use crate::{Bench, Outcome, Stage, data};

/// The name of a rule, its treatment of rows that a step does not touch, and the rule.
type Rule = (&'static str, &'static str, fn() -> Box<dyn Optimizer>);

const RULES: [Rule; 4] = [
    ("sgd", "exact", || Box::new(Sgd::new(0.01))),
    ("adagrad", "exact", || Box::new(Adagrad::new(0.01))),
    ("adam", "lazy", || Box::new(Adam::new(1e-3).lazy())),
    ("adam", "exact", || Box::new(Adam::new(1e-3))),
];
const SIZES: [usize; 3] = [100_000, 1_000_000, 10_000_000];
const WIDTH: usize = 64;

/// A workload's word: W3, or one rule and size of it, as `W3-adam-exact-1000000`.
pub(crate) fn knows(word: &str) -> bool {
    word == "W3" || one(word).is_some()
}

/// The rule and the size that a word names.
fn one(word: &str) -> Option<(Rule, usize)> {
    let mut parts = word.strip_prefix("W3-")?.split('-');
    let (kind, mode, size) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
    let rule = RULES.into_iter().find(|rule| (rule.0, rule.1) == (kind, mode))?;
    (size > 0 && parts.next().is_none()).then_some((rule, size))
}

pub(crate) fn run(word: &str, threads: usize, steps: Option<usize>) -> Outcome<()> {
    if let Some((rule, size)) = one(word) {
        return measure(rule, size, threads, steps);
    }
    for size in SIZES {
        for (kind, mode, _) in RULES {
            let mut process = Command::new(std::env::current_exe()?);
            process.args([format!("W3-{kind}-{mode}-{size}"), "--threads".to_owned(), threads.to_string()]);
            if let Some(steps) = steps {
                process.args(["--steps".to_owned(), steps.to_string()]);
            }
            if !process.status()?.success() {
                return Err(format!("{kind}, {mode}, {size} rows: the process failed").into());
            }
        }
    }
    Ok(())
}

fn measure((kind, mode, optimizer): Rule, size: usize, threads: usize, steps: Option<usize>) -> Outcome<()> {
    let batches = data::wide(size)?;
    let model = |net: &Builder| {
        let words = net.feed("words", DType::I64, &[], 1);
        let label = net.feed("label", DType::I64, &[], 0);
        let bag = EmbeddingBag::new(size, WIDTH).sparse().weight_init(init::uniform(-0.05, 0.05));
        let loss = words.embedding_bag(bag).linear(2).cross_entropy(label).mean();
        Model { feeds: vec![words, label], loss }
    };
    let mut bench = Bench::new(model, &*optimizer(), threads)?;
    let timed = bench.measure(&batches, steps.unwrap_or(batches.len()), Stage::Updates)?;
    println!("{}", timed.json_of("W3", mode, threads, &format!(r#","opt":"{kind}","V":{size}"#)));
    Ok(())
}
