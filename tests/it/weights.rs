//! Weights in safetensors files: a model that PyTorch trained gives the same outputs here (`fixtures/make_torch_models.py`), and
//! is exported back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use unpadded::checkpoint::{Checkpoint, Position};
use unpadded::executor::Scope;
use unpadded::formats::safetensors::{Names, export, import};
use unpadded::layers::{Activation, Embedding, Gru, Linear, Lstm, RecurrentLayer, Reset, Rnn, Stacked};
use unpadded::predict::Predictor;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, ErrorKind, Lod, Program, Var, Variable, ops};

use crate::fixture::Fixture;
use crate::models::Random;
use crate::store::says;
use crate::thorough::times;

fn fixture(kind: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    folder.join(format!("torch_{kind}.safetensors"))
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-weights-{}-{name}", std::process::id()))
}

/// The model of the fixtures, without weights.
fn tagger<L: RecurrentLayer>(layer: L, dtype: DType) -> Checkpoint {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = words.embedding(Embedding::new(7, 3).dtype(dtype));
    let logits = x.stacked(Stacked::new(layer, 2).bidirectional().dropout(0.25)).linear(3);
    let outputs = [("logits".to_owned(), net.name_of(logits))];
    Checkpoint::of(net.finish().unwrap(), outputs)
}

/// Returns PyTorch's names of the weights of a layer.
fn names(layer: &str) -> Names {
    let layer = format!("{layer}_0");
    Names::new().rename("embedding_0", "words").rename(&layer, "rnn").rename("linear_0", "out")
}

/// Returns the model with the initial values of its program.
fn started(mut model: Checkpoint) -> Checkpoint {
    let mut scope = Scope::of(&model.program).unwrap();
    let names: Vec<String> = scope.names().map(str::to_owned).collect();
    model.tensors = names.into_iter().map(|name| (name.clone(), scope.value(&name).unwrap())).collect();
    model
}

fn logits(model: &Checkpoint) -> Vec<f64> {
    let case = Fixture::load("torch_logits");
    let lengths: Vec<usize> = case.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
    let words =
        Variable::sequences(Dense::from(case.array::<i64>("words")), Lod::from_lengths1(&lengths).unwrap());
    let predictor = Predictor::new(model.clone(), &ops::catalogue()).unwrap().threads(1);
    let got = predictor.run(&[("words", &words.unwrap())], &["logits"]).unwrap();
    got[0].storage().as_dense().unwrap().cast(DType::F64).as_slice::<f64>().unwrap().to_vec()
}

/// Returns the largest difference of two lists.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// The tensors of a file.
fn tensors(file: &Path) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let contents = |tensor: TensorView<'_>| (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec());
    file.tensors().into_iter().map(|(name, tensor)| (name, contents(tensor))).collect()
}

