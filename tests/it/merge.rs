//! Cells that are written gate by gate: products that share an input are one call of the loop, with the same values, and
//! their sums stay in place.

use std::sync::Arc;

use unpadded::executor::{Executor, Run, Scope, Stage, interpret};
use unpadded::layers::Linear;
use unpadded::program::{Recurrence, Step, VarId, backward};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Program, Var, Variable, ops};

use crate::models::Random;

const WIDTH: usize = 20;

struct Model {
    program: Program,
    x: VarId,
    /// The output of every step.
    y: VarId,
    /// y, the loss and the gradient of every parameter and of x.
    wanted: Vec<VarId>,
}

fn model(cell: impl FnOnce(&Step, Var) -> Var) -> Model {
    built(1, |net, x| net.recurrent(x, cell))
}

fn built(levels: usize, build: impl FnOnce(&Builder, Var) -> Var) -> Model {
    let net = Builder::new().seed(5);
    let x = net.feed("x", DType::F32, &[7], levels);
    net.watch(x);
    let y = build(&net, x);
    let loss = net.sum(net.mul(y, y));
    let mut program = net.finish().unwrap();
    let gradients = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let mut wanted = vec![y.id(), loss.id()];
    wanted.extend(gradients.iter().map(|(_, gradient)| *gradient));
    wanted.extend(program.vars().filter(|(_, var)| var.gradient_of == Some(x.id())).map(|(id, _)| id));
    Model { x: x.id(), y: y.id(), wanted, program }
}

fn batch(lod: Arc<Lod>) -> Variable {
    let (rows, mut random) = (lod.rows(), Random(3));
    let numbers: Vec<f32> = (0..rows * 7).map(|_| random.below(2000) as f32 / 1000.0 - 1.0).collect();
    let x = Dense::from_vec(&[rows, 7], numbers).unwrap();
    Variable::new(x, Some(lod)).unwrap()
}

impl Model {
    fn executor(&self, threads: usize) -> Executor {
        let executor = Executor::new(&self.program, &ops::catalogue(), &self.wanted, threads).unwrap();
        if threads > 1 { crate::models::divided(executor) } else { executor }
    }

    fn run(&self, x: &Variable, threads: usize) -> Vec<Vec<f32>> {
        let (mut scope, mut executor) = (Scope::of(&self.program).unwrap(), self.executor(threads));
        executor.run(&mut scope, &Run::train(&[(self.x, x)], 1).until(Stage::Gradients)).unwrap();
        let numbers = |&v: &VarId| executor.fetch(v).unwrap().as_slice::<f32>().unwrap().to_vec();
        self.wanted.iter().map(numbers).collect()
    }

    /// Runs the program on 1, 2 and 3 threads and by the interpreter; returns the requested values.
    #[track_caller]
    fn agrees(&self, x: &Variable) -> Vec<Vec<f32>> {
        let one = self.run(x, 1);
        for threads in [2, 3] {
            assert!(self.run(x, threads) == one, "{threads} threads");
        }
        let (mut scope, feeds) = (Scope::of(&self.program).unwrap(), [(self.x, x)]);
        let asked = Run::train(&feeds, 1).until(Stage::Gradients);
        let plain = interpret(&self.program, &ops::catalogue(), &mut scope, &asked).unwrap();
        assert!(one[0] == plain[&self.y].as_slice::<f32>().unwrap(), "forward");
        for (ours, var) in one.iter().zip(&self.wanted) {
            let theirs = plain[var].storage().to_dense().unwrap().as_slice::<f32>().unwrap().to_vec();
            let scale = theirs.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            let off = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 2e-5 * scale, "`{}`: {off} of {scale}", self.program.var(*var).name);
        }
        one
    }

    /// Runs the program also sequence by sequence; returns the listing.
    #[track_caller]
    fn holds(&self) -> String {
        let lengths = [3, 0, 9, 1, 30, 2];
        let x = batch(Lod::from_lengths1(&lengths).unwrap());
        let (one, mut from) = (self.agrees(&x), 0);
        let width = one[0].len() / x.rows();
        for (sequence, length) in lengths.into_iter().enumerate() {
            let alone = &self.run(&crate::models::take(&x, &[sequence]), 1)[0];
            assert!(one[0][from..from + length * width] == alone[..], "sequence {sequence}");
            from += length * width;
        }
        self.executor(1).listing().to_string()
    }
}

