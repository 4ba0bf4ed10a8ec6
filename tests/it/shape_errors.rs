//! The errors for an operator that does not fit: the slot, the expected and the given value, and the line of the call.

use crate::refused::{Outcome, last};
use ndarray::Array2;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::kernels::Transpose;
use unpadded::layers::{Conv, Embedding, Gru, Highway, Lstm, Norm, Qrnn};
use unpadded::op::Attributes;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::Initializer;
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Lod, Var, Variable};

/// `error` has all the words, and names this file.
#[track_caller]
fn says(made: impl Outcome, words: &str) {
    let message = made.refused().to_string();
    assert!(message.contains(words), "expected `{words}` in: {message}");
    assert!(message.contains(file!()), "expected `{}` in: {message}", file!());
}

fn constant(net: &Builder, dims: &[usize]) -> Var {
    let ones = Initializer::new("constant", Attributes::new().with("value", 1.0));
    net.parameter("constant", DType::F32, dims, ones)
}

#[test]
fn a_constant_may_come_first() {
    let net = Builder::new();
    let words = net.feed("words", DType::F32, &[3], 1);
    let scale = constant(&net, &[3]);
    assert_eq!(net.spec(net.mul(scale, words)).unwrap(), net.spec(words).unwrap());
    assert_eq!(net.spec(net.add(scale, words)).unwrap(), net.spec(words).unwrap());
    assert_eq!(net.spec(net.sub(scale, words)).unwrap(), net.spec(words).unwrap());
    let narrow = net.slice(words, 0..2);
    says(
        net.sub(scale, narrow),
        "`y`: expected rows of 3 numbers, as `x` has, or of one number, got f32[rows of `words`, 2]",
    );
}

#[test]
fn a_vector_is_not_repeated_over_the_columns_of_a_matrix() {
    let net = Builder::new();
    let (x, state) = (net.feed("x", DType::F32, &[4], 0), net.feed("state", DType::F32, &[4, 6], 0));
    let advice =
        "`v.outer(ones)` makes a matrix from the vector `v` of each row; each row of `ones` has 6 ones";
    says(net.mul(x, state), advice);
    says(net.mul(state, x), advice);
    let wide = net.feed("wide", DType::F32, &[6], 0);
    assert!(!net.mul(wide, state).refused().to_string().contains("outer"));
    let ones = wide.fill_like(1.0);
    assert_eq!(net.spec(net.mul(net.outer(x, ones), state)).unwrap(), net.spec(state).unwrap());
}

#[test]
fn what_a_layer_was_told_is_named_as_it_was_told() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    says(
        net.conv(x, Conv::new(usize::MAX, 3)),
        "length of layer `conv`: expected at most 9223372036854775807, of rows of 2 columns, got 18446744073709551615",
    );
    says(net.conv(x, Conv::new(3, 3).groups(0)), "groups of layer `conv`: expected a divisor of 2");
    says(net.qrnn(x, Qrnn::new(3).window(0)), "window of layer `qrnn`: expected at least 1, got 0");
    let none = net.feed("none", DType::F32, &[0], 1);
    says(net.argmax(none), "`x`: expected at least one number in a row");
    for norm in [Norm::layer(), Norm::rms(), Norm::batch()] {
        let expected = "attribute `epsilon`: expected a number above 0 in f32, the dtype of `x`, got 1e-300";
        says(net.norm(x, norm.clone().epsilon(1e-300)), expected);
        let wide = net.cast(x, DType::F64);
        net.spec(net.norm(wide, norm.epsilon(1e-300))).unwrap();
    }
    for bias in [f64::INFINITY, f64::NAN] {
        let expected = format!("gate bias of layer `highway`: expected a finite number, got {bias}");
        says(net.highway(x, Highway::new().gate_bias(bias)), &expected);
    }
}

#[test]
fn rows_and_widths_must_meet() {
    let net = Builder::new();
    let source = net.feed("source", DType::F32, &[3], 1);
    let target = net.feed("target", DType::F32, &[3], 1);
    let ids = net.feed("ids", DType::I64, &[], 1);
    says(
        net.add(source, target),
        "expected the rows and LoD of `x`, f32[rows of `source`, 3], got f32[rows of `target`, 3]",
    );
    says(
        net.add(source, constant(&net, &[2])),
        "`y`: expected rows of 3 numbers, as `x` has, or of one number, got f32[2]",
    );
    says(net.concat(&[source, target]), "input `x`[1]: expected the dtype, rows and LoD of the first");
    says(net.tanh(ids), "input `x`: expected dtype f32 or f64, got i64[rows of `ids`]");
    assert!(net.spec(net.assign(ids)).is_some());
    let bytes = net.feed_like("bytes", DType::I8, &[], ids);
    says(net.tanh(bytes), "input `x`: expected dtype f32 or f64, got i8[rows of `ids`]");
    says(net.embedding(bytes, Embedding::new(3, 2)), "expected dtype i64 or i32, got i8[rows of `ids`]");
}

