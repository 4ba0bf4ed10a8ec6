//! What a user reads who appends an operator that does not fit: the slot, what was expected and what came, and the
//! line of the call.

use unpadded::kernels::Transpose;
use unpadded::ops::Pool;
use unpadded::program::{Attributes, Initializer, Recurrence};
use unpadded::{Builder, DType, Result, Var};

/// `error` has all the words, and names this file.
#[track_caller]
fn says<T: std::fmt::Debug>(error: Result<T>, words: &str) {
    let message = error.unwrap_err().to_string();
    assert!(message.contains(words), "expected `{words}` in: {message}");
    assert!(message.contains(file!()), "expected `{}` in: {message}", file!());
}

fn constant(net: &Builder, dims: &[usize]) -> Var {
    let ones = Initializer::new("constant", Attributes::new().with("value", 1.0));
    net.parameter("constant", DType::F32, dims, ones).unwrap()
}

#[test]
fn a_constant_may_come_first_where_the_order_does_not_matter() {
    let net = Builder::new();
    let words = net.feed("words", DType::F32, &[3], 1).unwrap();
    let scale = constant(&net, &[3]);
    assert_eq!(net.spec(net.mul(scale, words).unwrap()).unwrap(), net.spec(words).unwrap());
    assert_eq!(net.spec(net.add(scale, words).unwrap()).unwrap(), net.spec(words).unwrap());
    says(
        net.sub(scale, words),
        "rows and LoD of `y`: expected those of `x`, f32[3], got f32[rows0, 3] lod(0)",
    );
}

#[test]
fn rows_and_widths_must_meet() {
    let net = Builder::new();
    let source = net.feed("source", DType::F32, &[3], 1).unwrap();
    let target = net.feed("target", DType::F32, &[3], 1).unwrap();
    let ids = net.feed("ids", DType::I64, &[], 1).unwrap();
    says(net.add(source, target), "expected those of `x`, f32[rows0, 3] lod(0), got f32[rows1, 3] lod(1)");
    says(
        net.add(source, constant(&net, &[2])),
        "`y`: expected rows of 3 numbers, as `x` has, or of one, got f32[2]",
    );
    says(net.concat(&[source, target]), "input `x`[1]: expected the dtype, rows and LoD of the first");
    says(net.tanh(ids), "input `x`: expected dtype f32 or f64, got i64[rows2] lod(2)");
    assert!(net.spec(net.assign(ids).unwrap()).is_ok());
}

#[test]
fn columns_must_be_there() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[5], 1).unwrap();
    assert_eq!(net.split(x, &[2, 3]).unwrap().len(), 2);
    says(net.split(x, &[2, 2]), "input `x`: expected rows of as many numbers as the sizes [2, 2] add up to");
    says(net.slice(x, 3..6), "input `x`: expected rows that have the columns 3..6, got f32[rows0, 5]");
    let empty = net.slice(x, 2..2).unwrap();
    says(net.max_features(empty), "input `x`: expected at least one number in a row, got f32[rows0, 0]");
}

#[test]
fn matrices_must_fit() {
    let net = Builder::new();
    let (x, y) = (constant(&net, &[2, 3]), constant(&net, &[2, 3]));
    let product = net.matmul_with(x, Transpose::Yes, y, Transpose::No).unwrap();
    assert_eq!(net.spec(product).unwrap().to_string(), "f32[3, 3]");
    says(net.matmul(x, y), "input `y`: expected 3 rows, to fit `x`, f32[2, 3], got f32[2, 3]");
    let rows = net.feed("rows", DType::F32, &[3], 1).unwrap();
    says(net.matmul(rows, y), "input `x`: expected a matrix that is not batched, got f32[rows0, 3]");
}

#[test]
fn attributes_must_be_in_range() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[5], 1).unwrap();
    says(net.dropout(x, 1.0), "attribute `rate`: expected a number from 0 to below 1, got 1");
    says(net.dropout(x, f64::NAN), "attribute `rate`");
}

#[test]
fn a_cell_of_plain_operators_is_built() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1).unwrap();
    let outside = net.feed("outside", DType::F32, &[3], 0).unwrap();
    let bias = constant(&net, &[3]);
    let out = net.recurrent(x, |step, x_t| {
        let before = step.memory(3)?;
        let h = step.add(bias, step.add(x_t, step.mul(before, outside)?)?)?;
        let h = step.tanh(h)?;
        step.update(before, h)?;
        Ok(h)
    });
    assert_eq!(net.spec(out.unwrap()).unwrap().to_string(), "f32[rows0, 3] lod(0)");
}

/// A step that failed leaves nothing behind, also in the step around it that goes on without it.
#[test]
fn a_step_goes_on_after_one_inside_it_failed() {
    let build = |tries: bool| {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[3], 2).unwrap();
        let topic = net.feed("topic", DType::F32, &[3], 0).unwrap();
        let other = net.feed("other", DType::F32, &[3], 0).unwrap();
        let over = Recurrence { level: Some(0), reverse: false };
        let out = net.recurrent_with(over, x, |step, sentence| {
            let before = step.memory(3)?;
            if tries {
                let refused: Result<Var> = step.recurrent(before, |_, x_t| Ok(x_t));
                assert!(refused.is_err());
                let refused: Result<Var> = step.recurrent(sentence, |inner, x_t| {
                    inner.memory_from(topic)?;
                    inner.add(x_t, other)
                });
                assert!(refused.is_err());
            }
            let now = step.add(step.sequence_pool(sentence, Pool::Sum)?, step.mul(before, topic)?)?;
            step.update(before, now)?;
            Ok(now)
        });
        out.unwrap();
        let mut program = net.finish().to_string();
        // Lines of this file.
        program.retain(|c| !c.is_ascii_digit());
        program
    };
    assert_eq!(build(true), build(false));
}
