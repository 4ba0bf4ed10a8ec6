//! Programs with mistakes: each mistake is one message, with the user's line, and its consequences are not reported.

use unpadded::layers::{Embedding, Gru, Instance, Layer, Linear, Lstm, Stacked, init};
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::program::{Recurrence, Vars};
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Var};

/// The messages of a builder's errors, each without the path before the name of this file.
fn messages(net: &Builder) -> Vec<String> {
    net.check().err().iter().flat_map(Error::all).map(|error| error.to_string()).collect()
}

/// There is one message for each pair: it begins with the words and names the line.
#[track_caller]
fn says(net: &Builder, expected: &[(&str, u32)]) {
    let found = messages(net);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (message, (words, line)) in found.iter().zip(expected) {
        let location = format!("mistakes.rs:{line}:");
        assert!(
            message.starts_with(words) && message.contains(&location),
            "expected `{words}` at {line}: {message}"
        );
    }
}

#[test]
fn three_mistakes_are_three_messages() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let (first, x) = (line!(), words.embedding(Embedding::new(0, 8))); // a table without rows
    let h = x.lstm(16); // unknown, so nothing is wrong with it
    let vectors = words.embedding(Embedding::new(9, 8));
    let (second, sum) = (line!(), vectors + vectors.sequence_pool(Pool::Last)); // rows of words and of sentences
    let logits = (sum + h).sequence_pool(Pool::Mean).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let (third, _) = (line!(), vectors.linear(0));
    let expected = [
        ("rows of layer `embedding`: expected at least one, got 0", first),
        ("add #2: rows and LoD of `y`: expected the rows and LoD of `x`", second),
        ("width of layer `linear`: expected at least 1, got 0", third),
    ];
    says(&net, &expected);
    assert_eq!(net.describe(loss), "unknown");
    assert!(net.spec(loss).is_none());
    // The trainer and the finished builder report the same errors.
    let all = messages(&net);
    let error = Trainer::new(net.clone(), loss, &Adam::new(1e-3)).err().unwrap();
    assert_eq!(error.all().map(Error::to_string).collect::<Vec<_>>(), all);
    assert_eq!(error.to_string(), format!("{}\n3 errors", all.join("\n")));
    assert_eq!(net.program().unwrap_err(), error);
    assert_eq!(net.finish().unwrap_err(), error);
}

#[test]
fn a_mistake_in_a_step_leaves_what_stands_outside() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let row = net.feed("row", DType::F32, &[4], 0);
    let mut line = 0;
    let (wrong, right) = net.recurrent(x, |step, x_t| {
        let (h_prev, c_prev) = (step.memory(4), step.memory(3));
        line = line!() + 1;
        let h = (x_t + h_prev) * c_prev;
        step.update(h_prev, h);
        step.update(c_prev, c_prev);
        (h.tanh(), x_t.tanh())
    });
    assert!(net.spec(wrong).is_none());
    assert_eq!(net.spec(right), net.spec(x));
    // A variable that was captured in a failed step can be used in another step.
    let h = net.recurrent(x, |step, x_t| {
        let h_prev = step.memory_from(row);
        let h = (x_t + row * h_prev).tanh();
        step.update(h_prev, h);
        h
    });
    assert_eq!(net.spec(h), net.spec(x));
    let (again, _) = (line!(), h + wrong + h.slice(2..9));
    let second = "slice #2: input `x`: expected rows that have the columns 2..9";
    says(
        &net,
        &[("mul #1 in the step over `x`: input `y`: expected rows of 4 numbers", line), (second, again)],
    );
}

