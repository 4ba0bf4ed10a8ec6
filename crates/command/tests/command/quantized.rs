//! Models with weights of 8-bit integers by the command: exported, scored, inspected, and refused where weights in f32 are needed.

use std::fs;

use super::{TestDir, reviews};

#[test]
fn a_model_of_8_bit_integers_is_smaller_and_predicts() {
    if !cfg!(feature = "safetensors") {
        return;
    }
    let dir = TestDir::new("int8");
    dir.write("reviews.tsv", &reviews());
    let train = ["train", "--train", "reviews.tsv", "--epochs", "2", "--run", "run", "--quiet"];
    dir.stdout(&[&train[..], &["--set", "model.hidden=32", "--set", "model.embedding=32"]].concat(), "");
    let text = dir.stdout(&["export", "run", "small.ckpt", "--int8"], "");
    assert!(text.contains("written: small.ckpt, ") && text.contains(" % of the model in f32, "), "{text}");
    let stored = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(stored("lstm_0.weight_ih ").ends_with("i8"), "{text}");
    assert!(stored("lstm_0.weight_ih.scale ").ends_with("f32"), "{text}");
    let [whole, small] =
        ["run/best.ckpt", "small.ckpt"].map(|file| fs::read(dir.0.join(file)).unwrap().len());
    assert!(3 * small < 2 * whole, "{small} of {whole} bytes");
    let text = dir.stdout(&["inspect", "small.ckpt"], "");
    assert!(text.contains("weights and tables are 8-bit integers; matrix products in int8"), "{text}");
    let shown = dir.json(&["inspect", "small.ckpt", "--json"], "");
    assert!(shown["precision"].as_str().unwrap().contains("8-bit integers"), "{shown}");
    for model in ["run", "small.ckpt"] {
        let answers = dir.stdout(&["predict", model], "\na good film\n");
        assert!(answers.lines().count() == 2 && answers.starts_with('\n'), "{answers}");
        assert!(dir.stdout(&["eval", model, "reviews.tsv"], "").contains("accuracy"), "{model}");
    }

    dir.stdout(&["export", "run", "whole.safetensors"], "");
    let before = dir.files();
    let refused = |arguments: &[&str], expected: &str| {
        dir.refuses(arguments, &[expected]);
        assert_eq!(dir.files(), before);
    };
    refused(&["export", "small.ckpt", "again.ckpt", "--int8"], "expected a model with weights in f32");
    refused(&["export", "run", "small.ckpt", "--int8"], "expected the name of a new file");
    refused(&["export", "run", "w.safetensors", "--int8"], "`w.ckpt` fits");
    refused(
        &["export", "small.ckpt", "w.safetensors"],
        "checkpoint to export: expected a model with weights in f32",
    );
    let import = ["import", "small.ckpt", "whole.safetensors", "-o", "new.ckpt"];
    refused(&import, "checkpoint to import into: expected a model with weights in f32");
    refused(&["export", "run", "other.ckpt", "--int8", "--rename", "a=b"], "--int8");
    refused(
        &["train", "--from", "small.ckpt", "--train", "reviews.tsv", "--run", "more"],
        "training.from: expected a model with weights in f32",
    );
}
