//! Is there a cliff anywhere? W1's model over batch, hidden size, length and threads.
use unpadded::executor::Stage;

use crate::models::{self, Cell};
use crate::plot::{Curve, Picture};
use crate::{Bench, Outcome, adam, data};

/// The sizes of one training step.
struct Shape {
    batch: usize,
    hidden: usize,
    length: usize,
}

/// One axis with the other two held.
struct Axis {
    name: &'static str,
    places: &'static [usize],
    at: fn(usize) -> Shape,
    title: &'static str,
    label: &'static str,
}

const AXES: [Axis; 4] = [
    Axis {
        name: "batch",
        places: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        at: |batch| Shape { batch, hidden: 256, length: 50 },
        title: "Training an LSTM(256) on sequences of 50 steps",
        label: "sequences in a batch",
    },
    Axis {
        name: "hidden",
        places: &[64, 128, 256, 512, 1024],
        at: |hidden| Shape { batch: 32, hidden, length: 50 },
        title: "Training an LSTM on batches of 32 sequences of 50 steps",
        label: "hidden size, numbers",
    },
    Axis {
        name: "hidden-alone",
        places: &[64, 128, 256, 512, 1024],
        at: |hidden| Shape { batch: 1, hidden, length: 200 },
        title: "Training an LSTM on one sequence of 200 steps at a time",
        label: "hidden size, numbers",
    },
    Axis {
        name: "length",
        places: &[10, 40, 160, 640, 1000, 4000],
        at: |length| Shape { batch: 16, hidden: 256, length },
        title: "Training an LSTM(256) on batches of 16 sequences",
        label: "length of a sequence, steps",
    },
];

/// Returns whether a word names all axes (`scaling`) or one axis (`scaling-batch`).
pub(crate) fn knows(word: &str) -> bool {
    AXES.iter().any(|axis| axis.asked_by(word))
}

impl Axis {
    fn asked_by(&self, word: &str) -> bool {
        let rest = word.strip_prefix("scaling");
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-') == Some(self.name))
    }

    fn curve(&self, threads: usize) -> Outcome<Curve> {
        let mut points = Vec::new();
        for &cell in self.places {
            let Shape { batch, hidden, length } = (self.at)(cell);
            let batches = [data::of_lengths(&vec![length; batch])?];
            let mut bench = Bench::new(|net| models::classify(net, Cell::Lstm, hidden), &adam(), threads)?;
            // About as long everywhere, some four seconds of one thread at most, so that an axis takes less than a minute.
            let tokens = 150_000 * 256 * 256 / (hidden * hidden);
            let steps = (tokens / (batch * length)).clamp(5, 60);
            let median = bench.measure(&batches, steps, Stage::Updates)?.median();
            let rate = (batch * length) as f64 / median;
            println!("| {} | {cell} | {threads} | {rate:.0} | {:.2} |", self.name, median * 1e3);
            points.push((cell as f64, rate));
        }
        Ok(Curve { threads, points })
    }
}

/// Runs the axes that a word names, and writes each as a table and as `target/scaling-*.svg`.
pub(crate) fn run(word: &str) -> Outcome<()> {
    println!("| axis | at | threads | tokens/s | median step, ms |\n|---|---|---|---|---|");
    for axis in AXES.iter().filter(|axis| axis.asked_by(word)) {
        let curves = [axis.curve(1)?, axis.curve(2)?];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
        std::fs::create_dir_all(folder)?;
        let path = format!("{folder}/scaling-{}.svg", axis.name);
        Picture { title: axis.title, x_label: axis.label, y_label: "tokens/s", curves: &curves }
            .draw(&path)?;
        println!("\n{path} written\n");
    }
    Ok(())
}