/// A step over an unknown variable is looked at all the same: mistakes of its own are found, others not made up.
#[test]
fn a_step_over_what_is_unknown() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let (first, unknown) = (line!(), x.linear(0));
    let row = net.feed("row", DType::F32, &[4], 0);
    let mut second = 0;
    let (y, last, both) = net.recurrent((unknown, x), |step, (x_t, other)| {
        let (h_prev, c_prev) = (step.memory_from(row), step.memory(3));
        let h = (x_t + h_prev + other + row).linear(4);
        let inner = step.recurrent(x_t, |inner, deep| {
            let m = inner.memory(2);
            inner.update(m, deep + m);
            deep
        });
        second = line!() + 1;
        let c = (c_prev + 1.0).slice(0..4);
        step.update(h_prev, h);
        step.update(c_prev, c);
        (h, step.last(h_prev), inner)
    });
    for var in [y, last, both] {
        assert_eq!(net.describe(var), "unknown");
    }
    says(
        &net,
        &[
            ("width of layer `linear`", first),
            ("slice #1 in a step: input `x`: expected rows that have the columns 0..4", second),
        ],
    );
}

/// A message names the rows of a shape by the user's variable; a variable with the name of a count keeps its name.
#[test]
fn shapes_name_variables() {
    let net = Builder::new();
    let x = net.feed("rows0", DType::F32, &[3], 2);
    let sentences = x.sequence_pool(Pool::Last);
    let documents = sentences.sequence_pool(Pool::Last);
    let line = line!() + 1;
    let _ = [x, sentences, documents].map(|x| x.slice(2..4));
    let words = "input `x`: expected rows that have the columns 2..4, got f32";
    let rows = ["rows of `rows0`, 3] with 2 levels", "sequences of `rows0`, 3]", "batch, 3]"];
    let expected: Vec<String> = rows.iter().map(|rows| format!("slice #2: {words}[{rows} (at")).collect();
    says(&net, &expected.iter().map(|words| (words.as_str(), line)).collect::<Vec<_>>());
}

/// A step over the outputs of another step is named by these outputs.
#[test]
fn steps_over_steps_are_named() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let below = net.recurrent(x, |_, x_t| x_t.tanh());
    let mut line = 0;
    net.recurrent(below, |_, h| {
        line = line!() + 1;
        h.slice(2..9)
    });
    says(&net, &[("slice #0 in the step over `tanh.steps`: input `x`", line)]);
}

#[test]
fn memories_are_updated() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let line = line!() + 1;
    let y = net.recurrent(x, |step, x_t| {
        step.memory(4);
        let wide = step.memory(5);
        step.update(wide, x_t);
        x_t
    });
    let words = [
        "update of a memory: expected f32[sequences in the step over `x`, 5]",
        "recurrent #0: variable `memory`: memory: expected one",
    ];
    let found = messages(&net);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains(words[0]) && found[0].contains(&format!("mistakes.rs:{}:", line + 3)),
        "{found:?}"
    );
    assert!(found[1].contains(words[1]) && found[1].contains(&format!("mistakes.rs:{line}:")), "{found:?}");
    assert_eq!(net.spec(y), net.spec(x));
}