fn gate(step: &Step, x: Var, h: Var) -> Var {
    step.add(step.linear(x, WIDTH), step.linear(h, Linear::new(WIDTH).without_bias()))
}

/// The calls of the loop forward that are products.
fn looped(listing: &str) -> Vec<&str> {
    let part = listing.split("the loop, at every step").nth(1).unwrap_or("");
    let part = part.split("without a call").next().unwrap_or("").split("back into").next().unwrap_or("");
    part.lines().filter(|line| line.contains("] linear")).map(str::trim).collect()
}

#[test]
fn the_gates_of_an_lstm_are_two_products() {
    let listing = model(|step, x| {
        let (h, c) = (step.memory(WIDTH), step.memory(WIDTH));
        let i = step.sigmoid(gate(step, x, h));
        let f = step.sigmoid(gate(step, x, h));
        let g = step.tanh(gate(step, x, h));
        let o = step.sigmoid(gate(step, x, h));
        let next = step.add(step.mul(f, c), step.mul(i, g));
        let out = step.mul(o, step.tanh(next));
        step.update(c, next);
        step.update(h, out);
        out
    })
    .holds();
    for text in [
        "linear #0, linear #4, linear #8, linear #12 as one, since all read `x.step`",
        "linear #1, linear #5, linear #9, linear #13 as one, since all read `memory`",
        "linear #19, linear #15, linear #11, linear #7 as one",
        "add_3: columns 40..60 of linear.merged",
        "linear_2.merged: added up in linear.merged",
        "add_4@grad: columns 60..80 of add.merged@grad",
        "linear_2.merged@grad: is add.merged@grad",
    ] {
        assert!(listing.contains(text), "{text}\nis not in\n{listing}");
    }
    assert_eq!(looped(&listing).len(), 1, "{listing}");
}

/// The candidate of a GRU that resets before its product reads another value than its gates, so the products of the
/// input fall apart the same way.
#[test]
fn what_reads_another_value_stays_apart() {
    let listing = model(|step, x| {
        let h = step.memory(WIDTH);
        let r = step.sigmoid(gate(step, x, h));
        let z = step.sigmoid(gate(step, x, h));
        let n = step.tanh(gate(step, x, step.mul(r, h)));
        let out = step.add(n, step.mul(z, step.sub(h, n)));
        step.update(h, out);
        out
    })
    .holds();
    assert_eq!(looped(&listing).len(), 2, "{listing}");
    assert!(listing.contains("linear #0, linear #4 as one, since all read `x.step`"), "{listing}");
    assert!(listing.contains("linear_2.merged: added up in linear.merged"), "{listing}");
    assert!(listing.contains("added up in linear_5"), "{listing}");
}

