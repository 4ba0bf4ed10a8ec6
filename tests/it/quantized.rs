//! Models whose weights are 8-bit integers: what is stored, what they predict, and what cannot be quantized.

use unpadded::checkpoint::{Checkpoint, Purpose};
use unpadded::executor::{Executor, Run, Scope, interpret};
use unpadded::layers::{Embedding, Gru, Lstm, init};
use unpadded::ops::Pool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::predict::Predictor;
use unpadded::program::{Append, BlockId};
use unpadded::tensor::{Dense, Storage};
use unpadded::train::Trainer;
use unpadded::{Builder, DType, ErrorKind, Program, Variable, ops};

use crate::hostile_program::damaged;
use crate::models::Random;
use crate::thorough::times;

const WORDS: usize = 400;
const WIDTH: usize = 64;

/// A checkpoint of a program with first values.
fn checkpoint(net: &Builder, outputs: &[(&str, unpadded::Var)]) -> Checkpoint {
    let outputs: Vec<(String, String)> =
        outputs.iter().map(|(name, var)| ((*name).to_owned(), net.name_of(*var))).collect();
    let mut found =
        Checkpoint::of(net.clone().finish().unwrap(), std::collections::BTreeMap::from_iter(outputs));
    let mut scope = Scope::of(&found.program).unwrap();
    for name in scope.names().map(str::to_owned).collect::<Vec<_>>() {
        found.tensors.insert(name.clone(), scope.value(&name).unwrap());
    }
    found
}

/// A tagger and classifier: a table that is looked up and computes logits, an LSTM, a GRU backwards, linear layers.
fn model() -> Checkpoint {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let table = net.parameter("table", DType::F32, &[WORDS, WIDTH], init::normal(0.3));
    let x = words.lookup(table, None, false);
    let states = x.lstm(Lstm::new(WIDTH)) + x.gru(Gru::new(WIDTH).backwards());
    let logits = states.linear(WIDTH).product_transposed(table, None);
    let classes = states.sequence_pool(Pool::Last).linear(3);
    checkpoint(&net, &[("logits", logits), ("classes", classes)])
}

fn batch(lengths: &[usize]) -> Variable {
    let sequence_ids = |sequence: usize, length: usize| {
        (0..length).map(|k| ((sequence * 131 + k * 37) % WORDS) as i64).collect()
    };
    Variable::from_sequences(
        &lengths.iter().enumerate().map(|(i, &n)| sequence_ids(i, n)).collect::<Vec<Vec<i64>>>(),
    )
    .unwrap()
}

fn predictor(checkpoint: &Checkpoint) -> Predictor {
    Predictor::new(checkpoint.clone(), &ops::catalogue()).unwrap()
}

fn predicted(predictor: &Predictor, words: &Variable) -> Vec<Variable> {
    predictor.run(&[("words", words)], &["logits", "classes"]).unwrap()
}

#[test]
fn weights_and_tables_are_codes_and_scales() {
    let found = model().quantize(&ops::catalogue()).unwrap();
    assert_eq!(found.purpose, Purpose::Inference);
    let storage = |name: &str| {
        let value = &found.tensors[name];
        (value.dtype(), value.shape().to_vec())
    };
    assert_eq!(storage("table"), (DType::I8, vec![WORDS, WIDTH]));
    assert_eq!(storage("table.scale"), (DType::F32, vec![WORDS]));
    for (name, columns) in [
        ("lstm_0.weight_ih", 4 * WIDTH),
        ("lstm_0.weight_hh", 4 * WIDTH),
        ("gru_0.weight_ih", 3 * WIDTH),
        ("gru_0.weight_hh", 3 * WIDTH),
        ("linear_0.weight", WIDTH),
    ] {
        assert_eq!(storage(name), (DType::I8, vec![WIDTH, columns]), "{name}");
        assert_eq!(storage(&format!("{name}.scale")), (DType::F32, vec![columns]), "{name}");
    }
    // Three columns are too few, and biases are no weights.
    for name in ["linear_1.weight", "linear_0.bias", "lstm_0.bias"] {
        assert_eq!(storage(name).0, DType::F32, "{name}");
        assert!(!found.tensors.contains_key(&format!("{name}.scale")), "{name}");
    }
    // A number is its code times its scale, rounded to the nearest code.
    let (before, scales) = (model(), found.tensors["lstm_0.weight_hh.scale"].as_dense().unwrap());
    let before = before.tensors["lstm_0.weight_hh"].as_dense().unwrap();
    let codes = found.tensors["lstm_0.weight_hh"].as_dense().unwrap();
    let scales = scales.as_slice::<f32>().unwrap();
    let pairs = before.as_slice::<f32>().unwrap().iter().zip(codes.as_slice::<i8>().unwrap());
    for (index, (&number, &code)) in pairs.enumerate() {
        let scale = scales[index % (4 * WIDTH)];
        assert!(
            (number - f32::from(code) * scale).abs() <= 0.5001 * scale,
            "{number} as {code} times {scale}"
        );
    }
    let [whole, small] = [&model().for_inference(&ops::catalogue()).unwrap(), &found]
        .map(|storage| storage.to_bytes().unwrap().len());
    assert!(small * 10 < whole * 3, "{small} of {whole} bytes");
    let again = Checkpoint::from_bytes(&found.to_bytes().unwrap()).unwrap();
    assert_eq!(again, found);
}