/// Every mistake is reported once, with the user's line.
#[test]
fn one_mistake_is_one_message() {
    #[track_caller]
    fn once(words: &str, build: impl FnOnce(&Builder, Var, Var)) {
        let (net, other) = (Builder::new(), Builder::new());
        let x = net.feed("x", DType::F32, &[4], 1);
        build(&net, x, other.feed("foreign", DType::F32, &[4], 1));
        let errors = net.finish().err();
        let found: Vec<String> = errors.iter().flat_map(Error::all).map(|error| error.to_string()).collect();
        let [message] = &found[..] else { panic!("expected `{words}` alone: {found:#?}") };
        assert!(message.contains(words) && message.contains("mistakes.rs:"), "expected `{words}`: {message}");
    }
    once("width of layer `lstm`", |_, x, _| drop(x.bidirectional(Lstm::new(0)).list()));
    once("`zoneout` of `h` of layer", |_, x, _| drop(x.bidirectional(Gru::new(2).zoneout([2.0])).list()));
    once("initial memory", |_, x, _| drop(x.stacked(Stacked::new(Gru::new(4).initial(x), 3)).list()));
    once("got a literal", |net, x, _| drop((net.literal("l", 1.0) + x).list()));
    once("of another builder", |net, x, foreign| drop(net.add(foreign, x).list()));
    once("of another builder", |net, _, foreign| drop(net.mul(foreign, foreign).list()));
    once("of another builder", |net, x, foreign| drop(net.maximum(x, foreign).list()));
    once("of another builder", |net, _, foreign| drop(net.zoneout(foreign, foreign, 0.1).list()));
    once("of another builder", |net, _, foreign| net.carry(foreign, foreign));
    once("of another builder", |net, x, foreign| {
        net.recurrent(x, |step, x_t| {
            step.update(foreign, foreign);
            x_t
        });
    });
    once("a variable inside block 1", |net, x, _| {
        let mut kept = None;
        net.recurrent(x, |_, x_t| *kept.insert(x_t));
        net.feed_like("like", DType::F32, &[4], kept.unwrap());
    });
    once("the variable was made at", |net, x, _| {
        let mut kept = None;
        net.recurrent(x, |_, x_t| *kept.insert(x_t));
        kept.unwrap().bidirectional(Lstm::new(3));
    });
    once("the final value of a memory of a step that is not finished", |net, x, _| {
        net.recurrent(x, |step, x_t| {
            let memory = step.memory(4);
            step.update(memory, x_t);
            net.tanh(step.last(memory));
            x_t
        });
    });
    once("step: expected a step that is being built, got a finished step", |net, x, _| {
        let (mut kept, weight) = (None, net.parameter("w", x, &[4], init::zeros()));
        net.recurrent(x, |step, x_t| {
            kept = Some(Builder::clone(step));
            x_t
        });
        kept.unwrap().tanh(weight);
    });
    once("a table [vocabulary, width]", |net, x, _| {
        let table = net.layer_with(Embedding::new(9, 4), x);
        x.linear(Linear::tied(&table));
    });
    once("weight of layer `linear`: expected 16 columns", |net, x, _| {
        let weight = net.parameter("w", x, &[4, 3], init::zeros());
        net.layer_with(Linear::new(16).without_bias(), (weight, None)).of(x);
    });
    once("table of layer `embedding`: expected [9, 4]", |net, _, _| {
        let ids = net.feed("ids", DType::I64, &[], 1);
        let table = net.parameter("table", DType::F32, &[8, 4], init::zeros());
        net.layer_with(Embedding::new(9, 4), table).of(ids);
    });
    once("weights of layer `silent`: expected weights", |net, x, _| {
        struct Silent;
        impl Layer for Silent {
            type Weights = ();
            fn kind(&self) -> &str {
                "silent"
            }
            fn weights(&self, _: &Builder, _: Var) -> Option<()> {
                None
            }
            fn run(&self, _: &Builder, x: Var, (): &()) -> Var {
                x
            }
        }
        let silent = net.layer(Silent);
        let _ = (silent.of(x), silent.of(x));
    });
}

/// A program is not finished inside a step.
#[test]
fn a_program_is_finished_outside_its_steps() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let line = line!() + 1;
    net.recurrent(x, |_, x_t| {
        let error = net.clone().finish().unwrap_err().to_string();
        assert!(error.contains("expected to be finished before the program"), "{error}");
        assert!(error.contains(&format!("mistakes.rs:{line}:")), "{error}");
        x_t
    });
    assert!(net.finish().is_ok());
}

