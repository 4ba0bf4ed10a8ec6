//! Programs: the builder, operators, step blocks, layers, the executor.

use ndarray::array;
use unpadded::executor::{Executor, Run, Scope, interpret, settle};
use unpadded::kernels::Transpose;
use unpadded::layers::{
    AdaptiveSoftmax, Attention, Conv, Embedding, EmbeddingBag, Gru, Linear, Lstm, Mgu, Qrnn,
    RecurrentWeights, Rnn, Sru, Stacked, init, load_torch,
};
use unpadded::op::{
    Attribute, Attributes, Backward, CheckCase, CsrBuffer, Direct, Extent, Forward, Gradient, InferShape,
    Levels, Op, Operand, RowBuffer, Spec, or_default, settings, sparse_numbers,
};
use unpadded::ops::{self, Context, CrossEntropy, DotAttention, LookupBag, Pool, UpdateGate};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::{Append, BlockId, VarId, backward};
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{Builder, DType, Program, Registry, Result, Var, Variable, operator};

use super::Calls;
use crate::refused::noted;

pub(super) fn calls(calls: &mut Calls) {
    builder(calls);
    operators(calls);
    layers(calls);
    steps(calls);
    as_data(calls);
    of_operators(calls);
    runs(calls);
}

/// A builder with sequences of rows of 3 numbers, and a variable of another builder.
fn net() -> (Builder, Var, Var) {
    let (net, other) = (Builder::new(), Builder::new());
    let x = net.feed("x", DType::F32, &[3], 1);
    let mut foreign = other.feed("foreign", DType::F32, &[3], 1);
    for _ in 0..9 {
        foreign = other.tanh(foreign);
    }
    (net, x, foreign)
}

fn builder(calls: &mut Calls) {
    let (net, x, foreign) = net();
    let ids = net.feed("ids", DType::I64, &[], 1);
    calls.at("Builder::spec", || noted(&net, || net.spec(foreign)));
    calls.at("Builder::feed", || net.feed("x", DType::F32, &[], 0));
    calls.at("Builder::feed", || net.feed("deep", DType::F32, &[], 99));
    calls.at("Builder::carried_state_of", || net.carried_state_of("x", DType::F32, &[]));
    calls.at("Builder::carry", || noted(&net, || net.carry(x, x)));
    calls.at("Builder::feed_stored", || net.feed_stored("empty", DType::F32, &[], StorageKind::Dense));
    calls.at("Builder::feed_csr", || net.feed_csr("bags", DType::I64, 9, 0));
    calls.at("Builder::feed_like", || net.feed_like("like", DType::F32, &[], foreign));
    calls.at("Builder::watch", || noted(&net, || net.watch(ids)));
    calls.at("Builder::row_sparse_parameter", || {
        net.row_sparse_parameter("w", DType::F32, &[9, 2], init::xavier())
    });
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[1; 9], init::zeros()));
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[3], init::xavier()));
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[3, 1], init::normal(f64::NAN)));
    calls.at("Builder::parameter", || net.parameter("w", DType::F32, &[3, 1], init::lstm_bias(1.0)));
    calls.at("Builder::literal", || net.literal("x", 1.0));
    calls.at("Builder::stop_gradient", || noted(&net, || net.stop_gradient(foreign)));
    calls.at("Builder::append", || net.append::<Var>("no operator", &[], Attributes::new()));
    calls.at("Builder::append", || net.append::<Var>("tanh", &[("y", &[x])], Attributes::new()));
    calls.at("Builder::append", || net.append::<Var>("tanh", &[("x", &[foreign])], Attributes::new()));
}