#[test]
fn predictions_are_near_and_have_the_same_bits_everywhere() {
    let (whole, small) = (model(), model().quantize(&ops::catalogue()).unwrap());
    let lengths = [5, 1, 0, 17, 3, 40];
    let words = batch(&lengths);
    let expected = predicted(&predictor(&whole), &words);
    let one = predicted(&predictor(&small).threads(1), &words);
    for (expected, found) in expected.iter().zip(&one) {
        let [expected, found] = [expected, found].map(|value| value.as_slice::<f32>().unwrap());
        let largest = expected.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        let off = expected.iter().zip(found).fold(0.0f32, |a, (x, y)| a.max((x - y).abs()));
        assert!(off > 0.0 && off < 0.05 * largest, "off by {off} of {largest}");
    }
    for threads in [2, 3, 7] {
        assert_eq!(predicted(&predictor(&small).threads(threads), &words), one, "{threads} threads");
    }
    let small_predictor = predictor(&small);
    let rows = |value: &Variable, from: usize, count: usize| -> Vec<f32> {
        let width = value.shape()[1];
        value.as_slice::<f32>().unwrap()[from * width..][..count * width].to_vec()
    };
    let mut from = 0;
    for (i, &length) in lengths.iter().enumerate() {
        let ids = words.as_slice::<i64>().unwrap()[from..from + length].to_vec();
        let alone = predicted(&small_predictor, &Variable::from_sequences(&[ids]).unwrap());
        assert_eq!(rows(&alone[0], 0, length), rows(&one[0], from, length), "sequence {i} alone");
        assert_eq!(rows(&alone[1], 0, 1), rows(&one[1], i, 1), "sequence {i} alone");
        from += length;
    }
    let mut scope = Scope::new();
    small.clone().restore(&mut scope).unwrap();
    let program = &small.program;
    let feeds = [(program.find("words").unwrap(), &words)];
    let values = interpret(program, &ops::catalogue(), &mut scope, &Run::infer(&feeds)).unwrap();
    for (name, found) in ["logits", "classes"].iter().zip(&one) {
        let id = program.find(&small.outputs[*name]).unwrap();
        let [interpreted, found] = [&values[&id], found].map(|value| value.as_slice::<f32>().unwrap());
        assert_eq!(interpreted, found, "{name}");
    }
}

#[track_caller]
fn refused(checkpoint: Checkpoint, expected: &str) {
    let error = checkpoint.quantize(&ops::catalogue()).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert!(error.to_string().contains("tests/it/quantized.rs:"), "{error}");
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut broken = model();
        let mut numbers =
            broken.tensors["lstm_0.weight_hh"].as_dense().unwrap().as_slice::<f32>().unwrap().to_vec();
        numbers[7] = bad;
        let value = Dense::from_vec(&[WIDTH, 4 * WIDTH], numbers).unwrap();
        broken.tensors.insert("lstm_0.weight_hh".to_owned(), Storage::Dense(value));
        refused(broken, "variable `lstm_0.weight_hh`: weight to quantize: expected finite numbers, got");
    }
    refused(
        model().quantize(&ops::catalogue()).unwrap(),
        "checkpoint to quantize: expected a model with weights in f32, such as the model that was quantized, got weights of 8-bit integers",
    );
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 0);
    let y = x.linear(2);
    refused(checkpoint(&net, &[("y", y)]), "with at least 16 rows and columns, got none");
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[32], 0);
    let y = x.linear(32);
    refused(checkpoint(&net, &[("y", y)]), "in f32, with at least 16 rows and columns, got none");
    let mut none = model();
    none.outputs.clear();
    refused(none, "outputs of the checkpoint: expected at least one, got none");
}

