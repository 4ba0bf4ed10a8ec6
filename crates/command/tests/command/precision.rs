//! Training in bf16 by the command: refused on a CPU that has no unit for bf16, unless slow training is allowed, and resumed with
//! the unit of the checkpoint.

use std::fs;

use unpadded::Precision;
use unpadded::op::MatrixUnit;

use super::{Place, reviews, with};

#[test]
fn training_in_bf16_is_refused_or_slow_without_a_unit() {
    let place = Place::new("precision");
    place.write("reviews.tsv", &reviews());
    let train = |rest: &'static [&'static str]| {
        with(&["train", "--train", "reviews.tsv", "--epochs", "2", "--set", "training.precision=bf16"], rest)
    };
    let before = place.files();
    let alone = ["train", "--train", "reviews.tsv", "--set", "training.allow_slow=true", "--run", "none"];
    place.refuses(&alone, &["training.allow_slow: expected false unless `training.precision`"]);
    let said = place.refused(&["train", "--train", "reviews.tsv", "--set", "training.precision=f16"]);
    assert!(said.contains("training.precision: expected one of `f32`, `bf16`, got"), "{said}");
    if MatrixUnit::of_cpu(Precision::Bf16).is_none() {
        let said = place.refused(&train(&["--run", "none"]));
        assert!(said.contains("training.precision: expected `f32`, or a CPU that multiplies bf16"), "{said}");
        assert!(said.contains("with `training.allow_slow = true`"), "{said}");
    }
    assert_eq!(place.files(), before);

    let slow = ["--set", "training.allow_slow=true", "--run", "whole"];
    let output = place.given(&with(&train(&[]), &slow), "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("matrix products in bf16-"), "{said}");
    let shown = place.said(&["inspect", "whole/last.ckpt"], "");
    assert!(shown.contains("trained with matrix products in bf16-"), "{shown}");

    // A run that is resumed gives the bytes of the whole run; the config of the run has the precision.
    let part = ["--set", "training.allow_slow=true", "--run", "part"];
    let mut first = with(&train(&[]), &part);
    first[4] = "1";
    place.said(&first, "");
    place.said(&["train", "--resume", "part", "--epochs", "2"], "");
    let bytes = |run: &str, file: &str| fs::read(place.0.join(run).join(file)).unwrap();
    assert!(bytes("whole", "last.ckpt") == bytes("part", "last.ckpt"), "other bytes");
    place.said(&["eval", "part", "reviews.tsv"], "");
}
