//! Calls that fail: one for each way in which an error gets its line, and refusals that no other test has.

use std::path::Path;

use ndarray::array;
use unpadded::checkpoint::Checkpoint;
use unpadded::data::{
    Batch, Batching, Data, Field, Loader, Sample, SampleStream, Samples, TagScheme, Tokenizer,
};
use unpadded::executor::Scope;
use unpadded::layers::{Conv, Embedding, Lstm, init, load_torch};
use unpadded::metrics::{Loss, RunningMetric};
use unpadded::op::{Attributes, CheckCase, CsrBuffer, Direct, Operand, settings};
use unpadded::ops::{self, BinaryCrossEntropy, ClassTree, Context, FocalLoss, SampledClasses};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::predict::{Generation, Predictor, Sampling};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalStore};
use unpadded::tensor::{Coo, Csr, Dense, SelectedRows, Storage};
use unpadded::train::Until;
use unpadded::wire::{self, Reader, Writer};
use unpadded::{Builder, DType, Error, Lod, Program, Result, SeqPos, Var, Variable, reserve};

use super::{calls::Calls, probe::probed};
use crate::refused::noted;
use crate::sessions::predictor;
use crate::trained;
use crate::trainer::{Made, dev, path, trainer};

#[test]
fn the_error_of_a_call_names_its_line() {
    let calls = &mut Calls::default();
    offsets_and_tensors(calls);
    sparse(calls);
    files(calls);
    data(calls);
    builder(calls);
    operators(calls);
    layers(calls);
    programs(calls);
    training(calls);
    store(calls);
    row_by_row(calls);
    insta::assert_snapshot!("messages", std::mem::take(calls).messages());
}

fn offsets_and_tensors(calls: &mut Calls) {
    let lod = Lod::from_lengths1(&[2, 0, 1]).unwrap();
    let endless = Lod::from_lengths1(&[usize::MAX]).unwrap();
    calls.at("Lod::from_lengths", || Lod::from_lengths(&[vec![usize::MAX, 1]]));
    calls.at("Lod::from_row_ids", || Lod::from_row_ids(&[4], 2));
    calls.at("Lod::split", || lod.split(&[1]));
    calls.at("Lod::merge", || Lod::merge(&[endless.clone(), endless.clone()]));
    calls.at("Lod::take", || lod.take(&[3]));
    calls.at("Lod::reorder", || lod.reorder(&[0, 0, 1]));
    calls.at("Lod::reorder_rows", || lod.reorder_rows(&[0]));
    calls.at("Lod::repeat_rows", || lod.repeat_rows(&[1]));
    calls.at("Lod::flatten", || lod.flatten(0));
    calls.at("Lod::from_tree", || Lod::from_tree(&SeqPos::Rows(1)));

    let floats = Dense::from(array![[1.0f32, 2.0], [0.0, 0.0]]);
    calls.at("Dense::from_vec", || Dense::from_vec(&[2], vec![1.0f32]));
    calls.at("Dense::reshape", || floats.clone().reshape(&[3]));
    calls.at("Dense::concat_rows", || Dense::concat_rows(&[&floats, &floats.cast(DType::F64)]));
    calls.at("Dense::write_numbers", || floats.write_numbers(|_| Err(Error::new("pen", "ink", "none"))));
    calls.at("Dense::read_numbers", || {
        Dense::read_numbers(DType::Bool, &[1], |bytes| {
            bytes.fill(7);
            Ok(())
        })
    });
    let ids = Variable::from_sequences(&[vec![1i64, 2], vec![], vec![3]]).unwrap();
    calls.at("Variable::merge", || Variable::merge(&[ids, Variable::dense(floats)]));
    calls.at("reserve::collected", || {
        reserve::collected([Err::<u8, _>(Error::new("id", "one", "none"))].into_iter(), "ids")
    });
}

fn sparse(calls: &mut Calls) {
    let x = Csr::from_triples([2, 3], [(0, 1, 1.0f32), (1, 2, f32::NAN)]).unwrap();
    calls.at("Csr::from_dense", || Csr::from_dense(&Dense::from(array![1.0f32])));
    calls.at("Csr::sub", || x.sub(&Csr::zeros(DType::F32, [3, 2])?));

    let x = Coo::from_entries([2, 3], [([1, 2], 4.0f32)]).unwrap();
    let other = Coo::zeros(DType::F32, &[3, 2]).unwrap();
    calls.at("Coo::sub", || x.sub(&other));
    calls.at("Coo::mul", || x.mul(&other));
    calls.at("Coo::scale", || x.cast(DType::I8)?.scale(0.5));

    let x = SelectedRows::new(4, vec![1, 1], array![[1.0f32], [2.0]]).unwrap();
    let other = SelectedRows::zeros(DType::F32, &[4, 2]).unwrap();
    calls.at("SelectedRows::sub", || x.sub(&other));
    calls.at("SelectedRows::mul", || x.mul(&other));
    calls.at("Storage::concat_rows", || Storage::concat_rows(&[]));
}

