//! Tests the text of a small program and of malformed programs.

use super::*;
use crate::operator::{Attributes, LevelId};
use crate::program::{Builder, Initializer, Memory, StepGradient, backward};
use crate::tensor::DType;

/// Returns a program with a step block (two products and a memory), its gradients, and an update.
pub(in crate::program) fn small_program() -> Program {
    let net = Builder::new().seed(7);
    let x = net.feed("x", DType::F32, &[3], 1);
    let start = net.feed("start", DType::F32, &[2], 0);
    net.literal("labels", vec!["good", "bad"]);
    let xavier = Initializer::new("xavier_uniform", Attributes::new().with("blocks", 1));
    let w = net.parameter("fc.weight", DType::F32, &[3, 2], xavier);
    let b = net.parameter("fc.bias", DType::F32, &[2], Initializer::new("zeros", Attributes::new()));
    let u = net.parameter("u", DType::F32, &[2, 2], Initializer::new("zeros", Attributes::new()));
    net.watch(x);
    net.watch(start);
    let (a, last) = net.recurrent(x, |step, x_t| {
        let h_prev = step.memory_from(start);
        let a = step.product(x_t, w, Some(b));
        let h = step.add(step.product(h_prev, u, None), start);
        step.update(h_prev, h);
        (a, step.last(h_prev))
    });
    let loss = net.sum(a) + net.sum(last);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let gradients = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
    let bound = |slot: &str, var| SlotVars { slot: slot.to_owned(), vars: vec![var] };
    program.blocks[0].ops.push(OpDesc {
        kind: "sgd".into(),
        role: Role::Update,
        inputs: vec![bound("gradient", gradients[&w.id()])],
        outputs: vec![bound("parameter", w.id())],
        attributes: Attributes::new().with("rate", 0.5).with("mode", "lazy"),
        step: None,
        caller: "here".into(),
    });
    program.validate().unwrap();
    program
}