/// A step of the outer builder that is opened inside another step captures the variables that it needs.
#[test]
fn a_step_of_the_outer_builder_inside_a_step() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let (z, row) = (net.feed("z", DType::F32, &[4], 1), net.feed("row", DType::F32, &[4], 0));
    let mut inner = None;
    let y = net.recurrent(x, |_, x_t| {
        inner = Some(net.recurrent(z, |_, z_t| z_t + row));
        x_t + row
    });
    let inner = inner.unwrap();
    assert_eq!((net.spec(inner), net.spec(y)), (net.spec(z), net.spec(x)));
    let wanted = [y.id(), inner.id()];
    let program = net.finish().unwrap();
    unpadded::executor::Executor::new(&program, &unpadded::ops::catalogue(), &wanted, 1).unwrap();
}

/// Lists that ask their builder, and a registry without `assign`: errors, and no panic.
#[test]
fn what_a_users_own_types_do_while_building() {
    struct Asking(Builder, Var);
    impl Vars for Asking {
        fn list(&self) -> Vec<Var> {
            assert!(self.0.spec(self.1).is_some());
            vec![self.1]
        }
        fn with(&self, vars: &[Var]) -> Self {
            Self(self.0.clone(), vars.first().copied().unwrap_or(self.1))
        }
    }
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let h = net.recurrent(Asking(net.clone(), x), |_, Asking(_, x_t)| x_t.tanh());
    assert_eq!(net.spec(h), net.spec(x));

    let net = Builder::with_registry(unpadded::Registry::empty());
    let x = net.feed("x", DType::F32, &[4], 1);
    net.recurrent(x, |step, x_t| {
        let (a, b) = (step.memory(4), step.memory(4));
        step.update(a, x_t);
        step.update(b, x_t);
        x_t
    });
    assert!(messages(&net).iter().all(|message| message.contains("`assign`")), "{:?}", messages(&net));
}

/// The wrong way round: one message, not one more for the memory that was not updated.
#[test]
fn an_update_the_wrong_way_round() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let mut line = 0;
    net.recurrent(x, |step, x_t| {
        let memory = step.memory(4);
        let next = memory + x_t;
        line = line!() + 1;
        step.update(next, memory);
        next
    });
    says(&net, &[("variable `add`: memory: expected a memory of this step, got another variable", line)]);
}

/// An error in a layer of the user's own names the line that called the layer, and the line in it.
#[test]
fn a_mistake_in_a_layer_of_ones_own() {
    #[track_caller]
    fn cell(net: &Builder, x: Var) -> Var {
        net.part("cell", |_| x.slice(0..9))
    }
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let (line, _) = (line!(), cell(&net, x));
    says(&net, &[("slice #0: input `x`: expected rows that have the columns 0..9", line)]);
    let inside = format!("; inside the layer, at {}:{}:", file!(), line - 4);
    assert!(messages(&net)[0].contains(&inside), "{inside} in {:?}", messages(&net));
}

/// Operators that are built after the trainer, for a metric or an output, are checked before the first step.
#[test]
fn a_mistake_after_the_trainer() {
    use unpadded::data::{Field, Loader, Samples};
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let h = words.embedding(Embedding::new(9, 4)).sequence_pool(Pool::Last);
    let loss = h.square().mean();
    let trainer = Trainer::new(net.clone(), loss, &Adam::new(1e-3)).unwrap();
    let (line, wrong) = (line!(), h.slice(0..9));
    let data = vec![vec![Field::from(vec![1i64, 2])]].into_iter().collect::<Samples>();
    let data = Loader::new(data, &["words"]).unwrap();
    let error = trainer.output("wrong", wrong).evaluate(&data).err().unwrap().to_string();
    assert!(error.starts_with("slice #") && error.contains(&format!("mistakes.rs:{line}:")), "{error}");
}