/// Three terms, in another order each time; and terms that lack a bias, a gradient or a partner.
#[test]
fn terms_of_any_number_and_order() {
    let listing = model(|step, x| {
        let (h, other) = (step.memory(WIDTH), step.memory(WIDTH));
        let plain = |from: Var| step.linear(from, Linear::new(WIDTH).without_bias());
        let a = step.add(step.add(plain(x), plain(h)), plain(other));
        let b = step.add(plain(other), step.add(plain(h), plain(x)));
        let c = step.add(step.add(plain(h), plain(x)), plain(other));
        let out = step.tanh(step.add(step.mul(step.sigmoid(a), step.tanh(b)), c));
        step.update(h, out);
        step.update(other, step.sigmoid(c));
        out
    })
    .holds();
    assert_eq!(looped(&listing).len(), 2, "{listing}");
    assert_eq!(listing.matches("added up in linear.merged").count(), 4, "{listing}");

    let listing = model(|step, x| {
        let h = step.memory(WIDTH);
        let spread = unpadded::layers::init::uniform(-0.3, 0.3);
        let frozen = step.parameter("frozen", DType::F32, &[WIDTH, WIDTH], spread);
        step.stop_gradient(frozen);
        let a = step.product(h, frozen, None);
        let b = step.linear(h, Linear::new(WIDTH).without_bias());
        let c = step.linear(h, Linear::new(3).without_bias());
        // A product with a bias, a product that is added to another product, and a product that leaves the step.
        let d = step.linear(h, WIDTH);
        let sum = step.add(
            step.linear(h, Linear::new(WIDTH).without_bias()),
            step.linear(h, Linear::new(WIDTH).without_bias()),
        );
        let seen = step.concat(&[step.tanh(a), step.tanh(b), step.tanh(c), step.tanh(d), sum, x]);
        let out = step.tanh(step.linear(seen, WIDTH));
        step.update(h, out);
        out
    })
    .holds();
    assert!(listing.contains("as one, since all read `memory`"), "{listing}");
}

/// Products that run once, before or after the loop, are not merged.
#[test]
fn outside_the_loop_there_is_nothing_to_gain() {
    let listing = model(|step, x| {
        let h = step.memory(WIDTH);
        let z = step.sigmoid(step.linear(x, WIDTH));
        let n = step.tanh(step.linear(x, WIDTH));
        let next = step.add(step.mul(z, h), n);
        step.update(h, next);
        step.mul(step.tanh(step.linear(next, WIDTH)), step.sigmoid(step.linear(next, WIDTH)))
    })
    .holds();
    assert!(!listing.contains("as one"), "{listing}");
}

/// Weights that the step around makes, beside parameters.
#[test]
fn weights_of_the_block_around() {
    let model = built(2, |net, x| {
        let spread = || unpadded::layers::init::uniform(-0.3, 0.3);
        let plain = net.parameter("plain", DType::F32, &[WIDTH, WIDTH], spread());
        net.recurrent_with(Recurrence { level: Some(0), ..Recurrence::default() }, x, |step, sentence| {
            let h = step.memory(WIDTH);
            let made = step.tanh(step.mul(plain, plain));
            let last = step.recurrent(sentence, |inner, x| {
                let k = inner.memory(WIDTH);
                let (a, b) = (inner.product(k, made, None), inner.product(k, plain, None));
                let next = inner.tanh(inner.add(inner.mul(a, b), inner.linear(x, WIDTH)));
                inner.update(k, next);
                inner.last(k)
            });
            let next = step.add(step.tanh(h), last);
            step.update(h, next);
            next
        })
    });
    let lod = Lod::from_lengths(&[vec![2, 0, 3], vec![3, 1, 0, 4, 2]]).unwrap();
    model.agrees(&batch(lod));
    let listing = model.executor(1).listing().to_string();
    assert!(listing.contains("as one, since all read"), "{listing}");
}

/// Products of products, and of sums of products: each reads its own part of the earlier merged product.
#[test]
fn products_of_products() {
    let listing = model(|step, x| {
        let h = step.memory(WIDTH);
        let (a, b) = (step.linear(h, WIDTH), step.linear(h, WIDTH));
        let (c, d) = (step.linear(a, WIDTH), step.linear(a, WIDTH));
        let (e, f) = (step.add(c, step.linear(b, WIDTH)), step.add(d, step.linear(b, WIDTH)));
        let (g, i) = (step.linear(f, 3), step.linear(f, 3));
        let seen = step.concat(&[step.tanh(e), step.tanh(f), g, i, b, x]);
        let out = step.tanh(step.linear(seen, WIDTH));
        step.update(h, out);
        out
    })
    .holds();
    assert!(listing.contains("as one, since all read"), "{listing}");
}