fn operators(calls: &mut Calls) {
    let (net, x, foreign) = net();
    calls.at("Builder::accuracy", || net.accuracy(x, x, None));
    calls.at("arithmetic::$kind", || net.add(x, foreign));
    calls.at("arithmetic::$kind", || net.sub(x, foreign));
    calls.at("arithmetic::$kind", || net.mul(foreign, x));
    calls.at("arithmetic::$kind", || net.div(x, foreign));
    calls.at("arithmetic::$kind", || net.maximum(x, foreign));
    calls.at("arithmetic::$kind", || net.minimum(x, foreign));
    calls.at("Builder::assign", || net.assign(foreign));
    calls.at("Builder::dot", || net.dot(x, foreign));
    calls.at("Builder::transposed_dot", || net.transposed_dot(x, foreign));
    calls.at("Builder::random_projection", || net.random_projection(foreign, 2, 1));
    calls.at("Builder::retain", || net.retain(x, foreign));
    calls.at("Builder::take_rows", || net.take_rows(x, foreign));
    calls.at("Builder::sum_rows", || net.sum_rows(foreign));
    calls.at("Builder::to_dense", || net.to_dense(foreign));
    calls.at("Builder::to_csr", || net.to_csr(foreign));
    calls.at("Builder::to_selected_rows", || net.to_selected_rows(x));
    calls.at("Builder::cast", || net.cast(foreign, DType::F64));
    calls.at("Builder::cross_entropy", || net.cross_entropy(x, x));
    calls.at("Builder::cross_entropy_with", || {
        net.cross_entropy_with(x, x, CrossEntropy::default().label_smoothing(2.0))
    });
    calls.at("Builder::dropout", || net.dropout(x, 1.0));
    calls.at("Builder::variational_dropout", || net.variational_dropout(x, 1.0));
    calls.at("Builder::lookup", || net.lookup(x, x, None, false));
    calls.at("Builder::lookup_bag", || net.lookup_bag(x, x, LookupBag::default()));
    calls.at("Builder::concat", || net.concat(&[]));
    calls.at("Builder::split", || net.split(x, [1]));
    calls.at("Builder::slice", || net.slice(x, 2..4));
    calls.at("Builder::fill_like", || net.fill_like(foreign, 1.0));
    calls.at("Builder::gru_cell", || net.gru_cell(x, x, foreign, UpdateGate::default()));
    calls.at("Builder::product", || net.product(x, x, None));
    calls.at("Builder::product_transposed", || net.product_transposed(x, x, None));
    calls.at("Builder::outer", || net.outer(x, foreign));
    calls.at("Builder::matvec", || net.matvec(x, foreign));
    calls.at("Builder::lod_of", || net.lod_of(foreign));
    calls.at("Builder::lstm_cell", || net.lstm_cell(x, x));
    calls.at("Builder::dot_attention", || net.dot_attention(x, x, foreign, DotAttention::default()));
    calls.at("Builder::dot_attention_with", || {
        net.dot_attention_with(x, foreign, x, DotAttention::heads(3)).0
    });
    calls.at("Builder::additive_attention", || net.additive_attention(x, foreign, x, x));
    calls.at("Builder::additive_attention_with", || net.additive_attention_with(x, x, foreign, x).0);
    calls.at("Builder::additive_attention_of_rows", || net.additive_attention_of_rows(x, x, x, foreign).0);
    calls.at("Builder::rotary", || net.rotary(x, 0));
    calls.at("Builder::matmul", || net.matmul(x, x));
    calls.at("Builder::matmul_with", || net.matmul_with(x, Transpose::Yes, x, Transpose::No));
    calls.at("Builder::sequence_conv", || net.sequence_conv(x, foreign, Context::new(1)));
    calls.at("Builder::sequence_conv_with", || net.sequence_conv_with(x, x, None, None, Context::new(0)));
    calls.at("Builder::sequence_erase", || net.sequence_erase(x, &[0]));
    calls.at("Builder::sequence_expand", || net.sequence_expand(x, x, Some(9)));
    calls.at("Builder::sequence_expand_as", || net.sequence_expand_as(x, foreign));
    calls.at("Builder::sequence_pool", || net.sequence_pool(foreign, Pool::Sum));
    calls.at("Builder::sequence_pool_with", || net.sequence_pool_with(foreign, Pool::Sum, 0.0));
    calls.at("Builder::sequence_reverse", || net.sequence_reverse(foreign));
    calls.at("Builder::sequence_filter", || net.sequence_filter(x, x));
    calls.at("Builder::sequence_filter_all", || net.sequence_filter_all(x, [x])[0]);
    calls.at("Builder::sequence_place", || net.sequence_place(x, x));
    calls.at("Builder::class_clusters", || net.class_clusters(x, &[]).0);
    calls.at("Builder::sequence_slice", || net.sequence_slice(x, x, x));
    calls.at("Builder::sequence_softmax", || net.sequence_softmax(x));
    calls.at("Builder::sequence_concat", || net.sequence_concat(&[x, foreign]));
    calls.at("Builder::sequence_pad", || net.sequence_pad(foreign, 2, 0.0).0);
    calls.at("Builder::sequence_unpad", || net.sequence_unpad(x, x));
    calls.at("Builder::sequence_unpad_as", || net.sequence_unpad_as(foreign, x));
    calls.at("Builder::sequence_mask", || net.sequence_mask(x, 2, DType::F32));
    calls.at("Builder::sequence_enumerate", || net.sequence_enumerate(x, 2, 0));
    calls.at("Builder::sequence_reshape", || net.sequence_reshape(x, 0));
    calls.at("Builder::sequence_topk_pool", || net.sequence_topk_pool(x, &[], 0.0));
    calls.at("Builder::lod_reset", || net.lod_reset(x, foreign));
    calls.at("Builder::lod_append", || net.lod_append(x, x));
    calls.at("Builder::row_conv", || net.row_conv(x, x));
    calls.at("Builder::sequence_scatter", || net.sequence_scatter(x, x, x));
    calls.at("Builder::reorder_by_rank", || net.reorder_by_rank(x, foreign));
    calls.at("Builder::softmax", || net.softmax(foreign));
    calls.at("Builder::log_softmax", || net.log_softmax(foreign));
    // One body of a macro for all kinds.
    calls.at("comparison::$kind", || net.greater(x, foreign));
    calls.at("comparison::$kind", || net.equal(foreign, 0.5));
    calls.at("unary::$kind", || net.tanh(foreign));
    calls.at("unary::$kind", || net.scale(foreign, 1.0, 0.0));
    calls.at("reduce::$kind", || net.mean(foreign));
}

