//! The checkpoints of each format version in `fixtures/` load forever, with the contents that were written.

use std::fmt::Write;
use std::path::PathBuf;

use unpadded::checkpoint::Checkpoint;
use unpadded::predict::Predictor;
use unpadded::tensor::Dense;
use unpadded::{DType, wire};

use crate::trained::{self, FEEDS};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name)
}

fn bits(value: &Dense) -> String {
    assert_eq!(value.dtype(), DType::F32);
    let bits = value.as_slice::<f32>().unwrap().iter().map(|x| format!("{:08x}", x.to_bits()));
    format!("{:?} {}", value.shape(), bits.collect::<Vec<_>>().join(" "))
}

/// All that it holds, in words that no later release has a reason to change.
fn listing(checkpoint: &Checkpoint) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").unwrap();
    let program = &checkpoint.program;
    line(format!("program: {} variables, seed {}", program.vars().len(), program.seed));
    for (id, block) in program.blocks() {
        let ops = block.ops.iter().map(|op| format!("{} {}", op.kind, op.role));
        line(format!("block {}: {}", id.0, ops.collect::<Vec<_>>().join(", ")));
    }
    for (_, var) in program.vars().filter(|(_, v)| v.persistable || v.block.0 == 0) {
        let spec = var.spec().map_or_else(String::new, |spec| format!("{:?}", spec.dims()));
        line(format!("variable {}: {} {spec}, {} levels", var.name, var.role, var.lod_level()));
    }
    for (section, tensors) in [("tensor", &checkpoint.tensors), ("best", &checkpoint.best)] {
        tensors
            .iter()
            .for_each(|(name, value)| line(format!("{section} {name}: {}", bits(value.as_dense().unwrap()))));
    }
    for (name, value) in &checkpoint.carried {
        line(format!("carried {name}: {}", bits(value.storage().as_dense().unwrap())));
    }
    for (name, vocabulary) in &checkpoint.vocabularies {
        line(format!("vocabulary {name}: {:?}", vocabulary.tokens().collect::<Vec<_>>()));
    }
    checkpoint.notes.iter().for_each(|(name, text)| line(format!("note {name}: {text}")));
    checkpoint.outputs.iter().for_each(|(name, variables)| line(format!("output {name}: {variables}")));
    for metric in &checkpoint.metrics {
        let attributes = metric.attributes.iter().map(|(name, value)| format!("{name} {value}"));
        let (kind, variables, attributes) =
            (&metric.kind, metric.variables.join(" "), attributes.collect::<Vec<_>>().join(" "));
        line(format!("metric {}: {kind} of {variables}; {attributes}", metric.name));
    }
    let p = &checkpoint.position;
    line(format!("position: epoch {}, batch {}, step {}, tokens {}", p.epoch, p.batch, p.step, p.tokens));
    line(format!("data {:016x}, since best {}", p.data, p.since_best));
    let best = p.best.unwrap();
    line(format!("best: {:016x} in epoch {}, step {}", best.value.to_bits(), best.epoch, best.step));
    for (name, sums) in &p.running {
        let sums = sums.iter().map(|x| format!("{:016x}", x.to_bits()));
        line(format!("running {name}: {}", sums.collect::<Vec<_>>().join(" ")));
    }
    out
}

fn logits(checkpoint: Checkpoint) -> Vec<f32> {
    let predictor = Predictor::new(checkpoint, &unpadded::ops::catalogue()).unwrap().threads(1);
    let batch = trained::batch();
    let feeds: Vec<_> = batch.iter().filter(|(n, _)| FEEDS.contains(n)).map(|(n, v)| (*n, v)).collect();
    predictor.run(&feeds, &["logits"]).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
}

/// Checks that a file of some version loads, has the contents that were written, and predicts.
fn loads_forever(version: u32) {
    let bytes = std::fs::read(fixture(&format!("checkpoint_v{version}.ckpt"))).unwrap();
    let checkpoint = Checkpoint::load(fixture(&format!("checkpoint_v{version}.ckpt"))).unwrap();
    let text = std::fs::read_to_string(fixture(&format!("checkpoint_v{version}.txt"))).unwrap();
    let (values, expected) = text.rsplit_once("logits:").unwrap();
    assert_eq!(listing(&checkpoint), values);
    if wire::VERSION == version {
        let written = checkpoint.to_bytes().unwrap();
        assert_eq!(written, bytes, "version {version} is written in another way than it was");
    }
    // Saving it again in the current version changes nothing.
    assert_eq!(Checkpoint::from_bytes(&checkpoint.to_bytes().unwrap()).unwrap(), checkpoint);
    // Another CPU may round otherwise.
    let expected = expected.split_whitespace().map(|x| x.parse::<f32>().unwrap());
    let got = logits(checkpoint);
    assert_eq!(expected.clone().count(), got.len());
    expected.zip(&got).for_each(|(e, g)| assert!((e - g).abs() < 1e-5, "{got:?}"));
}

#[test]
fn version_1_loads_forever() {
    loads_forever(1);
}

/// A new format version gets golden files of its own; the files of earlier versions are never rewritten.
#[test]
fn the_version_that_is_written_has_golden_files() {
    let [file, words] = ["ckpt", "txt"].map(|end| fixture(&format!("checkpoint_v{}.{end}", wire::VERSION)));
    assert_eq!(file.exists(), words.exists(), "{} is one of two files", file.display());
    if file.exists() {
        return;
    }
    let checkpoint = trained::checkpoint(4);
    checkpoint.save(&file).unwrap();
    let mut text = listing(&checkpoint) + "logits:";
    logits(checkpoint).iter().for_each(|x| write!(text, " {x}").unwrap());
    std::fs::write(&words, text + "\n").unwrap();
    panic!(
        "{} and {} were not there and are now: read and keep them, and test that they load",
        file.display(),
        words.display()
    );
}