fn files(calls: &mut Calls) {
    calls.at("wire::open", || wire::open(Path::new("no such folder/x")).map(drop));
    calls.at("wire::open", || wire::open(&std::env::temp_dir()).map(drop));
    calls.at("Writer::write_section", || Writer::new(Vec::new())?.write_section("", b"b"));
    calls.at("Body::write", || Writer::new(Vec::new())?.stream_section("a", 1, |body| body.write(b"more")));
    calls.at("Reader::new", || Reader::new("bytes", &b"unpadded"[..], 99).map(drop));
    let mut bytes = Writer::new(Vec::new()).unwrap().finish().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let read = || Reader::new("bytes", bytes.as_slice(), bytes.len() as u64).unwrap();
    calls.at("Reader::next_section", || read().next_section().map(drop));
    calls.at("Reader::read", || read().read(&mut [0]));
}

/// The first error of its batches.
#[track_caller]
fn read(data: &dyn Data) -> Result<()> {
    data.batches(None, 0)?.try_for_each(|batch| batch.map(drop))
}

fn data(calls: &mut Calls) {
    let samples: Samples = (0..4).map(|i| vec![Field::Ints(vec![i]), Field::Int(i)]).collect();
    calls.at("TagScheme::from_name", || TagScheme::from_name("x"));
    calls.at("Tokenizer::hugging_face", || Tokenizer::hugging_face("no such folder/x"));
    calls.at("Batch::new", || Batch::new::<Sample>(&["words".to_owned()], &[]));
    calls.at("Loader::new", || Loader::new(samples.clone(), &["words"]));
    calls.at("Data::same_lengths", || {
        let one: Samples = [vec![Field::Ints(vec![1]), Field::Ints(vec![1, 2])]].into_iter().collect();
        Loader::new(one, &["words", "tags"])?.same_lengths(["words", "tags"], 1)
    });
    // The batches of a loader name the line that made it.
    calls.at("Data::batches", || {
        read(&Loader::new(samples, &["words", "label"])?.batching(Batching::Tokens(0)))
    });
    let fails = SampleStream::new(0, || Err(Error::new("source", "to be there", "none")));
    calls.at("Data::batches", || read(&Loader::new(fails, &["x"])?.prefetch(2)));
}

/// A builder with sequences of rows of 3 numbers and sequences of ids, and a variable of another builder.
fn net() -> (Builder, [Var; 3]) {
    let (net, other) = (Builder::new(), Builder::new());
    let x = net.feed("x", DType::F32, &[3], 1);
    let ids = net.feed("ids", DType::I64, &[], 1);
    let foreign = (0..9).fold(other.feed("foreign", DType::F32, &[3], 1), |x, _| other.tanh(x));
    (net, [x, ids, foreign])
}

fn builder(calls: &mut Calls) {
    let (net, [x, ids, foreign]) = net();
    // Errors are recorded: the returned variable is unknown, or there is none.
    calls.at("Builder::add", || net.add(x, foreign));
    calls.at("Var::matvec", || x.matvec(foreign));
    calls.at("Builder::watch", || noted(&net, || net.watch(ids)));
    calls.at("Step::memory_from", || net.recurrent(x, |step, _| step.memory_from(x)));
    calls.at("Step::update", || noted(&net, || net.recurrent(x, |step, x| (step.update(x, x), x).1)));
    // A memory that is never updated is found where the block ends.
    calls.at("Builder::recurrent", || noted(&net, || net.recurrent(x, |step, _| step.memory(2))));
    calls.at("Builder::feed", || net.feed("x", DType::F32, &[], 0));
    calls.at("Builder::row_sparse_parameter", || {
        net.row_sparse_parameter("w", DType::F32, &[9, 2], init::xavier())
    });
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[3], init::xavier()));
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[3, 1], init::normal(f64::NAN)));
    calls.at("Builder::literal", || net.literal("x", 1.0));
    calls.at("Builder::append", || net.append::<Var>("tanh", &[("y", &[x])], Attributes::new()));
}

