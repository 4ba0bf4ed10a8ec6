//! The programs of the page `crates/recipes/src/guide/how_do_i.md`, whole: its second half, from other frameworks on.

use super::{FirstModel, first_model, labelled};

#[test]
fn export_to_pytorch() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, layers::Embedding, optimizer::Adam, ops::Pool, train::Trainer};
    let model = |seed: u64, classes: usize| {
        let net = Builder::new().seed(seed);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let logits = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(Pool::Last).linear(classes);
        let loss = logits.cross_entropy(label).mean();
        (net, logits, loss)
    };
    let (net, logits, loss) = model(1, 2);
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits);
    let [checkpoint, path] = ["ckpt", "safetensors"]
        .map(|ending| std::env::temp_dir().join(format!("unpadded-guide-export-{}.{ending}", std::process::id())));
    trainer.save(&checkpoint)?;
    use unpadded::checkpoint::Checkpoint;
    use unpadded::{formats::safetensors::{self, Names}, ops};
    let (from, to) = ("tagger.ckpt", "tagger.safetensors");
    let (from, to) = (&checkpoint, &path);
    let model = Checkpoint::load(from)?.for_inference(&ops::catalogue())?;
    let names = Names::new().rename("embedding_0", "words").rename("lstm_0", "encoder").rename("linear_0", "out");
    let written = safetensors::export(&model, &ops::catalogue(), &names, to)?;
    assert!(written.tensors.contains(&"encoder.weight_ih_l0".to_owned()));
    [from, to].map(std::fs::remove_file).into_iter().collect::<Result<(), _>>()?;
    Ok(())
}

#[test]
fn quantize_a_model_to_int8() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, optimizer::Adam, ops::{self, Pool}};
    use unpadded::{predict::Predictor, train::{Progress, Trainer, Until}};
    let net = Builder::new().seed(1);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let logits = words.embedding(Embedding::new(20, 16)).lstm(16).sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-2))?.output("logits", logits).progress(Progress::Quiet);
    trainer.fit(&data, &data, Until::Epochs(1))?;
    let model = trainer.for_inference()?;
    let small = model.clone().quantize(&ops::catalogue())?;
    let [whole, quantized] = [&model, &small].map(|model| Predictor::new(model.clone(), &ops::catalogue()));
    let [scores, scores_of_small] = [whole?.evaluate(&data)?, quantized?.evaluate(&data)?];
    assert!((scores.loss() - scores_of_small.loss()).abs() < 0.01);
    assert!(small.to_bytes()?.len() < model.to_bytes()?.len());
    Ok(())
}

#[test]
fn import_from_pytorch() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    use unpadded::{formats::safetensors, optimizer::Adam, train::{Progress, Trainer, Until}};
    let model = |seed: u64, classes: usize| {
        let net = Builder::new().seed(seed);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let logits = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(Pool::Last).linear(classes);
        let loss = logits.cross_entropy(label).mean();
        (net, logits, loss)
    };
    let (net, logits, loss) = model(9, 5);
    let written = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits).for_inference()?;
    let (net, _, loss) = model(1, 2);
    use unpadded::formats::safetensors::Names;
    let path = "encoder.safetensors";
    let path = &std::env::temp_dir().join(format!("unpadded-guide-import-{}.safetensors", std::process::id()));
    let names = Names::new().rename("lstm_0", "encoder.rnn").rename("linear_0", "head");
    safetensors::export(&written, &unpadded::ops::catalogue(), &names, path)?;
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    trainer = trainer.progress(Progress::Quiet);
    // `without` leaves a layer as it started, `ignore` leaves out what only the file has.
    let names = Names::new().rename("lstm_0", "encoder.rnn").without("linear_0").ignore("head");
    let imported = trainer.load_safetensors(path, &names)?;
    assert_eq!(imported.left_out, ["linear_0.bias", "linear_0.weight"]);
    std::fs::remove_file(path)?;
    let before = trainer.evaluate(&data)?.loss();
    assert!(trainer.fit(&data, &data, Until::Epochs(2))?.last.loss() < before);
    Ok(())
}

#[test]
fn fine_tune_under_a_new_last_layer() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    use unpadded::{optimizer::Adam, train::{Progress, Trainer, Until}};
    let model = |seed: u64, classes: usize| {
        let net = Builder::new().seed(seed);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let logits = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(Pool::Last).linear(classes);
        let loss = logits.cross_entropy(label).mean();
        (net, logits, loss)
    };
    let path = &std::env::temp_dir().join(format!("unpadded-guide-tune-{}.ckpt", std::process::id()));
    let (net, logits, loss) = model(9, 5);
    Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits).save(path)?;
    let (net, _, loss) = model(1, 2);
    use unpadded::checkpoint::Checkpoint;
    let path = "reviews.ckpt"; // with 5 classes
    let path = &std::env::temp_dir().join(format!("unpadded-guide-tune-{}.ckpt", std::process::id()));
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-4).lazy())?;
    trainer = trainer.progress(Progress::Quiet);
    let found = trainer.load_fitting_parameters(&Checkpoint::load(path)?)?;
    println!("{found}"); // 4 loaded; of another shape: linear_0.bias (f32[2] in the model, f32[5] in the checkpoint), …
    assert!(found.to_string().contains("linear_0.bias (f32[2] in the model, f32[5] in the checkpoint)"), "{found}");
    std::fs::remove_file(path)?;
    assert_eq!((found.loaded.len(), found.unlike.len()), (4, 2));
    let before = trainer.evaluate(&data)?.loss();
    assert!(trainer.fit(&data, &data, Until::Epochs(2))?.last.loss() < before);
    Ok(())
}