/// A file of tensors: name, dtype, shape and bytes.
fn bytes(tensors: &BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>) -> Vec<u8> {
    let view = |(name, (dtype, shape, data)): (&String, &'_ (Dtype, Vec<usize>, Vec<u8>))| {
        (name.clone(), *dtype, shape.clone(), data.clone())
    };
    let all: Vec<_> = tensors.iter().map(view).collect();
    let views = all.iter().map(|(name, dtype, shape, data)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// A model of PyTorch's, in and out again.
fn round<L: RecurrentLayer>(kind: &str, name: &str, layer: L) {
    let expected: Vec<f64> = Fixture::load("torch_logits")
        .array::<f32>(&format!("logits.{kind}"))
        .iter()
        .map(|&x| f64::from(x))
        .collect();
    let mut model = tagger(layer.clone(), DType::F32);
    let read = import(fixture(kind), &names(name), &mut model).unwrap();
    assert_eq!(read.parameters.len(), model.tensors.len());
    assert!(read.converted.is_empty() && read.ignored.is_empty() && read.left_out.is_empty());
    let off = apart(&logits(&model), &expected);
    println!("{kind}: logits differ by at most {off:e}");
    assert!(off < 1e-5, "{kind}: {off}");

    // Out again: each tensor has the bits that it had, but for biases that PyTorch has twice.
    let out = path(kind);
    let written = export(&model, &ops::catalogue(), &names(name), &out).unwrap();
    assert!(written.as_they_are.is_empty(), "{written:?}");
    let (before, after) = (tensors(&fixture(kind)), tensors(&out));
    assert!(before.keys().eq(after.keys()) && before.keys().eq(&written.tensors));
    for (tensor, value) in &before {
        if kind == "gru" || !tensor.contains("bias_") {
            assert_eq!(value, &after[tensor], "{kind} {tensor}");
        } else if tensor.contains("bias_ih") {
            let other = tensor.replace("bias_ih", "bias_hh");
            let both = floats(&value.2).into_iter().zip(floats(&before[&other].2));
            let sum: Vec<f32> = both.map(|(a, b)| (f64::from(a) + f64::from(b)) as f32).collect();
            assert_eq!(floats(&after[tensor].2), sum);
            assert!(floats(&after[&other].2).iter().all(|&x| x == 0.0));
        }
    }
    let mut again = tagger(layer.clone(), DType::F32);
    import(&out, &names(name), &mut again).unwrap();
    assert_eq!(again, model);
    let first = fs::read(&out).unwrap();
    export(&again, &ops::catalogue(), &names(name), &out).unwrap();
    assert_eq!(fs::read(&out).unwrap(), first, "equal weights are equal bytes");

    // The same for inference, and in f64.
    let mut small = started(tagger(layer.clone(), DType::F32)).for_inference(&ops::catalogue()).unwrap();
    import(&out, &names(name), &mut small).unwrap();
    assert_eq!(logits(&small), logits(&model));
    let mut wide = tagger(layer, DType::F64);
    let read = import(&out, &names(name), &mut wide).unwrap();
    assert_eq!(read.converted, read.parameters);
    assert!(apart(&logits(&wide), &expected) < 1e-5);
    fs::remove_file(out).unwrap();
}

#[test]
fn models_of_pytorch_say_the_same_here_and_go_back() {
    round("lstm", "lstm", Lstm::new(4));
    round("gru", "gru", Gru::new(4));
    round("rnn", "rnn", Rnn::new(4));
    round("projected", "lstm", Lstm::new(4).projection(2));
}

/// Models that never were PyTorch's, for `fixtures/make_torch_models.py` to hold PyTorch to.
#[test]
fn back_to_pytorch() {
    let folder = std::env::var("UNPADDED_TORCH").map(PathBuf::from);
    let dir = folder.clone().unwrap_or_else(|_| path("back"));
    fs::create_dir_all(&dir).unwrap();
    let write = |kind: &str, layer: &str, mut model: Checkpoint| {
        let mut random = Random(3);
        for value in model.tensors.values_mut() {
            let numbers = value.as_dense_mut().unwrap().as_mut_slice::<f32>().unwrap();
            numbers.iter_mut().for_each(|x| *x = random.below(2001) as f32 / 1000.0 - 1.0);
        }
        let file = dir.join(format!("{kind}.safetensors"));
        export(&model, &ops::catalogue(), &names(layer), &file).unwrap();
        let text: Vec<f32> = logits(&model).into_iter().map(|x| x as f32).collect();
        let data = text.iter().flat_map(|x| x.to_le_bytes()).collect();
        let text = [("logits".to_owned(), (Dtype::F32, vec![text.len()], data))].into();
        fs::write(dir.join(format!("{kind}.logits.safetensors")), bytes(&text)).unwrap();
    };
    write("lstm", "lstm", started(tagger(Lstm::new(4), DType::F32)));
    write("gru", "gru", started(tagger(Gru::new(4), DType::F32)));
    write("rnn", "rnn", started(tagger(Rnn::new(4), DType::F32)));
    write("projected", "lstm", started(tagger(Lstm::new(4).projection(2), DType::F32)));
    if folder.is_err() {
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn all_that_differs_is_said_at_once_and_nothing_is_changed() {
    let (file, mut other) = (path("unlike"), tensors(&fixture("lstm")));
    other.remove("words.weight");
    other.remove("rnn.bias_hh_l1");
    other.insert("head.bias".into(), (Dtype::F32, vec![2], vec![0; 8]));
    other.insert("rnn.weight_hh_l0".into(), (Dtype::F32, vec![4, 16], vec![0; 256]));
    other.insert("out.bias".into(), (Dtype::I32, vec![3], vec![0; 12]));
    other.insert("out.weight".into(), (Dtype::F8_E4M3, vec![3, 8], vec![0; 24]));
    fs::write(&file, bytes(&other)).unwrap();
    let mut model = started(tagger(Lstm::new(4), DType::F32));
    let before = model.clone();
    let error = import(&file, &names("lstm"), &mut model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    let expected = "missing: words.weight (f32[7, 3]), rnn.bias_hh_l1 (f32[16]); unexpected: head.bias ([2]); of another shape: \
                    rnn.weight_hh_l0 ([16, 4] in the model, [4, 16] in the file); of another dtype: ";
    let dtypes = [
        "out.weight (f32 in the model, F8_E4M3 in the file)",
        "out.bias (f32 in the model, i32 in the file)",
    ];
    assert!(text.contains(expected), "{text}");
    assert!(dtypes.iter().all(|dtype| text.contains(dtype)), "{text}");
    assert_eq!(model, before);

    // A number that is none, in the last tensor that is read: nothing either.
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut damaged = tensors(&fixture("lstm"));
        damaged.get_mut("out.bias").unwrap().2[4..8].copy_from_slice(&value.to_le_bytes());
        fs::write(&file, bytes(&damaged)).unwrap();
        says(import(&file, &names("lstm"), &mut model), &["`out.bias`", shown]);
        assert_eq!(model, before);
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn floats_of_any_width_are_read() {
    let file = path("widths");
    let exact = tensors(&fixture("rnn"));
    let mut model = tagger(Rnn::new(4), DType::F32);
    import(fixture("rnn"), &names("rnn"), &mut model).unwrap();
    let expected = logits(&model);
    let to = |dtype: Dtype, x: f32| match dtype {
        Dtype::F64 => f64::from(x).to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        _ => half::bf16::from_f32(x).to_le_bytes().to_vec(),
    };
    for (dtype, most) in [(Dtype::F64, 0.0), (Dtype::F16, 2e-3), (Dtype::BF16, 2e-2)] {
        let mut other = exact.clone();
        for value in other.values_mut() {
            value.2 = floats(&value.2).into_iter().flat_map(|x| to(dtype, x)).collect();
            value.0 = dtype;
        }
        fs::write(&file, bytes(&other)).unwrap();
        let read = import(&file, &names("rnn"), &mut model).unwrap();
        assert_eq!(read.converted, read.parameters);
        let off = apart(&logits(&model), &expected);
        assert!(off <= most, "{dtype:?}: {off}");
    }
    // A number that f64 holds and f32 does not.
    let mut other = exact;
    other.insert(
        "out.bias".into(),
        (Dtype::F64, vec![3], [1e300f64; 3].iter().flat_map(|x| x.to_le_bytes()).collect()),
    );
    fs::write(&file, bytes(&other)).unwrap();
    says(import(&file, &names("rnn"), &mut model), &["`linear_0.bias`", "as f32"]);
    fs::remove_file(file).unwrap();
}

/// Returns a file with this head and `numbers` bytes of numbers.
fn headed(head: &str, numbers: usize) -> Vec<u8> {
    [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &vec![0; numbers]].concat()
}

#[test]
fn damaged_files_are_refused_in_words() {
    let (file, whole) = (path("damaged"), fs::read(fixture("rnn")).unwrap());
    let mut model = started(tagger(Rnn::new(4), DType::F32));
    let before = model.clone();
    let mut text = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = import(&file, &names("rnn"), &mut model).unwrap_err();
        assert_eq!(model, before);
        error.to_string()
    };
    for length in (0..whole.len()).step_by(37).chain([7, 8, 9, whole.len() - 1]) {
        let text = text(&whole[..length]);
        assert!(text.contains("is the file a complete safetensors file?"), "{length}: {text}");
    }
    let tensor = |name: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let all = |tensors: &[String]| format!("{{{}}}", tensors.join(","));
    let cases = [
        (headed("", 0), "as JSON"),
        (headed("[]", 0), "as JSON"),
        (headed(&"[".repeat(100_000), 0), "as JSON"),
        (headed(r#"{"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#, 4), "as JSON"),
        (headed(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4), "as JSON"),
        (u64::MAX.to_le_bytes().to_vec(), "length of the head: expected at most 0 bytes"),
        ([&(1u64 << 40).to_le_bytes()[..], &[b' '; 64]].concat(), "at most 64 bytes"),
        (headed(&all(&[tensor("a", "[1]", 0, 4), tensor("a", "[1]", 4, 8)]), 8), "`a` twice"),
        (headed(&all(&[tensor("a", "[1]", 0, 4), tensor("a", "[1]", 0, 4)]), 4), "`a` twice"),
        (
            headed(&all(&[tensor("a", "[1]", 0, 4), tensor("b", "[1]", 2, 6)]), 6),
            "a gap or an overlap before `b`",
        ),
        (headed(&all(&[tensor("a", "[1]", 4, 8)]), 8), "a gap or an overlap before `a`"),
        (headed(&all(&[tensor("a", "[2]", 0, 4)]), 4), "another number of bytes"),
        (
            headed(&all(&[tensor("a", "[4294967296,4294967296,4]", 0, 4)]), 4),
            "more numbers than can be counted",
        ),
        (headed(&all(&[tensor("a", "[1152921504606846976]", 0, 1 << 62)]), 4), "numbers"),
        (headed(&all(&[tensor("a", "[1]", 0, 4)]), 5), "4 bytes, as its head says"),
    ];
    for (bytes, expected) in cases {
        let text = text(&bytes);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let mut random = Random(11);
    for _ in 0..times(200) {
        let mut bytes = whole.clone();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
        for _ in 0..1 + random.below(3) {
            let at = random.below(length);
            bytes[at] = random.below(256) as u8;
        }
        fs::write(&file, bytes).unwrap();
        let mut model = before.clone();
        if import(&file, &names("rnn"), &mut model).is_err() {
            assert_eq!(model, before);
        }
    }
    fs::remove_file(&file).unwrap();
    for nowhere in [file, std::env::temp_dir()] {
        let error = import(nowhere, &names("rnn"), &mut model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }
}

fn program(build: impl Fn(&Builder, Var)) -> Program {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    build(&net, x);
    net.finish().unwrap()
}

#[test]
fn layers_are_modules() {
    let first = |names: Names, program: &Program, parameter: &str| {
        names.table(program).unwrap()[parameter][0].clone()
    };
    let plain = |program: &Program, parameter: &str| first(Names::new(), program, parameter);

    // Stacked layers of one size are one module; another size begins another module.
    let three = program(|_, x| {
        let _ = x.lstm(4).dropout(0.5).lstm(4).lstm(5);
    });
    assert_eq!(plain(&three, "lstm_1.weight_ih"), "lstm_0.weight_ih_l1");
    assert_eq!(plain(&three, "lstm_2.weight_ih"), "lstm_2.weight_ih_l0");
    let names = Names::new().rename("lstm_1", "");
    assert_eq!(first(names, &three, "lstm_1.weight_ih"), "weight_ih_l0");
    // Another cell, other parameters, or an operator in between begins another module, too.
    let mixed = program(|_, x| {
        let _ = x.gru(4).rnn(4).rnn(Rnn::new(4).without_bias()).tanh().rnn(Rnn::new(4).without_bias());
    });
    for layer in ["gru_0", "rnn_0", "rnn_1", "rnn_2"] {
        assert_eq!(plain(&mixed, &format!("{layer}.weight_hh")), format!("{layer}.weight_hh_l0"));
    }
    // Two over the same one: the first one is its next layer.
    let forked = program(|_, x| {
        let below = x.lstm(4);
        below.lstm(4);
        below.lstm(4);
    });
    assert_eq!(plain(&forked, "lstm_1.bias"), "lstm_0.bias_ih_l1");
    assert_eq!(plain(&forked, "lstm_2.bias"), "lstm_2.bias_ih_l0");
    // Both directions, though only the last states are read of them; a residual connection ends the module.
    let last = program(|net, x| {
        let _ = net.bidirectional_states(x, Gru::new(4));
    });
    assert_eq!(plain(&last, "gru_1.bias_hh"), "gru_0.bias_hh_l0_reverse");
    let residual = program(|_, x| {
        let _ = x.stacked(Stacked::new(Lstm::new(4), 3).residual());
    });
    assert_eq!(plain(&residual, "lstm_1.bias"), "lstm_0.bias_ih_l1");
    assert_eq!(plain(&residual, "lstm_2.bias"), "lstm_2.bias_ih_l0");
    // A scope is exported too, and is renamed with all names in it.
    let scoped = program(|net, x| {
        let _ = net.scope("encoder", |_| x.lstm(4).linear(2));
    });
    assert_eq!(plain(&scoped, "encoder.linear_0.weight"), "encoder.linear_0.weight");
    let names = Names::new().rename("encoder", "model.text").rename("encoder.lstm_0", "rnn");
    assert_eq!(first(names.clone(), &scoped, "encoder.linear_0.weight"), "model.text.linear_0.weight");
    assert_eq!(first(names, &scoped, "encoder.lstm_0.weight_ih"), "rnn.weight_ih_l0");
    assert_eq!(
        first(Names::new().rename("", "model"), &scoped, "encoder.linear_0.bias"),
        "model.encoder.linear_0.bias"
    );

    // Variants that PyTorch does not have keep their names.
    for lstm in [Lstm::new(4).peepholes(), Lstm::new(4).cell_clip(1.0)] {
        let program = program(|_, x| {
            let _ = x.lstm(lstm.clone());
        });
        assert_eq!(plain(&program, "lstm_0.weight_ih"), "lstm_0.weight_ih");
    }
    let own = program(|_, x| {
        x.gru(Gru::new(4).reset(Reset::Before));
        x.gru(Gru::new(4).update(ops::UpdateGate::Takes));
        x.rnn(Rnn::new(4).activation(Activation::Sigmoid));
        x.mgu(4);
    });
    for layer in ["gru_0", "gru_1", "rnn_0", "mgu_0"] {
        let name = format!("{layer}.weight_ih");
        assert_eq!(plain(&own, &name), name);
    }

    // Names that fit nothing, or two parameters.
    let wrong = |names: Names| names.table(&scoped).unwrap_err().to_string();
    let text = wrong(Names::new().rename("lstm_0", "rnn"));
    assert!(text.contains("`encoder.lstm_0.weight_ih`") && text.contains("got `lstm_0`"), "{text}");
    assert!(wrong(Names::new().without("encoder.lstm")).contains("got `encoder.lstm`"));
    let text = wrong(Names::new().rename("encoder.linear_0.bias", "encoder.linear_0.weight"));
    assert!(text.contains("`encoder.linear_0.weight` for"), "{text}");
    let sparse = Builder::new();
    sparse.feed("words", DType::I64, &[], 1).embedding(Embedding::new(1 << 40, 2).row_sparse());
    let sparse = sparse.finish().unwrap();
    assert!(Names::new().table(&sparse).unwrap_err().to_string().contains("`embedding_0.weight`"));
    assert!(Names::new().without("embedding_0").table(&sparse).unwrap().is_empty());
}

#[test]
fn a_tied_table_is_there_once_and_matrices_lie_as_pytorch_has_them() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let embedding = net.layer(Embedding::new(5, 4));
    let h = embedding.of(words).linear(Linear::new(4).named("middle")).norm(unpadded::layers::Norm::layer());
    h.linear(Linear::tied(&embedding));
    let model = started(Checkpoint::of(net.finish().unwrap(), []));
    let file = path("tied");
    let written = export(&model, &ops::catalogue(), &Names::new(), &file).unwrap();
    let expected = [
        "embedding_0.weight",
        "linear_0.bias",
        "middle.bias",
        "middle.weight",
        "norm_0.bias",
        "norm_0.weight",
    ];
    assert_eq!(written.tensors, expected);
    let ours = model.tensors["middle.weight"].as_dense().unwrap().view::<f32>().unwrap().to_owned();
    let turned: Vec<f32> = ours.t().iter().copied().collect();
    assert_eq!(floats(&tensors(&file)["middle.weight"].2), turned);
    let mut other = Checkpoint::of(model.program.clone(), []);
    import(&file, &Names::new(), &mut other).unwrap();
    assert_eq!(other, model);
    fs::remove_file(file).unwrap();
}

#[test]
fn a_training_starts_from_a_file_and_the_best_epoch_is_written() {
    let file = path("training");
    let mut saved = crate::trained::checkpoint(3);
    for value in saved.best.values_mut() {
        if let Ok(numbers) = value.as_dense_mut().and_then(|v| v.as_mut_slice::<f32>()) {
            numbers.fill(0.25);
        }
    }
    assert!(!saved.best.is_empty());
    export(&saved, &ops::catalogue(), &Names::new(), &file).unwrap();
    let all = tensors(&file);
    assert!(floats(&all["linear_0.weight"].2).iter().all(|&x| x == 0.25));
    assert!(all.keys().all(|name| !name.contains("adam")), "{:?}", all.keys());

    // Not in the middle of a training, whose optimizer remembers other values.
    says(import(&file, &Names::new(), &mut saved.clone()), &["`Checkpoint::for_inference`"]);
    import(&file, &Names::new(), &mut saved.clone().for_inference(&ops::catalogue()).unwrap()).unwrap();
    let mut fresh = with!(saved, best: BTreeMap::new(), position: Position::default());
    fresh.tensors.remove("linear_0.bias");
    import(&file, &Names::new().without("lstm_0").ignore("lstm_0"), &mut fresh).unwrap();
    assert_eq!(fresh.tensors["linear_0.bias"].as_dense().unwrap().as_slice::<f32>().unwrap(), [0.25; 2]);

    let mut trainer = crate::trainer::trainer();
    let written = path("trainer");
    let started = Checkpoint::of(trainer.program().clone(), []);
    let mut scope = Scope::of(&started.program).unwrap();
    let mut other = started.clone();
    for name in scope.names().map(str::to_owned).collect::<Vec<_>>() {
        let mut value = scope.value(&name).unwrap();
        if let Ok(numbers) = value.as_dense_mut().and_then(|v| v.as_mut_slice::<f32>()) {
            numbers.iter_mut().for_each(|x| *x += 1.0);
        }
        other.tensors.insert(name, value);
    }
    export(&other, &ops::catalogue(), &Names::new().rename("embedding_0", "words"), &written).unwrap();
    says(
        trainer.load_safetensors(&written, &Names::new()),
        &["missing: embedding_0.weight", "unexpected: words.weight"],
    );
    let read = trainer.load_safetensors(&written, &Names::new().rename("embedding_0", "words")).unwrap();
    for name in &read.parameters {
        assert_eq!(trainer.scope().value(name).unwrap(), other.tensors[name], "{name}");
    }
    fs::remove_file(written).unwrap();
    fs::remove_file(file).unwrap();
}

#[test]
fn nothing_is_written_that_does_not_fit() {
    let (file, mut model) = (path("kept"), started(tagger(Rnn::new(4), DType::F32)));
    fs::write(&file, "before").unwrap();
    model.tensors.insert("linear_0.bias".into(), Dense::zeros(DType::F32, &[4]).unwrap().into());
    says(export(&model, &ops::catalogue(), &names("rnn"), &file), &["`linear_0.bias`", "f32[4]"]);
    model.tensors.remove("linear_0.bias");
    assert!(
        export(&model, &ops::catalogue(), &names("rnn"), &file)
            .unwrap_err()
            .to_string()
            .contains("`linear_0.bias`")
    );
    assert_eq!(fs::read(&file).unwrap(), b"before");
    fs::remove_file(file).unwrap();
    assert!(
        export(
            &started(tagger(Rnn::new(4), DType::F32)),
            &ops::catalogue(),
            &names("rnn"),
            "no such folder/x"
        )
        .is_err()
    );
}