fn operators(calls: &mut Calls) {
    let (net, [x, ids, _]) = net();
    calls.at("Builder::product", || net.product(x, x, None));
    calls.at("Builder::lstm_cell", || net.lstm_cell(x, x));
    calls.at("Builder::sequence_conv_with", || net.sequence_conv_with(x, x, None, None, Context::new(0)));
    calls.at("Builder::sequence_filter", || net.sequence_filter(x, x));
    calls.at("Builder::sequence_place", || net.sequence_place(x, x));
    calls.at("Builder::class_clusters", || net.class_clusters(x, &[]).0);
    calls.at("Builder::sequence_reshape", || net.sequence_reshape(x, 0));
    calls.at("Builder::row_conv", || net.row_conv(x, x));
    calls.at("Builder::layer_norm", || net.layer_norm(x, Some(x), None, 1e-5));
    calls.at("Builder::glu", || net.glu(x));
    let weighted = BinaryCrossEntropy::default().weights(x);
    calls.at("Builder::binary_cross_entropy_with", || net.binary_cross_entropy_with(x, x, weighted));
    calls.at("Builder::focal_loss_with", || net.focal_loss_with(x, x, FocalLoss::default().gamma(-1.0)));
    calls.at("Builder::nce", || net.nce(x, x, ids, SampledClasses::new(0)).0);
    calls.at("Builder::nce_loss", || net.nce_loss(x, x, ids, 5));
    calls.at("Builder::sampled_softmax", || net.sampled_softmax(x, x, ids, SampledClasses::new(0)).0);
    calls.at("Builder::sampled_softmax_loss", || net.sampled_softmax_loss(x, x, ids, 5));
    let tree = ClassTree::Complete(4);
    calls.at("Builder::hierarchical_sigmoid", || net.hierarchical_sigmoid(x, x, None, ids, tree));
    calls.at("Builder::ctc_loss", || net.ctc_loss(x, ids, 3, false));
    calls.at("Builder::top_k", || net.top_k(x, 4).0);
    calls.at("Builder::select", || net.select(ids, x, x));
    calls.at("Builder::one_hot", || net.one_hot(ids, 0));
}