/// Arrays that are unpadded by the same lengths in a step block and around it: the error says how they meet.
#[test]
fn sequences_of_a_step_and_around_it_meet_by_the_hint() {
    let built = |hinted: bool| {
        let net = Builder::new();
        let a = net.feed("a", DType::F32, &[3], 0);
        let lengths = net.feed("lengths", DType::I64, &[], 0);
        let words = net.feed("words", DType::F32, &[1], 1);
        let around = a.sequence_unpad(lengths);
        net.recurrent(words, |step, _| {
            let memory = step.memory_from(a);
            let rows = match hinted {
                true => memory.sequence_unpad_as(around),
                false => memory.sequence_unpad(lengths),
            };
            step.update(memory, memory * 0.5);
            (rows + around).sequence_pool(unpadded::ops::Pool::Sum)
        });
        net.finish().map(drop)
    };
    says(built(false), "rows and LoD of `y`: expected the rows and LoD of `x`");
    says(
        built(false),
        "padded arrays by `sequence_unpad_as` of a variable with these sequences, also in a step block",
    );
    built(true).unwrap();
}

#[test]
fn columns_must_be_there() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[5], 1);
    assert_eq!(net.split(x, [2, 3]).len(), 2);
    says(net.split(x, [2, 2]), "input `x`: expected rows of as many numbers as the sizes [2, 2] add up to");
    says(net.slice(x, 3..6), "input `x`: expected rows that have the columns 3..6, got f32[rows of `x`, 5]");
    let most = i64::MAX; // as much as a file holds, and never a negative number
    says(
        net.slice(x, 0..usize::MAX),
        &format!("input `x`: expected rows that have the columns 0..{most}, got f32["),
    );
    says(
        net.split(x, [usize::MAX]),
        &format!("expected rows of as many numbers as the sizes [{most}] add up to"),
    );
    let empty = net.slice(x, 2..2);
    says(
        net.max_features(empty),
        "input `x`: expected at least one number in a row, got f32[rows of `x`, 0]",
    );
}

#[test]
fn matrices_must_fit() {
    let net = Builder::new();
    let (x, y) = (constant(&net, &[2, 3]), constant(&net, &[2, 3]));
    let product = net.matmul_with(x, Transpose::Yes, y, Transpose::No);
    assert_eq!(net.spec(product).unwrap().to_string(), "f32[3, 3]");
    says(net.matmul(x, y), "input `y`: expected 3 rows, to fit `x`, f32[2, 3], got f32[2, 3]");
    let rows = net.feed("rows", DType::F32, &[3], 1);
    says(net.matmul(rows, y), "input `x`: expected a matrix that is not batched, got f32[rows of `rows`, 3]");
}

#[test]
fn attributes_must_be_in_range() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[5], 1);
    says(net.dropout(x, 1.0), "attribute `rate`: expected a number from 0 to below 1, got 1");
    says(net.dropout(x, f64::NAN), "attribute `rate`");
}

#[test]
fn a_cell_of_plain_operators_is_built() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    let outside = net.feed("outside", DType::F32, &[3], 0);
    let bias = constant(&net, &[3]);
    let out = net.recurrent(x, |step, x_t| {
        let before = step.memory(3);
        let h = step.add(bias, step.add(x_t, step.mul(before, outside)));
        let h = step.tanh(h);
        step.update(before, h);
        h
    });
    assert_eq!(net.spec(out).unwrap().to_string(), "f32[rows0, 3] lod(0)");
}

#[test]
fn a_layer_is_wrong_at_the_line_that_called_it() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    says(
        net.lstm(x, Lstm::new(4).initial(x, x)),
        "variable `x`: initial memory: expected one row for each sequence of the batch, got f32[",
    );
    says(
        net.gru(x, Gru::new(4).initial(x)),
        "variable `x`: initial memory: expected one row for each sequence of the batch, got f32[",
    );
    let ids = net.feed("ids", DType::I64, &[], 1);
    says(
        net.embedding(ids, Embedding::new(3, 2).padding(9)),
        "padding id of layer `embedding`: expected below 3, the height, got 9",
    );
    let other = Builder::new();
    let foreign = other.feed("foreign", DType::F32, &[4], 1);
    let foreign = other.tanh(other.tanh(other.tanh(foreign)));
    says(
        net.lstm(foreign, Lstm::new(4)),
        "expected a variable of this builder, got `tanh_3` of another builder",
    );
    assert_eq!(net.name_of(foreign), "?");
    let csr = [None, Some(4), Some(2)];
    says(
        net.feed_stored("csr", DType::F32, &csr, StorageKind::Csr),
        "two dimensions for csr, got 3 dimensions",
    );
}