fn layers(calls: &mut Calls) {
    let (net, x, foreign) = net();
    let ids = net.feed("ids", DType::I64, &[], 1);
    calls.at("Builder::linear", || net.linear(ids, 2));
    calls.at("Builder::linear", || net.linear(x, 0));
    calls.at("Builder::attention", || net.attention(x, 7));
    calls.at("Builder::qrnn", || net.qrnn(x, 0));
    calls.at("Builder::qrnn", || net.qrnn(x, Qrnn::new(4).window(0)));
    calls.at("Builder::qrnn", || net.qrnn(x, Qrnn::new(4).initial(foreign)));
    calls.at("Instance::loss", || net.layer(AdaptiveSoftmax::new(4, &[5])).loss(x, x));
    calls.at("Builder::sru", || net.sru(x, 0));
    calls.at("Builder::sru", || net.sru(x, Sru::new(4).initial(foreign)));
    calls.at("Builder::transformer_block", || net.transformer_block(x, 7));
    calls.at("Builder::attention", || net.attention(x, Attention::new(1).over(foreign)));
    calls.at("Builder::linear", || net.linear(x, Linear::new(2).weight_init(init::lstm_bias(1.0))));
    calls.at("Builder::linear", || net.linear(x, Linear::new(2).bias_init(init::xavier())));
    calls.at("Builder::conv", || net.conv(ids, Conv::new(3, 2)));
    calls.at("Builder::conv", || net.conv(x, Conv::new(3, 0)));
    calls.at("Builder::conv", || net.conv(x, Conv::new(3, 2).groups(3)));
    calls.at("Builder::conv", || net.conv(x, Conv::new(3, 2).bias_init(init::xavier())));
    calls.at("Builder::embedding", || net.embedding(x, Embedding::new(3, 2)));
    calls.at("Builder::embedding", || net.embedding(ids, Embedding::new(3, 0)));
    calls.at("Builder::embedding", || net.embedding(ids, Embedding::new(0, 3)));
    calls.at("Builder::embedding", || net.embedding(ids, Embedding::new(3, 2).padding(3)));
    calls.at("Builder::embedding_bag", || net.embedding_bag(x, EmbeddingBag::new(3, 2)));
    calls.at("Builder::zoneout", || net.zoneout(x, x, 1.0));
    // The four methods of each recurrent layer are one macro's.
    calls.at("recurrent::$run", || net.lstm(ids, Lstm::new(2)));
    calls.at("recurrent::$run", || net.lstm(x, Lstm::new(0)));
    calls.at("recurrent::$run", || net.lstm(x, Lstm::new(2).projection(0)));
    calls.at("recurrent::$run", || net.gru(x, Gru::new(0)));
    calls.at("recurrent::$run", || net.mgu(x, Mgu::new(0)));
    calls.at("recurrent::$run", || net.rnn(x, Rnn::new(0)));
    calls.at("recurrent::$run", || net.rnn(x, Rnn::new(2).recurrent_init(init::lstm_bias(0.0))));
    calls.at("recurrent::$run", || net.rnn(x, Rnn::new(2).recurrent_dropout(1.0)));
    calls.at("recurrent::$run_states", || net.gru_states(x, Gru::new(2).initial(x)));
    let weight = |name: &str, dims: &[usize]| net.parameter(name, DType::F32, dims, init::zeros());
    let weights =
        RecurrentWeights { w_ih: weight("a", &[3, 2]), w_hh: weight("b", &[2, 2]), b_ih: None, b_hh: None };
    let narrow = RecurrentWeights { w_hh: weights.w_ih, ..weights };
    let given = net.layer_with(Rnn::new(2), narrow);
    calls.at("Instance::of", || given.of(x));
    calls.at("Instance::states", || given.states(x).0);
    let rnn = Rnn::new(2);
    calls.at("Builder::stacked", || net.stacked(x, Stacked::new(Rnn::new(2), 0)));
    calls.at("Builder::stacked", || net.stacked(ids, Stacked::new(Rnn::new(2), 2)));
    calls.at("Builder::stacked_states", || net.stacked_states(x, Stacked::new(Rnn::new(0), 2)).0);
    calls.at("Builder::bidirectional", || net.bidirectional(foreign, rnn.clone()));
    calls.at("Builder::bidirectional_states", || net.bidirectional_states(foreign, rnn.clone()).0);

    let mut scope = Scope::new();
    let tensor = |_: &str| Ok(Dense::from(array![[1.0f32, 2.0]]));
    calls.at("torch::load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
    scope.set("rnn_0.weight_ih", Dense::from(array![[1.0f32]])).unwrap();
    calls.at("torch::load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
    scope.set("rnn_0.peephole", Dense::from(array![[1.0f32]])).unwrap();
    calls.at("torch::load_torch", || load_torch(&mut scope, "rnn_0", "_l0", tensor));
}

fn steps(calls: &mut Calls) {
    let (net, x, foreign) = net();
    let row = net.feed("row", DType::F32, &[0], 0);
    calls.at("Builder::recurrent", || net.recurrent(foreign, |_, x| x));
    calls.at("Builder::recurrent", || net.recurrent(row, |_, x| x));
    calls.at("Builder::recurrent_with", || {
        let level = unpadded::program::Recurrence { level: Some(3), reverse: false };
        net.recurrent_with(level, x, |_, x| x)
    });
    calls.at("Step::memory", || net.recurrent(x, |step, _| step.memory(0)));
    calls.at("Step::memory_of", || net.recurrent(x, |step, _| step.memory_of(DType::F32, &[1; 9])));
    calls.at("Step::memory_of", || net.recurrent(x, |step, _| step.memory_of(DType::F32, &[2, 0])));
    calls.at("Step::memory_from", || net.recurrent(x, |step, _| step.memory_from(x)));
    calls.at("Step::memory_from", || net.recurrent(x, |step, _| step.memory_from(row)));
    calls.at("Step::update", || noted(&net, || net.recurrent(x, |step, x| (step.update(x, x), x).1)));
    calls.at("Step::last", || net.recurrent(x, |step, x| step.last(x)));
    // A memory that is never updated is found where the block ends.
    calls.at("Builder::recurrent", || noted(&net, || net.recurrent(x, |step, _| step.memory(2))));
}

fn as_data(calls: &mut Calls) {
    let (net, x, _) = net();
    let y = net.linear(x, 2);
    let loss = net.mean(y);
    net.literal("one", 1.0);
    let registry = net.registry();
    let program = net.finish().unwrap();
    let literal = program.find("one").unwrap();
    let mut own = program.clone();
    calls.at("Program::spec", || program.spec(literal));
    calls.at("Program::add_var", || own.add_var(program.var(x.id()).clone()));
    let inputs = vec![("x", vec![literal])];
    calls.at("Program::append", || own.append(&registry, BlockId(0), with!(Append::forward("tanh"), inputs)));
    calls.at("Program::inference", || program.inference(&[literal]));
    calls.at("Program::storage_report", || program.storage_report(&Registry::empty()));
    calls.at("Program::streamed", || program.streamed(&registry, &[literal]));
    let mut broken = program.clone();
    broken.var_mut(x.id()).name = "one".into();
    calls.at("Program::validate", || broken.validate());
    calls.at("Program::to_section", || broken.to_section());
    calls.at("Program::to_bytes", || broken.to_bytes());
    calls.at("Program::save", || program.save("no such folder/x"));
    calls.at("Program::load", || Program::load("no such folder/x"));
    calls.at("Program::from_bytes", || Program::from_bytes(b"else"));
    calls.at("Program::from_bytes", || {
        Program::from_bytes(&unpadded::wire::Writer::new(Vec::new())?.finish()?)
    });
    calls.at("Program::from_section", || Program::from_section(b"else"));
    calls.at("backward::append", || backward::append(&mut own, &registry, x.id()));
    calls.at("backward::differentiate", || backward::differentiate(&mut own, &registry, VarId(999)));
    calls.at("Optimizer::minimize", || Sgd::new(0.1).minimize(&mut own, &registry, y.id()));
    calls.at("Optimizer::minimize", || Sgd::new(-0.1).minimize(&mut own, &registry, loss.id()));
    calls.at("Optimizer::update", || Sgd::new(0.1).update(&mut own, &registry, Vec::new()));

    let start = init::xavier();
    calls.at("initialize::evaluate", || init::evaluate(&start, &[3], DType::F32, 0, "w"));
    calls.at("initialize::evaluate", || init::evaluate(&init::zeros(), &[usize::MAX], DType::F32, 0, "w"));
    calls.at("Registry::add", || ops::catalogue().add::<Probe>()?.add::<Probe>().map(drop));
    calls.at("Registry::parse", || registry.parse("no operator", &Attributes::new()));
    calls.at("Registry::parse", || registry.parse("dropout", &Attributes::new()));
    let attributes = Attributes::new().with("a", Vec::<i64>::new());
    calls.at("attributes::$attribute", || attributes.bool("a"));
    calls.at("attributes::$attribute", || attributes.int("b"));
    calls.at("attributes::$attribute", || attributes.size("a"));
    calls.at("attributes::$attribute", || attributes.float("a"));
    calls.at("attributes::$attribute", || attributes.text("a").map(drop));
    calls.at("attributes::$attribute", || attributes.floats("b"));
    calls.at("attributes::$attribute", || attributes.sizes("b"));
    calls.at("attributes::$attribute", || Attributes::new().with("a", vec![true]).ints("a"));
    calls.at("attributes::$attribute", || attributes.texts("b").map(drop));
    calls.at("Spec::fixed", || Spec::fixed(DType::F32, &[1; 9]));
    calls.at("Spec::rows_of", || Spec::rows_of(DType::F32, Extent::Batch, &[1; 9], Levels::new()));
    calls.at("Spec::drop_level", || Spec::fixed(DType::F32, &[1])?.drop_level(Extent::Batch));
    calls.at("RowBuffer::values", || RowBuffer::default().values::<f32>().map(drop));
    calls.at("CsrBuffer::values", || CsrBuffer::default().values::<f32>().map(drop));
    calls.at("CsrBuffer::values_mut", || CsrBuffer::default().values_mut::<f32>().map(drop));
    calls.at("CsrBuffer::view", || CsrBuffer::default().view::<f32>().map(drop));
    calls.at("RowBuffer::values_mut", || RowBuffer::default().values_mut::<f32>().map(drop));

    let tanh = || registry.parse("tanh", &Attributes::new()).unwrap();
    let scalar = [Operand::batch("x", Variable::dense(ndarray::arr0(1.0)))];
    let no_number = Attributes::new().with("rate", "high");
    calls.at("Attribute::read", || f64::read(&no_number, "rate"));
    calls.at("Attribute::read", || Option::<f64>::read(&no_number, "rate"));
    calls.at("attributes::or_default", || or_default(&no_number, "rate", 0.5));
    calls.at("CheckCase::of_rows", || {
        CheckCase::of_rows(&no_number, 1, |_, _| Err(unpadded::Error::new("made", "well", "badly")))
    });
    calls.at("sample::sparse_numbers", || sparse_numbers(2, 0, 1));
    calls.at("CheckCase::of_csr", || {
        CheckCase::of_csr(&no_number, 1, |_, _| Err(unpadded::Error::new("made", "well", "badly")))
    });
    calls.at("CheckCase::of_sequences", || {
        CheckCase::of_sequences(&no_number, |_, _| Err(unpadded::Error::new("made", "well", "badly")))
    });
    calls.at("Direct::new", || Direct::new(tanh(), &scalar).map(drop));
    calls.at("Direct::new", || Direct::new(tanh(), &[Operand::literal("x", 1.0)]).map(drop));
    calls.at("Direct::of", || Direct::of(&registry, "tanh", &Attributes::new(), &[]).map(drop));
    calls.at("Op::call", || tanh().call(&[]));
    let lookup = [Operand::batch("ids", array![7i64]), Operand::constant("weight", array![[1.0]])];
    let direct = Direct::of(&registry, "embedding", &Attributes::new(), &lookup).unwrap();
    calls.at("Direct::forward", || direct.forward());
    calls.at("Direct::backward", || direct.backward(&[], &[], &|slot| slot == 1, None));
}

operator! {
    /// An operator whose attribute names the call of its context that is to fail.
    struct Probe = probe { call: String }
    inputs { X = x: one, Y = y: one, Z = z: optional, L = l: literal }
    outputs { OUT = out: one }
}

impl Op for Probe {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(0, s.input(0).clone());
        match self.call.as_str() {
            "new_level" => s.new_level(&[s.levels(0)[0]; 6], |_, _| Ok(())).map(drop),
            "level_from_data" => s.level_from_data(&[s.levels(0)[0]; 6]).map(drop),
            "same_rows" => s.same_rows(0, 1),
            "has_lod" => s.has_lod(1),
            "row_for_each_sequence" => s.row_for_each_sequence(0, 1),
            "dtype_in" => s.dtype_in(0, &[DType::I64]),
            "is_float" => s.is_float(1),
            "same_dtype" => s.same_dtype(0, 1),
            "constant" => s.constant(0, &[1]),
            "constant_at" => s.constant_at(0, 0, &[1]),
            "shape_literal" => s.literal(0).map(drop),
            "reader" => s.literal(3)?.as_ints().map(drop),
            _ => Ok(()),
        }
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        if let Some(mut out) = run.output::<f32>(0).ok().filter(|_| !self.call.starts_with("output")) {
            out.fill(0.0);
        }
        match self.call.as_str() {
            "input" => run.input::<f64>(0).map(drop),
            "input_at" => run.input_at::<f32>(0, 7).map(drop),
            "optional" => run.optional::<f64>(2).map(drop),
            "sequences" => run.sequences(1).map(drop),
            "literal" => run.literal(1).map(drop),
            "output" => run.output::<f64>(0).map(drop),
            "output_at" => run.output_at::<f32>(0, 7).map(drop),
            "fill_csr" => run.fill_csr(0, |_, _| Ok(())),
            "fill_rows" => run.fill_rows(0, |_, _| Ok(())),
            _ => Ok(()),
        }
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        match self.call.as_str() {
            "output_gradient" => run.output_gradient::<f64>(0).map(drop),
            "output_gradient_at" => run.output_gradient_at::<f64>(0, 0).map(drop),
            "gradient" => run.gradient::<f64>(0).map(drop),
            _ => run.gradient_at::<f64>(0, 0).map(drop),
        }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Err(unpadded::Error::new("samples", "some", "none"))
    }
}

/// Appends the operator at the caller's line, runs it and its gradient.
#[track_caller]
fn probed(call: &str) -> Result<()> {
    let mut registry = ops::catalogue();
    registry.add::<Probe>()?;
    let net = Builder::with_registry(registry);
    let (x, y) = (net.feed("x", DType::F32, &[1], 1), net.feed("y", DType::I64, &[], 0));
    net.watch(x);
    let literal = net.literal("literal", 1);
    let inputs: [(&str, &[Var]); 4] = [("x", &[x]), ("y", &[y]), ("z", &[x]), ("l", &[literal])];
    let out: Var = net.append("probe", &inputs, Attributes::new().with("call", call));
    let loss = net.sum(out);
    let (registry, mut program) = (net.registry(), net.finish()?);
    let gradients = backward::differentiate(&mut program, &registry, loss.id())?;
    let fed = Variable::from_sequences(&[vec![1.0f32]])?.into_parts();
    let fed = Variable::new(fed.0.into_dense()?.reshape(&[1, 1])?, fed.1)?;
    let label = Variable::dense(array![0i64]);
    let wanted = [loss.id(), gradients[&x.id()]];
    let mut executor = Executor::new(&program, &registry, &wanted, 1)?;
    executor.run(&mut Scope::of(&program)?, &Run::train(&[(x.id(), &fed), (y.id(), &label)], 0))
}

/// Errors of an operator's context name the line that appended the operator.
fn of_operators(calls: &mut Calls) {
    let below = Attributes::new().with("a", -1.0).with("storage", "nowhere");
    calls.at("settings::fraction", || settings::fraction(&below, "a"));
    calls.at("settings::not_negative", || settings::not_negative(&below, "a"));
    calls.at("settings::or_zero", || settings::or_zero(&below, "a"));
    calls.at("settings::or_one", || settings::or_one(&below, "a"));
    calls.at("settings::steps", || settings::steps(&below, "a"));
    calls.at("settings::positive", || settings::positive(&below, "a"));
    calls.at("settings::dense_or_rows", || settings::dense_or_rows(&below, "storage"));
    calls.at("InferShape::new_level", || probed("new_level"));
    calls.at("InferShape::level_from_data", || probed("level_from_data"));
    calls.at("InferShape::same_rows", || probed("same_rows"));
    calls.at("InferShape::has_lod", || probed("has_lod"));
    calls.at("InferShape::row_for_each_sequence", || probed("row_for_each_sequence"));
    calls.at("InferShape::dtype_in", || probed("dtype_in"));
    calls.at("InferShape::is_float", || probed("is_float"));
    calls.at("InferShape::same_dtype", || probed("same_dtype"));
    calls.at("InferShape::constant", || probed("constant"));
    calls.at("InferShape::constant_at", || probed("constant_at"));
    calls.at("Forward::literal", || probed("shape_literal"));
    calls.at("Forward::literal", || probed("literal"));
    calls.at("attributes::$reader", || probed("reader"));
    calls.at("Forward::input", || probed("input"));
    calls.at("Forward::input_at", || probed("input_at"));
    calls.at("Forward::optional", || probed("optional"));
    calls.at("Forward::sequences", || probed("sequences"));
    calls.at("Forward::output", || probed("output"));
    calls.at("Forward::output_at", || probed("output_at"));
    calls.at("Forward::fill_csr", || probed("fill_csr"));
    calls.at("Forward::fill_rows", || probed("fill_rows"));
    calls.at("Backward::output_gradient", || probed("output_gradient"));
    calls.at("Backward::output_gradient_at", || probed("output_gradient_at"));
    calls.at("Backward::gradient", || probed("gradient"));
    calls.at("Backward::gradient_at", || probed("gradient_at"));
}

/// A program whose rows owe moves.
pub(super) fn owing() -> Program {
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 0);
    let loss = ids.embedding(Embedding::new(3, 2).sparse()).mean();
    let mut program = net.program().unwrap();
    Sgd::new(0.1).momentum(0.5).minimize(&mut program, &net.registry(), loss.id()).unwrap();
    program
}