#[test]
fn profile_a_slow_training() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::{optimizer::Adam, train::{Progress, Trainer, Until}};
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    trainer = trainer.progress(Progress::Quiet);
    trainer.start_profile()?;
    trainer.fit(&data, &data, Until::Epochs(1))?;
    if let Some(profile) = trainer.take_profile() {
        println!("{profile}"); // time of each operator, longest first, and what bounds it
        let trace = profile.chrome_trace(); // for about:tracing
      assert!(trace.contains("lstm_cell"));
    }
    Ok(())
}

#[test]
fn write_a_layer_of_my_own() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::{Builder, DType, Lod, Var, Variable, ndarray::Array2};
    #[track_caller]
    fn feed_forward(net: &Builder, x: Var, width: usize) -> Var {
        net.part("feed_forward", |_| {
            let columns = 16;
            x + x.linear(width).gelu().linear(columns)
        })
    }
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[16], 1);
    let y = feed_forward(&net, x, 64);
    let (registry, program) = (net.registry(), net.finish()?);
    assert!(program.find("feed_forward_0.linear_0.weight").is_some());

    let rows = Variable::sequences(Array2::<f32>::zeros((3, 16)), Lod::from_lengths1(&[2, 1])?)?;
    let fed = [(x.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    assert_eq!(values[&y.id()].as_slice::<f32>()?, [0.0; 48]); // of zeros: biases start at 0
    Ok(())
}

#[test]
fn predict_in_a_service_with_threads() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, layers::Embedding, optimizer::Adam, ops::Pool, train::Trainer};
    let model = |seed: u64, classes: usize| {
        let net = Builder::new().seed(seed);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let logits = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(Pool::Last).linear(classes);
        let loss = logits.cross_entropy(label).mean();
        (net, logits, loss)
    };
    let (net, logits, loss) = model(1, 2);
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits);
    use unpadded::Variable;
    use unpadded::predict::Predictor;
    let path = "small.model";
    let path = &std::env::temp_dir().join(format!("unpadded-guide-{}.model", std::process::id()));
    trainer.for_inference()?.save(path)?;
    let predictor = Predictor::load(path)?.threads(1); // each request runs in the thread that asks
    std::fs::remove_file(path)?;
    let ask = || predictor.run(&[("words", &Variable::from_sequence(vec![3i64, 1])?)], &["logits"]);
    let alone = ask()?;
    std::thread::scope(|threads| {
        let asked: Vec<_> = (0..4).map(|_| threads.spawn(ask)).collect();
        for thread in asked {
            assert_eq!(thread.join().unwrap().unwrap(), alone);
        }
    });
    Ok(())
}

#[test]
fn read_a_file_of_my_own_format() -> unpadded::Result<()> {
    use unpadded::data::{Data, Field, Loader, Samples};
    let file = "1;4 8 2\n0;7\n";
    let mut samples = Vec::new();
    for line in file.lines() {
        let Some((label, ids)) = line.split_once(';') else { continue };
        let ids: Vec<i64> = ids.split(' ').filter_map(|id| id.parse().ok()).collect();
        samples.push(vec![Field::Ints(ids), Field::Int(label.parse().unwrap_or(0))]);
    }
    let data = Loader::new(samples.into_iter().collect::<Samples>(), &["words", "label"])?;
    let batch = data.batches(None, 0)?.next().unwrap()?;
    assert_eq!(batch.values[0].1.lod().unwrap().to_string(), "[[3, 1]]");
    Ok(())
}

#[test]
fn hold_out_data() -> unpadded::Result<()> {
    use unpadded_text::{LabelledTexts, TextFile};
    let file = TextFile::embedded("reviews.tsv", "A fine film.\tpraise\nDull.\tblame\nFine, but dull!\tblame\n");
    let (train, dev) = LabelledTexts::of_lines(&file)?.hold_out(10, 7); // about a tenth
    assert_eq!(train.records().len() + dev.records().len(), 3);
    Ok(())
}