/// The error names both lines: the line of the use, and the line that made the variable.
#[test]
fn a_variable_of_a_step_is_used_outside() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 2);
    let mut kept = Vec::new();
    let opened = line!() + 1;
    let h = net.recurrent_with(Recurrence { level: Some(0), reverse: false }, x, |step, sentence| {
        let memory = step.memory(4);
        let made = step.recurrent(sentence, |inner, x_t| {
            let before = inner.memory(4);
            let now = (x_t + before).tanh();
            inner.update(before, now);
            kept.push((now, line!() - 2));
            now
        });
        let used = line!() + 1;
        let wrong = made + kept[0].0;
        assert_eq!(step.describe(wrong), "unknown");
        let note = format!("mistakes.rs:{}:", kept[0].1);
        let expected =
            "scope: expected a variable of block 1 or of a block around it, got a variable inside block 2";
        let error = messages(step).pop().unwrap();
        assert!(error.contains(expected) && error.contains(&format!("mistakes.rs:{used}:")), "{error}");
        assert!(error.contains("the variable was made at ") && error.contains(&note), "{error}");
        let row = made.sequence_pool(Pool::Last);
        step.update(memory, row);
        kept.push((memory, opened));
        row
    });
    let used = line!() + 1;
    let outside = h * kept[1].0;
    assert_eq!(net.describe(outside), "unknown");
    let error = messages(&net).pop().unwrap();
    assert!(error.starts_with("mul #1: variable `memory`: scope: expected a variable of block 0"), "{error}");
    assert!(error.contains(&format!("mistakes.rs:{used}:")), "{error}");
    assert!(error.contains(&format!("mistakes.rs:{opened}:")), "{error}");
    // A step that is over takes nothing more, from the outer builder neither.
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let mut kept = None;
    net.recurrent(x, |_, x_t| *kept.insert(net.tanh(x_t)));
    assert_eq!(net.describe(net.tanh(kept.unwrap())), "unknown");
    assert_eq!(messages(&net).len(), 1);
}

/// A dropped builder: the thread keeps the error with its line, and nothing panics.
#[test]
fn variables_without_their_builder() {
    let gone = {
        let net = Builder::new();
        net.feed("x", DType::F32, &[4], 1)
    };
    let used = line!() + 1;
    let y = (gone + 1.0).tanh().lstm(4).sequence_pool(Pool::Last);
    assert_eq!(format!("{y:?}"), "unknown");
    assert!(format!("{gone:?}").contains("not here"));
    let (_, [h, c]) = Builder::new().layer(Lstm::new(3)).states(gone);
    let (_, states) = gone.stacked_states(Stacked::new(Gru::new(3), 2).bidirectional());
    assert_eq!((states.len(), format!("{h:?}") == format!("{c:?}")), (4, true));
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let found = messages(&net);
    assert_eq!(found.len(), 3, "{found:?}");
    let expected = "variable: expected a variable whose builder still exists, got a variable of a builder that was finished or dropped";
    assert!(
        found[0].starts_with(expected) && found[0].contains(&format!("mistakes.rs:{used}:")),
        "{found:?}"
    );
    assert!(net.finish().is_err());

    let foreign = Builder::new();
    let mixed = foreign.feed("y", DType::F32, &[4], 1) + x;
    assert_eq!(foreign.describe(mixed), "unknown");
    let expected = "add #0: variable: expected a variable of this builder, got a variable of another builder";
    assert!(messages(&foreign)[0].starts_with(expected), "{:?}", messages(&foreign));
}

/// A panic inside a step, a scope and a layer leaves the builder as if they were closed.
#[test]
fn a_panic_closes_what_was_open() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        net.scope("encoder", |net| {
            net.part("cell", |net| net.recurrent(x, |_, _| -> Var { panic!("on purpose") }))
        })
    }));
    assert!(panicked.is_err());
    let line = line!() + 1;
    let y = x.linear(3);
    assert_eq!(net.describe(y), "`linear`: f32[rows0, 3] lod(0)");
    let program = net.finish().unwrap();
    assert!(program.find("linear_0.weight").is_some());
    assert!(program.root().ops[0].caller.contains(&format!("mistakes.rs:{line}:")));
}

/// A layer that holds layers, as a user writes one.
struct Gated;

impl Layer for Gated {
    type Weights = (Instance<Linear>, Instance<Lstm>);