#[test]
fn listing_of_a_small_program() {
    let expected = "\
program: 3 trainable variables of 12 numbers, 2 step blocks, seed 7
feeds
  x: f32[rows0, 3] lod(0) [-1, 3]
  start: f32[batch, 2] [-1, 2]
parameters
  fc.weight: f32[3, 2] [3, 2] starts as xavier_uniform {blocks=1}
  fc.bias: f32[2] [2] starts as zeros
  u: f32[2, 2] [2, 2] starts as zeros
literals
  labels = [\"good\", \"bad\"]
operators
  (linear.steps: f32[rows0, 2] lod(0), memory.last: f32[batch, 2]) = recurrent(x, static=start, initial=start, constant=[fc.weight, fc.bias, u])
    over level 0
    input x.step: f32[alive1, 3] <- x
    static start.static: f32[alive1, 2] <- start
    memory memory: f32[alive1, 2] <- add, starts as start, last -> memory.last
    output linear -> linear.steps
    step block 1
      linear: f32[alive1, 2] = linear(x.step, weight=fc.weight, bias=fc.bias)
      linear_2: f32[alive1, 2] = linear(memory, weight=u)
      add: f32[alive1, 2] = add(linear_2, y=start.static)
";
    let listing = small_program().to_string();
    assert_eq!(&listing[..expected.len().min(listing.len())], expected, "{listing}");
    let rest = &listing[expected.len()..];
    assert!(
        rest.contains(
            ") = recurrent(x, static=start, initial=start, constant=[fc.weight, fc.bias, u], out@grad="
        ),
        "{rest}"
    );
    assert!(rest.contains("    step block 1: as above\n"), "{rest}");
    assert!(
        rest.contains(
            "    gradient of memory 0: add@grad <- memory@grad, last memory.last@grad, initial start@grad\n    gradient block 2\n"
        ),
        "{rest}"
    );
    let update = "fc.weight: f32[3, 2] = sgd(gradient=fc.weight@grad) {mode=\"lazy\", rate=0.5}  # update\n";
    assert!(rest.ends_with(update), "{rest}");
}

#[test]
fn a_name_cannot_forge_a_line() {
    let net = Builder::new();
    net.feed("x\noperators\n  y = evil()", DType::F32, &[1], 0);
    assert!(
        net.finish()
            .unwrap()
            .to_string()
            .contains("  \"x\\noperators\\n  y = evil()\": f32[batch, 1] [-1, 1]\n")
    );
}

fn recurrent(block: u32, gradient: Option<u32>) -> OpDesc {
    let memory = Memory { previous: VarId(99), next: VarId(98), initial: None, last: None };
    OpDesc {
        kind: "recurrent".into(),
        role: Role::Forward,
        inputs: vec![SlotVars { slot: "x".into(), vars: vec![VarId(5)] }],
        outputs: Vec::new(),
        attributes: Attributes::new(),
        caller: String::new(),
        step: Some(Box::new(StepDesc {
            block: BlockId(block),
            level: LevelId(0),
            reverse: true,
            inputs: vec![VarPair { outer: VarId(7), inner: VarId(8) }],
            statics: Vec::new(),
            memories: vec![memory],
            outputs: Vec::new(),
            levels: Vec::new(),
            gradient: gradient.map(|block| {
                let block = BlockId(block);
                Box::new(StepGradient {
                    block,
                    outputs: Vec::new(),
                    inputs: Vec::new(),
                    statics: Vec::new(),
                    constants: Vec::new(),
                    memories: Vec::new(),
                })
            }),
        })),
    }
}

/// Programs print even if blocks do not exist, contain themselves, are nested very deeply, or are each referred to twice by the
/// block above.
#[test]
fn anything_prints() {
    let mut program = Program::new();
    program.blocks[0].ops = vec![recurrent(0, Some(77)), recurrent(9, Some(0))];
    let text = program.to_string();
    assert!(text.contains("step block ?9") && text.contains("memory ?99 <- ?98"), "{text}");
    assert!(!program.dot().is_empty());

    let mut program = Program::new();
    program.levels = 1;
    for block in 0..3000 {
        program.add_block(BlockId(block));
        program.blocks[block as usize].ops = vec![recurrent(block + 1, Some(block + 1)); 2];
    }
    for text in [program.to_string(), program.dot()] {
        assert!(text.len() < 4_000_000, "{}", text.len());
    }
    assert!(program.to_string().contains("step block 3000\n"));
}

#[test]
fn dot_escapes_every_name() {
    let net = Builder::new();
    let name = "a \"quoted\" \\ name\n";
    let x = net.feed(name, DType::F32, &[3], 1);
    let w = net.parameter("w\"", DType::F32, &[3, 2], Initializer::new("zeros", Attributes::new()));
    net.product(x, w, None);
    let dot = net.finish().unwrap().dot();
    let escaped = r#"a \"quoted\" \\ name\n"#;
    assert!(dot.contains(escaped), "{dot}");
    for line in dot.lines() {
        let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        assert_eq!(quotes % 2, 0, "{line}");
    }
}

#[test]
fn dot_has_a_cluster_for_each_step_block() {
    let dot = small_program().dot();
    assert!(dot.starts_with("digraph program {\n") && dot.ends_with("}\n"));
    assert_eq!(dot.matches("subgraph cluster_").count(), 2);
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

#[test]
fn all_parameters_are_counted_and_those_that_are_trained() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 0);
    let parameter = |name, dims: &[usize]| {
        net.parameter(name, DType::F32, dims, Initializer::new("zeros", Attributes::new()))
    };
    let (frozen, weight, bias) =
        (parameter("frozen", &[3]), parameter("weight", &[3, 2]), parameter("bias", &[2]));
    net.stop_gradient(frozen);
    net.product(net.mul(x, frozen), weight, Some(bias));
    let program = net.finish().unwrap();
    let name = |id| program.var(id).name.as_str();
    let all: Vec<&str> = program.parameters().map(name).collect();
    let trained: Vec<&str> = program.trained_parameters().map(name).collect();
    assert_eq!(all, ["frozen", "weight", "bias"]);
    assert_eq!(trained, all[1..]);
    assert_eq!((program.parameter_count(), program.trained_parameter_count()), (11, 8));
}
