//! Training in bf16 by the command: refused on a CPU that has no unit for bf16, unless slow training is allowed, and resumed with
//! the unit of the checkpoint.

use std::fs;

use unpadded::Precision;
use unpadded::op::MatrixUnit;

use super::{TestDir, reviews, with};

#[test]
fn training_in_bf16_is_refused_or_slow_without_a_unit() {
    let dir = TestDir::new("precision");
    dir.write("reviews.tsv", &reviews());
    let train = |rest: &'static [&'static str]| {
        with(&["train", "--train", "reviews.tsv", "--epochs", "2", "--set", "training.precision=bf16"], rest)
    };
    let before = dir.files();
    let alone = ["train", "--train", "reviews.tsv", "--set", "training.allow_slow=true", "--run", "none"];
    dir.refuses(&alone, &["training.allow_slow: expected false unless `training.precision`"]);
    let text = dir.refused(&["train", "--train", "reviews.tsv", "--set", "training.precision=f16"]);
    assert!(text.contains("training.precision: expected one of `f32`, `bf16`, got"), "{text}");
    if MatrixUnit::of_cpu(Precision::Bf16).is_none() {
        let text = dir.refused(&train(&["--run", "none"]));
        assert!(text.contains("training.precision: expected `f32`, or a CPU that multiplies bf16"), "{text}");
        assert!(text.contains("with `training.allow_slow = true`"), "{text}");
    }
    assert_eq!(dir.files(), before);

    let slow = ["--set", "training.allow_slow=true", "--run", "whole"];
    let output = dir.given(&with(&train(&[]), &slow), "");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("matrix products in bf16-"), "{text}");
    let shown = dir.stdout(&["inspect", "whole/last.ckpt"], "");
    assert!(shown.contains("trained with matrix products in bf16-"), "{shown}");

    // A run that is resumed gives the bytes of the whole run; the config of the run has the precision.
    let part = ["--set", "training.allow_slow=true", "--run", "part"];
    let mut first = with(&train(&[]), &part);
    first[4] = "1";
    dir.stdout(&first, "");
    dir.stdout(&["train", "--resume", "part", "--epochs", "2"], "");
    let bytes = |run: &str, file: &str| fs::read(dir.0.join(run).join(file)).unwrap();
    assert!(bytes("whole", "last.ckpt") == bytes("part", "last.ckpt"), "other bytes");
    dir.stdout(&["eval", "part", "reviews.tsv"], "");
}