    fn kind(&self) -> &str {
        "gated"
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
        let width = net.spec(x)?.width();
        Some((net.layer(Linear::new(width)), net.layer(Lstm::new(width))))
    }

    fn run(&self, _: &Builder, x: Var, (gate, inner): &Self::Weights) -> Var {
        gate.of(x).sigmoid() * inner.of(x)
    }
}

#[test]
fn layers_in_layers_share_weights_and_name_the_users_line() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let ids = net.feed("ids", DType::I64, &[], 1);
    let gated = net.scope("encoder", |net| net.layer(Gated));
    assert!(gated.weights().is_none());
    // A layer over an unknown variable makes no weights; the next call does.
    let first = line!() + 1;
    gated.of(x.slice(3..9));
    let one = gated.of(x);
    let program = {
        let good = Builder::new();
        let x = good.feed("x", DType::F32, &[4], 1);
        let gated = good.scope("encoder", |net| net.layer(Gated));
        let line = line!() + 1;
        let y = gated.of(gated.of(x));
        assert_eq!(good.spec(y), good.spec(x));
        let program = good.finish().unwrap();
        let lines: Vec<_> = program.ops().map(|op| &op.caller).collect();
        assert!(lines.len() > 4);
        for caller in lines {
            assert!(caller.contains(&format!("mistakes.rs:{line}:")), "{caller}");
        }
        program
    };
    let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    let expected = [
        "encoder.gated_0.linear_0.weight",
        "encoder.gated_0.linear_0.bias",
        "encoder.gated_0.lstm_0.weight_ih",
        "encoder.gated_0.lstm_0.weight_hh",
        "encoder.gated_0.lstm_0.bias",
    ];
    assert_eq!(names, expected);
    assert_eq!(net.spec(one), net.spec(x));
    // Refused weights are refused once.
    let second = line!() + 2;
    let broken = net.layer(Linear::new(0));
    let _ = (broken.of(x), broken.of(one));
    let third = line!() + 1;
    let wrong = gated.of(ids);
    assert_eq!(net.describe(wrong), "unknown");
    says(
        &net,
        &[
            ("slice #0", first),
            ("width of layer `linear`", second),
            ("linear #4", third),
            ("variable `ids`: input of layer `lstm`", third),
        ],
    );
}

#[test]
fn what_an_operator_has_read_is_not_watched_afterwards() {
    let net = Builder::new();
    let (x, y) = (net.feed("x", DType::F32, &[4], 1), net.feed("y", DType::F32, &[4], 1));
    let read = line!() + 1;
    let twice = x.square();
    let late = line!() + 1;
    net.watch(x);
    // Before the first reader it is in time, and said again it changes nothing.
    net.watch(y);
    let also = y.square();
    net.watch(y);
    let inside = line!() + 2;
    net.recurrent(x, |step, x_t| {
        net.watch(x);
        let state = step.memory(4);
        step.update(state, state + x_t);
        step.last(state)
    });
    let found = messages(&net);
    says(
        &net,
        &[
            ("variable `x`: watch: expected to come before the first operator that reads", late),
            ("variable `x`: watch", inside),
        ],
    );
    assert!(
        found[0].contains(&format!("got square #0 before it, at tests/it/mistakes.rs:{read}:")),
        "{}",
        found[0]
    );
    let _ = (twice, also);
}

#[test]
fn what_an_open_step_reads_is_not_watched_in_it() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let open = line!() + 1;
    net.recurrent(x, |step, x_t| {
        net.watch(x);
        let state = step.memory(4);
        step.update(state, state + x_t);
        step.last(state)
    });
    says(&net, &[("variable `x`: watch", open + 1)]);
    let found = messages(&net);
    assert!(
        found[0].contains(&format!("recurrent #0 before it, at tests/it/mistakes.rs:{open}:")),
        "{}",
        found[0]
    );
}
