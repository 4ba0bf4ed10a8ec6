//! The trainer, checkpoints, predictors.

use std::collections::BTreeMap;

use ndarray::array;
use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batch, Field, Loader, Samples, TagScheme, Vocabulary};
use unpadded::executor::Scope;
use unpadded::metrics::{CalibrationError, ChunkF1, Loss, RunningMetric};
use unpadded::op::testing;
use unpadded::optimizer::Sgd;
use unpadded::parallel::{World, threads};
use unpadded::predict::{CtcBeam, Predictor, Sampling};
use unpadded::tensor::Dense;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Lod, Program, Registry, Variable, ops};

use super::Calls;
use crate::trained;
use crate::trainer::{Made, dev, path, train, trainer};

pub(super) fn calls(calls: &mut Calls) {
    let (net, other) = (Builder::new(), Builder::new());
    let loss = other.feed("loss", DType::F32, &[1], 0);
    calls.at("Trainer::new", || Trainer::new(net, loss, &Sgd::new(0.1)));
    calls.at("Trainer::new", || Trainer::new(other, loss, &Sgd::new(0.1)));
    if let [rank, left] = &threads(2).into_iter().map(World::new).collect::<Vec<_>>()[..] {
        left.leave("no memory");
        calls.at("World::broadcast", || rank.broadcast("settings", b""));
    }
    let until = Until::Epochs(1);
    // Data without a line of their own are reported with the line of this call.
    let nothing = Made(Vec::new());
    calls.at("Trainer::fit", || trainer().fit(&nothing, &dev(), until));
    calls.at("Trainer::fit", || trainer().fit(&train(), &nothing, until));
    calls.at("Trainer::fit", || trainer().checkpoint("no such folder/x").fit(&train(), &dev(), until));
    let one: Samples = (0..3).map(|i| vec![Field::Ints(vec![i])]).collect();
    calls.at("Trainer::fit", || trainer().fit(&Loader::new(one.clone(), &["words"])?, &dev(), until));
    calls.at("Trainer::evaluate", || trainer().evaluate(&nothing));
    let empty = Batch::of(Vec::new(), Vec::new(), 0);
    calls.at("Trainer::memory", || trainer().memory(&empty));
    calls.at("Trainer::tables", || trainer().tables(&nothing));
    calls.at("RunningMetric::new", || RunningMetric::new(CalibrationError::new(loss, loss).bins(1 << 40)));
    let running = || RunningMetric::new(Loss::new(loss)).unwrap();
    calls.at("RunningMetric::update", || running().update(&[], 0));
    calls.at("RunningMetric::merge", || running().merge(&[1.0]));
    let words = Vocabulary::labels(["no-tag"]).unwrap();
    calls.at("ChunkF1::new", || ChunkF1::new(loss, loss, TagScheme::Iob2, &words));
    calls.at("Trainer::listing", || trainer().metric(Loss::new(loss).named("later")).listing());
    calls.at("Trainer::start_profile", || trainer().patience(0).start_profile());
    calls.at("Trainer::save", || trainer().save("no such folder/x"));
    calls.at("Trainer::resume", || trainer().resume("no such folder/x"));
    let file = path("caller_lines");
    let mut checkpoint = trained::checkpoint(3);
    checkpoint.save(&file).unwrap();
    calls.at("Trainer::resume", || trainer().resume(&file));
    calls.at("Trainer::resume_if", || trainer().resume_if(&file));
    calls.at("Trainer::resume_if", || trainer().resume_if("\0"));
    calls.at("Trainer::use_best", || trainer().use_best());
    let mut infinite = trainer();
    infinite.set_parameter("linear_0.bias", array![f32::INFINITY, 0.0]).unwrap();
    calls.at("Trainer::for_inference", || infinite.for_inference());
    calls.at("Trainer::load_parameters", || trainer().load_parameters(&checkpoint));
    #[cfg(feature = "safetensors")]
    {
        use unpadded::formats::safetensors::{self, Names};
        let names = Names::new().rename("nothing", "something");
        calls.at("Names::table", || names.table(&checkpoint.program));
        calls.at("write::export", || safetensors::export(&checkpoint, &ops::catalogue(), &names, &file));
        calls.at("read::import", || safetensors::import(&file, &names, &mut Checkpoint::default()));
        calls.at("Trainer::load_safetensors", || trainer().load_safetensors("\0", &Names::new()));
    }
    let none = Checkpoint::default();
    calls.at("Trainer::load_fitting_parameters", || trainer().load_fitting_parameters(&none));
    calls.at("Checkpoint::for_inference", || none.clone().for_inference(&ops::catalogue()));
    calls.at("Checkpoint::quantize", || none.quantize(&ops::catalogue()));
    let owing = Checkpoint::of(super::programs::owing(), []);
    calls.at("Checkpoint::settled", || owing.settled(&ops::catalogue()));
    calls.at("Trainer::set_parameter", || trainer().set_parameter("bias", array![1.0f32]));
    calls.at("Trainer::set_parameter", || trainer().set_parameter("linear_0.bias", array![1.0f32]));

    let mut broken = checkpoint.clone();
    broken.outputs.insert("nothing".into(), "nowhere".into());
    calls.at("Checkpoint::save", || broken.save(&file));
    calls.at("Checkpoint::save", || checkpoint.save("no such folder/x"));
    calls.at("Checkpoint::save_from", || checkpoint.save_from(&mut Scope::new(), &file));
    calls.at("Checkpoint::to_bytes", || broken.to_bytes());
    calls.at("Checkpoint::load", || Checkpoint::load("no such folder/x"));
    calls.at("Checkpoint::from_bytes", || Checkpoint::from_bytes(b"else"));
    let bytes = checkpoint.to_bytes().unwrap();
    calls.at("Checkpoint::from_bytes", || Checkpoint::from_bytes(&bytes[..bytes.len() / 2]));
    let mut scope = Scope::new();
    let name = checkpoint.tensors.keys().next().unwrap().clone();
    scope.set(&name, Dense::from(array![1i64])).unwrap();

    calls.at("Checkpoint::position_in", || Checkpoint::position_in("no such folder/x"));
    let other = Dense::from(array![1.0f32]);
    calls.at("Scope::set_of", || scope.set_of(&checkpoint.program, &name, other.into()));
    calls.at("Predictor::load", || Predictor::load("no such folder/x").map(drop));
    // A file that is no checkpoint, for everything that loads one.
    let text = path("caller_lines_text");
    std::fs::write(&text, "a text that is no checkpoint, and long enough to be one\n").unwrap();
    calls.at("Checkpoint::load", || Checkpoint::load(&text));
    calls.at("Program::load", || Program::load(&text));
    calls.at("Predictor::load", || Predictor::load(&text).map(drop));
    calls.at("Predictor::load_with", || Predictor::load_with(&text, &Registry::empty()).map(drop));
    calls.at("Trainer::resume", || trainer().resume(&text));
    calls.at("Trainer::resume_if", || trainer().resume_if(&text));
    #[cfg(feature = "safetensors")]
    calls.at("Trainer::load_safetensors", || trainer().load_safetensors(&text, &Default::default()));
    std::fs::remove_file(text).unwrap();
    calls.at("Predictor::load_with", || Predictor::load_with(&file, &Registry::empty()).map(drop));
    calls.at("Predictor::new", || Predictor::new(broken, &ops::catalogue()).map(drop));
    let none = with!(checkpoint.clone(), outputs: BTreeMap::new());
    calls.at("Predictor::new", || Predictor::new(none, &ops::catalogue()).map(drop));
    let predictor = Predictor::new(checkpoint.clone(), &ops::catalogue()).unwrap();
    let row = Variable::dense(array![[1.0f32]]);
    calls.at("Predictor::run", || predictor.run(&[], &["nothing"]));
    calls.at("Predictor::run", || predictor.run(&[("nothing", &row)], &["logits"]));
    calls.at("Predictor::run", || predictor.run(&[], &["logits"]));
    calls.at("Predictor::memory", || predictor.memory(&[], &["nothing"]));
    calls.at("Predictor::run_on", || predictor.run_on(&[], &["logits"]));
    calls.at("Predictor::likeliest", || predictor.likeliest(&[], "logits", "nothing"));
    calls.at("Predictor::likeliest", || predictor.likeliest(&[], "logits", "labels"));
    calls.at("models::check_gradients", || testing::check_gradients(Builder::new(), &[], &|_, _| vec![]));
    let own = predictor.clone();
    calls.at("Trainer::variable", || trainer().variable("nothing"));
    calls.at("Predictor::variable", || own.variable("nothing"));
    calls.at("Predictor::evaluate_each", || own.evaluate_each(&nothing, &[], &mut |_| ()));
    calls.at("Predictor::metric", || own.metric("nothing", |vars| Loss::new(vars[0])).map(drop));
    calls.at("Predictor::evaluate", || predictor.evaluate(&nothing));
    calls.at("Predictor::vocabulary", || predictor.vocabulary("nothing").map(drop));
    calls.at("Checkpoint::restore", || checkpoint.restore(&mut scope));

    calls.at("Sampling::sampler", || Sampling::default().top_p(0.0).sampler(1));
    let mut sampler = Sampling::default().sampler(1).unwrap();
    calls.at("Sampler::draw", || sampler.draw(&[]));
    calls.at("CtcBeam::decode", || CtcBeam::new(1).decode(&Variable::dense(array![0i64])));
    calls.at("CtcBeam::decode", || CtcBeam::new(1).decode(&row));
    let frame = Variable::sequences(array![[f32::NAN]], Lod::from_lengths1(&[1]).unwrap()).unwrap();
    calls.at("CtcBeam::decode", || CtcBeam::new(1).decode(&frame));
    std::fs::remove_file(file).unwrap();
}
