//! Is there a cliff anywhere? W1's model over batch, hidden size, length and threads.
use unpadded::executor::Stage;

use crate::models::{self, Cell};
use crate::{Bench, Outcome, adam, data};

/// A line of the plot: threads, and tokens/s at each place of the axis.
type Curve = (usize, Vec<(f64, f64)>);

/// One axis with the other two held: what it is called, its places, and batch, hidden size and length at a place.
type Axis = (&'static str, &'static [usize], fn(usize) -> (usize, usize, usize));

const AXES: [Axis; 4] = [
    ("batch", &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], |batch| (batch, 256, 50)),
    ("hidden", &[64, 128, 256, 512, 1024], |hidden| (32, hidden, 50)),
    ("hidden-alone", &[64, 128, 256, 512, 1024], |hidden| (1, hidden, 200)),
    ("length", &[10, 40, 160, 640, 1000, 4000], |length| (16, 256, length)),
];

pub(crate) fn run() -> Outcome<()> {
    println!("| axis | at | threads | tokens/s | median step, ms |\n|---|---|---|---|---|");
    for (axis, places, at) in AXES {
        let mut curves: Vec<Curve> = Vec::new();
        for threads in [1, 2] {
            let mut curve = Vec::new();
            for &place in places {
                let (batch, hidden, length) = at(place);
                let batches = [data::of_lengths(&vec![length; batch])?];
                let mut bench =
                    Bench::new(|net| models::classify(net, Cell::Lstm, hidden), &adam(), threads)?;
                let steps = (400_000 / (batch * length)).clamp(5, 60);
                let median = bench.measure(&batches, steps, Stage::Updates)?.median();
                let rate = (batch * length) as f64 / median;
                println!("| {axis} | {place} | {threads} | {rate:.0} | {:.2} |", median * 1e3);
                curve.push((place as f64, rate));
            }
            curves.push((threads, curve));
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
        std::fs::create_dir_all(folder)?;
        let path = format!("{folder}/scaling-{axis}.svg");
        std::fs::write(&path, plot(axis, &curves)).map_err(|e| format!("{path}: {e}"))?;
        println!("\n{path} written\n");
    }
    Ok(())
}

/// Tokens/s over one axis, both logarithmic, as SVG.
fn plot(axis: &str, curves: &[Curve]) -> String {
    let (width, height, margin) = (480.0, 320.0, 56.0);
    let points = || curves.iter().flat_map(|c| &c.1);
    let bounds = |value: fn(&(f64, f64)) -> f64| {
        let low = points().map(value).fold(f64::INFINITY, f64::min).ln();
        let high = points().map(value).fold(0.0, f64::max).ln();
        (low, (high - low).max(1e-9))
    };
    let ((left, wide), (low, tall)) = (bounds(|p| p.0), bounds(|p| p.1));
    let x = |v: f64| margin + (v.ln() - left) / wide * (width - 2.0 * margin);
    let y = |v: f64| height - margin - (v.ln() - low) / tall * (height - 2.0 * margin);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{margin}\" y=\"20\">training tokens/s over {axis} (both logarithmic)</text>\n"
    );
    for (i, (threads, curve)) in curves.iter().enumerate() {
        let colour = ["#1b6ca8", "#c0392b", "#2e7d32"][i % 3];
        let line: Vec<String> = curve.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        svg += &format!("<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>\n", line.join(" "));
        for &(at, rate) in curve {
            let (cx, cy) = (x(at), y(rate));
            svg += &format!("<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n");
            let (above, below) = (cy - 6.0, height - margin + 16.0);
            svg += &format!("<text x=\"{cx:.1}\" y=\"{above:.1}\" fill=\"{colour}\">{rate:.0}</text>\n");
            if i == 0 {
                svg += &format!("<text x=\"{cx:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{at}</text>\n");
            }
        }
        let (lx, ly) = (width - margin - 60.0, 40.0 + 14.0 * i as f64);
        svg += &format!("<text x=\"{lx}\" y=\"{ly}\" fill=\"{colour}\">{threads} threads</text>\n");
    }
    svg + "</svg>\n"
}
