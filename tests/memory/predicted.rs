//! The memory that a predictor and a session compute before they run, beside the memory that they take.

use std::collections::BTreeMap;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Scope;
use unpadded::layers::Embedding;
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::{Builder, DType, Program, Registry, Var, Variable, ops};

use crate::{models, peak_memory};

/// A predictor of a program with its first weights.
pub(crate) fn predictor_of(
    program: Program,
    registry: &Registry,
    outputs: impl Iterator<Item = (String, VarId)>,
) -> Predictor {
    let named: BTreeMap<_, _> = outputs.map(|(name, id)| (name, program.var(id).name.clone())).collect();
    let mut scope = Scope::of(&program).unwrap();
    let kept = program.vars().filter(|(_, desc)| desc.persistable);
    let tensors = kept.map(|(_, desc)| (desc.name.clone(), scope.value(&desc.name).unwrap())).collect();
    let mut checkpoint = Checkpoint::of(program, named);
    checkpoint.tensors = tensors;
    Predictor::new(checkpoint, registry).unwrap()
}

/// A predictor of a model with its first weights.
pub(crate) fn predictor(net: Builder, outputs: &[(&str, Var)]) -> Predictor {
    let outputs = outputs.iter().map(|(name, var)| ((*name).to_owned(), var.id()));
    predictor_of(net.finish().unwrap(), &ops::catalogue(), outputs)
}

#[test]
fn the_computed_memory_of_sessions_is_the_peak_of_their_steps() {
    own_process!();
    const SESSIONS: usize = 100;
    let stacked = |net: &Builder| {
        let words = net.feed("words", DType::I64, &[], 1);
        words.embedding(Embedding::new(100, 64)).lstm(32).lstm(48).linear(20).softmax()
    };
    let static_rows = |net: &Builder| (models::STATIC_ROWS.build)(net).outputs[0];
    let kinds: [(&str, &dyn Fn(&Builder) -> Var); 2] = [("stacked", &stacked), ("static rows", &static_rows)];
    for (name, build) in kinds {
        for sequences in [1, 40] {
            let net = Builder::new();
            let output = build(&net);
            let predictor = predictor(net, &[("out", output)]).threads(1);
            let word = Variable::dense(ndarray::Array1::<i64>::ones(sequences));
            let x = Variable::dense(ndarray::Array2::<f32>::ones((sequences, models::INPUT)));
            let (begin, step) = match name {
                "stacked" => (vec![], [("words", &word)]),
                _ => (vec![("topic", &x)], [("x", &x)]),
            };
            let begun = || {
                let mut session = predictor.sessions(sequences, &["out"]).unwrap();
                session.begin(&begin).unwrap();
                session
            };
            let memory = begun().memory().unwrap();
            let own = |sessions: usize| {
                let mut all: Vec<_> = (0..sessions).map(|_| begun()).collect();
                let (first, ()) = peak_memory::of(|| all[0].step(&step).unwrap());
                all.iter_mut().for_each(|session| session.step(&step).unwrap());
                (first, all)
            };
            // Every session but the first uses the compiled step of the first.
            let (peak, (first, all)) = peak_memory::of(|| own(SESSIONS));
            let of_step = memory.total() - memory.state - memory.parameters;
            println!("{name}, {sequences} sequences: {first} bytes of the first step, {of_step} computed");
            println!("{} bytes of {} sessions, {} computed for each", peak - first, all.len(), memory.state);
            assert!(first <= of_step + memory.state, "{first} bytes of the first step, {memory:?}");
            assert!(
                of_step <= first + first * 15 / 100 + (64 << 10),
                "{first} bytes of the first step, {memory:?}"
            );
            let (held, computed) = (peak - first, SESSIONS * memory.state);
            assert!(
                held <= computed + memory.state && computed <= held + held * 15 / 100,
                "{held} bytes held, {computed} computed"
            );
        }
    }
}