/// A parameter that another operator reads, that is an output, or that is row-sparse, stays what it is.
#[test]
fn parameters_with_another_use_stay_f32() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let rows = words.embedding(Embedding::new(32, 16).row_sparse());
    let [shared, shown, coded] = ["shared", "shown", "coded"]
        .map(|name| net.parameter(name, DType::F32, &[16, 16], init::normal(1.0)));
    let y = rows.product(shared, None).product(shown, None).product(coded, None);
    let y = y + shared.sum();
    let found = checkpoint(&net, &[("y", y), ("shown", shown)]).quantize(&ops::catalogue()).unwrap();
    let dtypes = found.tensors.iter().map(|(name, value)| (name.as_str(), value.dtype()));
    let expected = [
        ("coded", DType::I8),
        ("coded.scale", DType::F32),
        ("embedding_0.weight", DType::F32),
        ("shared", DType::F32),
        ("shown", DType::F32),
    ];
    assert_eq!(dtypes.collect::<Vec<_>>(), expected);
}

/// A quantized model is no start of a training, has no gradients, and is not written as safetensors, which are for f32.
#[test]
fn it_is_only_for_prediction() {
    let small = model().quantize(&ops::catalogue()).unwrap();
    let says = |error: unpadded::Error, expected: &str| {
        assert_eq!(error.kind(), ErrorKind::Program);
        assert!(error.to_string().contains(expected), "{error}");
    };
    let error = unpadded::formats::safetensors::export(
        &small,
        &ops::catalogue(),
        &Default::default(),
        "none.safetensors",
    )
    .unwrap_err();
    says(error, "such as the model that was quantized, got weights of 8-bit integers");
    assert!(!std::path::Path::new("none.safetensors").exists());

    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[WIDTH], 0);
    let loss = x.linear(2).sum();
    let mut trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap();
    says(
        trainer.load_fitting_parameters(&small).unwrap_err(),
        "checkpoint to start from: expected a model with weights in f32",
    );

    let mut program = small.program.clone();
    let logits = program.find(&small.outputs["logits"]).unwrap();
    let table = program.find("lstm_0.bias").unwrap();
    assert!(program.var(table).trainable);
    let mut output = logits;
    for kind in ["square", "mean"] {
        let request = with!(Append::forward(kind), inputs: vec![("x", vec![output])]);
        output = program.append(&ops::catalogue(), BlockId(0), request).unwrap()[0][0];
    }
    says(
        Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), output).unwrap_err(),
        "which are only for prediction",
    );
}

/// A damaged program of a quantized model predicts, or is refused.
#[test]
fn a_damaged_program_never_panics() {
    let small = model().quantize(&ops::catalogue()).unwrap();
    let body = small.program.to_section().unwrap();
    let (words, mut random) = (batch(&[3, 0, 2]), Random(5));
    let (mut loaded, mut ran) = (0, 0);
    for round in 0..times(400) {
        let Ok(program) = Program::from_section(&damaged(body.clone(), &mut random)) else { continue };
        loaded += 1;
        let predict = || {
            let outputs = ["logits", "classes"].map(|name| program.find(&small.outputs[name]));
            let outputs: Vec<_> = outputs.into_iter().flatten().collect();
            let feeds: Vec<_> = program.find("words").into_iter().map(|id| (id, &words)).collect();
            let (mut scope, mut checkpoint) = (Scope::new(), small.clone());
            checkpoint.program = program.clone();
            if checkpoint.restore(&mut scope).is_err() {
                return false;
            }
            Executor::new(&program, &ops::catalogue(), &outputs, 2)
                .is_ok_and(|mut executor| executor.run(&mut scope, &Run::infer(&feeds)).is_ok())
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(predict));
        ran += usize::from(done.unwrap_or_else(|_| panic!("round {round} panicked")));
    }
    assert!(loaded > 20 && ran > 0 && ran < loaded, "{ran} of {loaded} ran");
}

/// Scales that are missing, of another shape or not numbers are errors of the file or of the prediction.
#[test]
fn scales_that_do_not_fit_are_refused() {
    let with = |scale: Option<Vec<f32>>| {
        let mut small = model().quantize(&ops::catalogue()).unwrap();
        small.tensors.remove("table.scale");
        if let Some(scale) = scale {
            let value = Dense::from_vec(&[scale.len()], scale).unwrap();
            small.tensors.insert("table.scale".to_owned(), Storage::Dense(value));
        }
        small
    };
    for odd in [with(None), with(Some(vec![1.0; WORDS - 1]))] {
        let error = odd.to_bytes().unwrap_err().to_string();
        assert!(error.contains("table.scale"), "{error}");
    }
    let broken = with(Some(vec![f32::NAN; WORDS]));
    let error = Predictor::new(broken, &ops::catalogue()).err().unwrap().to_string();
    assert!(
        error
            .starts_with("variable `table.scale`: value of the checkpoint: expected finite numbers, got NaN"),
        "{error}"
    );
}