fn layers(calls: &mut Calls) {
    let (net, [x, ids, _]) = net();
    calls.at("Builder::attention", || net.attention(x, 7));
    calls.at("Builder::qrnn", || net.qrnn(x, 0));
    calls.at("Builder::conv", || net.conv(x, Conv::new(3, 2).groups(3)));
    calls.at("Builder::lstm", || net.lstm(ids, Lstm::new(2)));

    let mut scope = Scope::new();
    let tensor = |_: &str| Ok(Dense::from(array![[1.0f32, 2.0]]));
    calls.at("load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
    scope.set("rnn_0.weight_ih", Dense::from(array![[1.0f32]])).unwrap();
    calls.at("load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
    scope.set("rnn_0.peephole", Dense::from(array![[1.0f32]])).unwrap();
    calls.at("load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
}

fn programs(calls: &mut Calls) {
    let (net, [x, ..]) = net();
    net.literal("one", 1.0);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    calls.at("Program::spec", || program.spec(program.find("one").unwrap()));
    let mut broken = program.clone();
    broken.var_mut(x.id()).name = "one".into();
    calls.at("Program::validate", || broken.validate());
    calls.at("Program::from_section", || Program::from_section(b"else"));
    calls.at("Optimizer::update", || Sgd::new(0.1).update(&mut broken, &registry, Vec::new()));

    let attributes = Attributes::new().with("a", Vec::<i64>::new()).with("below", -1.0);
    calls.at("Attributes::bool", || attributes.bool("a"));
    calls.at("Attributes::int", || attributes.int("b"));
    calls.at("Attributes::float", || attributes.float("a"));
    calls.at("Attributes::text", || attributes.text("a").map(drop));
    calls.at("Attributes::floats", || attributes.floats("b"));
    calls.at("Attributes::sizes", || attributes.sizes("b"));
    calls.at("settings::fraction", || settings::fraction(&attributes, "below"));
    calls.at("CsrBuffer::values", || CsrBuffer::default().values::<f32>().map(drop));
    calls.at("CheckCase::of_rows", || {
        CheckCase::of_rows(&attributes, 1, |_, _| Err(Error::new("made", "well", "badly")))
    });
    let tanh = registry.parse("tanh", &Attributes::new()).unwrap();
    let scalar = [Operand::batch("x", Variable::dense(ndarray::arr0(1.0)))];
    calls.at("Direct::new", || Direct::new(tanh, &scalar).map(drop));
    let lookup = [Operand::batch("ids", array![7i64]), Operand::constant("weight", array![[1.0]])];
    let direct = Direct::of(&registry, "embedding", &Attributes::new(), &lookup).unwrap();
    calls.at("Direct::forward", || direct.forward());

    // Errors of an operator's context name the line that appended the operator.
    calls.at("InferShape::is_float", || probed("is_float"));
    calls.at("InferShape::literal", || probed("shape_literal"));
    calls.at("Forward::input", || probed("input"));
    calls.at("Forward::input_at", || probed("input_at"));
    calls.at("Forward::output_at", || probed("output_at"));
    calls.at("Forward::fill_csr", || probed("fill_csr"));
    calls.at("Backward::output_gradient", || probed("output_gradient"));
    calls.at("Backward::gradient", || probed("gradient"));
}

fn training(calls: &mut Calls) {
    let loss = Builder::new().feed("loss", DType::F32, &[1], 0);
    // Data without a line of their own are reported with the line of this call.
    calls.at("Trainer::fit", || trainer().fit(&Made(Vec::new()), &dev(), Until::Epochs(1)));
    calls.at("RunningMetric::merge", || RunningMetric::new(Loss::new(loss))?.merge(&[1.0]));
    let file = path("caller_lines");
    let checkpoint = trained::checkpoint(3);
    checkpoint.clone().save(&file).unwrap();
    calls.at("Trainer::resume", || trainer().resume(&file));
    calls.at("Trainer::resume_if", || trainer().resume_if("\0"));
    calls.at("Trainer::use_best", || trainer().use_best());
    let mut infinite = trainer();
    infinite.set_parameter("linear_0.bias", array![f32::INFINITY, 0.0]).unwrap();
    calls.at("Trainer::for_inference", || infinite.for_inference());
    #[cfg(feature = "safetensors")]
    {
        use unpadded::formats::safetensors::{self, Names};
        let names = Names::new().rename("nothing", "something");
        calls.at("Names::table", || names.table(&checkpoint.program));
        calls.at("safetensors::import", || safetensors::import(&file, &names, &mut Checkpoint::default()));
        std::fs::write(&file, "a text that is no checkpoint, and long enough to be one\n").unwrap();
        calls.at("Trainer::load_safetensors", || trainer().load_safetensors(&file, &Names::new()));
    }
    let mut broken = checkpoint;
    broken.outputs.insert("nothing".into(), "nowhere".into());
    calls.at("Checkpoint::save", || broken.save(&file));
    calls.at("Predictor::new", || Predictor::new(broken, &ops::catalogue()).map(drop));
    std::fs::remove_file(file).unwrap();
}

fn store(calls: &mut Calls) {
    let (catalogue, key) = (ops::catalogue(), Key::from("t"));
    let mut workers = LocalStore::new(&catalogue, 1).unwrap().workers(2, Consistency::Synchronous).unwrap();
    let values = || Storage::from(array![1.0f32, 2.0]);
    calls.at("KeyValueStore::init", || workers[0].init(&key, array![1i64].into()));
    workers[0].init(&key, values()).unwrap();
    calls.at("KeyValueStore::init", || workers[0].init(&key, values()));
    calls.at("KeyValueStore::row_sparse_pull", || workers[0].row_sparse_pull(&key, vec![2]));
    drop(workers.pop());
    calls.at("KeyValueStore::sum", || workers[0].sum(&[1.0]));
}

fn row_by_row(calls: &mut Calls) {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let logits = words.embedding(Embedding::new(5, 4)).gru(4).linear(5);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    calls.at("Program::stepped", || program.stepped(&registry, &[]));
    let model = predictor(&program, &registry, &[logits.id()]);
    let session = model.session(&["0"]).unwrap();
    calls.at("Session::output", || session.output("1").map(drop));
    let found = model.generator("words", "0").unwrap().greedy(&[], &Generation::new(0).max_steps(2));
    calls.at("Hypotheses::hypotheses", || found.unwrap().hypotheses(1).map(drop));
    calls.at("Sampling::sampler", || Sampling::default().top_p(0.0).sampler(1));
    let mut sampler = Sampling::default().sampler(1).unwrap();
    calls.at("Sampler::draw", || sampler.draw(&[]));
    calls.at("Sampler::draw_at", || sampler.draw_at(0, 0, &[f32::NAN]));
}