fn runs(calls: &mut Calls) {
    let (net, x, _) = net();
    let y = net.linear(x, 2);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut scope = Scope::of(&program).unwrap();
    calls.at("Executor::new", || Executor::new(&program, &registry, &[VarId(999)], 1).map(drop));
    calls.at("Executor::new", || Executor::new(&program, &registry, &[y.id()], 1 << 40).map(drop));
    let mut executor = Executor::new(&program, &registry, &[y.id()], 1).unwrap();
    calls.at("Executor::run", || executor.run(&mut scope, &Run::infer(&[])));
    calls.at("Executor::fetch", || executor.fetch(y));
    calls.at("Executor::scalar", || executor.scalar(y));
    calls.at("Executor::counts", || executor.counts(&[]));
    let mut counts = executor.counts_of_run();
    calls.at("Executor::count_into", || executor.count_into(&[], &mut counts));
    calls.at("Executor::bytes_of", || executor.bytes_of(VarId(999)));
    calls.at("Executor::gradient", || executor.gradient(VarId(0)));
    calls.at("Executor::set_gradient", || executor.set_gradient(VarId(0), Dense::from(array![1.0f32])));
    calls.at("Executor::update", || executor.update(&mut scope));
    let owing = owing();
    calls.at("settle::settle", || settle(&owing, &registry, &mut Scope::new(), 1));
    let value = Variable::dense(array![1.0f32]);
    let far = [(VarId(999), &value)];
    calls.at("interpret::interpret", || interpret(&program, &registry, &mut scope, &Run::infer(&far)));
    calls.at("Scope::get", || scope.get("nothing"));
    calls.at("Scope::value", || scope.value("nothing"));
    calls.at("Scope::set", || scope.set("linear_0.bias", Dense::from(array![1.0f32])));
    let mut other = program.clone();
    let weight = other.find("linear_0.weight").unwrap();
    other.var_mut(weight).initializer = Some(init::lstm_bias(1.0));
    calls.at("Scope::of", || Scope::of(&other).map(drop));
    scope = Scope::new();
    scope.set("linear_0.weight", Dense::from(array![1.0f32])).unwrap();
    calls.at("Scope::initialize", || scope.initialize(&program));
}