#[test]
fn reproduce_a_run() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let run = |threads: usize| -> unpadded::Result<f64> {
        let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
        let data = Loader::new(samples, &["words", "label"])?.shuffle(5);
        let net = Builder::new().seed(3);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let h = words.embedding(Embedding::new(9, 8).sparse()).dropout(0.2).lstm(8);
        let loss = h.sequence_pool(Pool::Last).linear(2).cross_entropy(label).mean();
        let mut trainer = Trainer::new(net, loss, &Adam::new(0.02).lazy())?.threads(threads);
      trainer = trainer.progress(unpadded::train::Progress::Quiet);
        Ok(trainer.fit(&data, &data, Until::Epochs(2))?.last.loss())
    };
    assert_eq!(run(1)?.to_bits(), run(2)?.to_bits());
    Ok(())
}

#[test]
fn look_at_gradients() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::init;
    use unpadded::program::{backward, grad_name};
    use unpadded::{Builder, DType, Variable, ndarray::array};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    net.watch(x);
    let w = net.parameter("w", DType::F32, &[2], init::constant(3.0)); // there has to be something to train
    let loss = (x.square() * w).sum();
    let (registry, mut program) = (net.registry(), net.finish()?);
    backward::append(&mut program, &registry, loss.id())?;
    let of_x = program.find(&grad_name("x")).unwrap();
    let (rows, mut scope) = (Variable::dense(array![[1.0f32, -2.0]]), Scope::of(&program)?);
    let values = interpret(&program, &registry, &mut scope, &Run::train(&[(x.id(), &rows)], 0))?;
    assert_eq!(values[&of_x].as_slice::<f32>()?, [6.0, -12.0]); // 2 · w · x
    Ok(())
}

#[test]
fn average_the_weights() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::{optimizer::Adam, train::{Progress, Trainer, Until}};
    use unpadded::train::Averaging;
    let averaging = Averaging::ema(0.999).except(["embedding_0.weight"]);
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits).averaged(averaging);
    trainer = trainer.progress(Progress::Quiet);
    trainer.fit(&data, &data, Until::Epochs(2))?;
    let average = trainer.scope().get("linear_0.weight.average")?;
    assert_ne!(average, trainer.scope().get("linear_0.weight")?);
    assert_eq!(trainer.for_inference()?.tensors["linear_0.weight"], average.into());
    Ok(())
}

#[test]
fn train_a_ready_made_model() -> unpadded::Result<()> {
    let [reviews, saved] = ["csv", "ckpt"]
        .map(|ending| std::env::temp_dir().join(format!("unpadded-guide-recipe-{}.{ending}", std::process::id())).display().to_string());
    let mut rows = String::from("text,label\n");
    for thing in ["film", "book", "play", "song", "plot", "end", "cast", "tune"] {
        for word in ["fine", "clever", "lovely", "good"] {
            rows += &format!("The {thing} is {word}.,good\nThe {thing} is not {word}.,bad\nNot bad at all the {thing}: {word}!,good\n");
        }
    }
    std::fs::write(&reviews, rows)?;
    use unpadded_recipes::{Config, Model, Task, prepare};
    use unpadded::train::Until;
    let (data, checkpoint) = ("reviews.csv", "reviews.ckpt");
    let (data, checkpoint) = (reviews.as_str(), saved.as_str());
    let mut config = Config::new(Task::Classify);
    config.data.train = Some(data.into());
    (config.model.embedding, config.model.hidden, config.training.rate) = (16, 16, 0.03);
    let mut prepared = prepare(&config)?;
    prepared.trainer = prepared.trainer.checkpoint(checkpoint);
    prepared.trainer = prepared.trainer.progress(unpadded::train::Progress::Quiet);
    prepared.trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(10))?;
    let answers = Model::load(checkpoint)?.predict(&["Not bad at all."])?;
    assert!(answers[0].to_string().starts_with("good")); // the label, and how probable it is
    std::fs::remove_file(&reviews)?;
    std::fs::remove_file(&saved)?;
    Ok(())
}

#[test]
fn read_parquet_or_tokenize_with_a_tokenizer_json() {
    let fixture = |name| format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
    let reviews = fixture("text/tests/text/fixtures/parquet_reviews.parquet");
    let tokenizer = fixture("recipes/tests/recipes/fixtures/tokenizer_bpe.json");
    let program = || -> unpadded::Result<usize> {
        use unpadded_text::LabelledTexts;
        use unpadded::data::{Limits, Tokenizer};
        let texts = LabelledTexts::open(reviews)?; // "reviews.parquet"
        let tokenizer = Tokenizer::hugging_face(tokenizer)?; // "tokenizer.json"
        let words = texts.vocabulary(&tokenizer, &Limits::default())?;
        Ok(words.len())
    };
    // Without the features, the errors name them.
    match program() {
        Ok(words) => assert!(cfg!(all(feature = "parquet", feature = "tokenizers")) && words > 10),
        Err(error) => assert!(error.to_string().contains("a build with the feature `"), "{error}"),
    }
}