#[test]
fn a_memory_is_updated_once() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let twice = net.recurrent(x, |step, x_t| {
        let memory = step.memory(4);
        step.update(memory, x_t);
        step.update(memory, x_t);
        x_t
    });
    assert_eq!(net.spec(twice), net.spec(x));
    let message = last(&net).to_string();
    let words = "variable `memory`: memory: expected one `update` in the step, got a second `update`";
    assert!(message.contains(words) && message.contains(file!()), "{message}");
}

#[test]
fn the_optimizer_and_the_run_are_wrong_at_their_lines() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let y = net.linear(x, 2);
    let loss = net.mean(y);
    let registry = net.registry();
    let mut program = net.program().unwrap();
    let mut far = loss;
    for _ in 0..9 {
        far = net.tanh(far);
    }
    let sgd = Sgd::new(0.1);
    says(
        sgd.minimize(&mut program, &registry, far.id()),
        "loss: expected a variable of the program, got number ",
    );
    says(sgd.minimize(&mut program, &registry, y.id()), "variable `linear`: loss: expected one float");
    says(
        sgd.clone().momentum(1.0).minimize(&mut program, &registry, loss.id()),
        "`momentum`: expected a number from 0",
    );
    says(
        sgd.update(&mut program, &registry, vec![(far.id(), y.id())]),
        "expected two variables of the program",
    );
    sgd.minimize(&mut program, &registry, loss.id()).unwrap();
    says(sgd.minimize(&mut program, &registry, loss.id()), "a program without backward operators");

    says(
        Executor::new(&program, &registry, &[far.id()], 1).map(|_| ()),
        "wanted variable: expected a variable of the",
    );
    says(
        Executor::new(&program, &registry, &[y.id()], 1 << 40).map(|_| ()),
        "threads: expected at most 1024",
    );
    let mut executor = Executor::new(&program, &registry, &[y.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    says(
        executor.run(&mut scope, &Run::train(&[], 0)),
        "variable `x`: feeds: expected a value for this variable",
    );
    says(executor.fetch(y), "variable `linear`: fetch: expected a successful run before the fetch, got none");
    let none = Variable::sequences(Array2::<f32>::zeros((0, 4)), Lod::from_lengths1(&[]).unwrap()).unwrap();
    says(
        executor.run(&mut Scope::new(), &Run::infer(&[(x.id(), &none)])),
        "expected the variable, initialised",
    );
    executor.run(&mut scope, &Run::infer(&[(x.id(), &none)])).unwrap();
    says(
        executor.scalar(y),
        "variable `linear`: scalar: expected a float, got f32[rows of `x`, 2] with 0 rows",
    );
}

#[test]
fn a_batch_wide_operator_does_not_stand_in_a_step() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let refused = net.recurrent(x, |step, x_t| step.add(x_t, step.mean(x_t)));
    says(
        refused,
        "mean #0 in the step over `x`: operator in a step block: expected a row-wise or sequence-wise operator, got an operator",
    );
}

/// Of several weights side by side, the error names the weight that does not fit.
#[test]
fn one_weight_of_many() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    let ones = || Initializer::new("constant", Attributes::new().with("value", 1.0));
    let parameter = |name: &str, dtype, dims: &[usize]| net.parameter(name, dtype, dims, ones());
    let (a, high) = (parameter("a", DType::F32, &[2, 1]), parameter("high", DType::F32, &[3, 1]));
    let (double, bias) = (parameter("double", DType::F64, &[2, 1]), parameter("bias", DType::F32, &[1]));
    let product = |weights: &[Var], biases: &[Var]| -> Var {
        net.append("linear", &[("x", &[x]), ("weight", weights), ("bias", biases)], Attributes::new())
    };
    assert_eq!(net.spec(product(&[a, a], &[bias, bias])).unwrap().width(), 2);
    says(
        product(&[a, high], &[]),
        "`weight`[1]: expected a height of 2, the height of the first weight, got f32[3, 1]",
    );
    says(product(&[a, double], &[]), "`weight`[1]: expected f32, the dtype of `x`, got f64[2, 1]");
    says(product(&[a, a], &[bias]), "one for each `weight`: expected none or 2, got 1");
    says(product(&[a, a], &[bias, a]), "`bias`[1]: expected a constant of shape [1], got f32[2, 1]");
    says(product(&[], &[]), "`weight`: expected at least one variable, got 0");
}

#[test]
fn another_number_of_outputs() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    says(
        net.append::<(Var, Var)>("tanh", &[("x", &[x])], Attributes::new()),
        "tanh #0: requested outputs: expected 1, as many as the operator makes, got another number",
    );
}
