//! The sizes of a machine's caches and the speeds of its threads change no bit: models train as if on other machines.

use unpadded::executor::{Executor, Run, Scope};
use unpadded::kernels::cpu::{Cpu, assume, cpu};
use unpadded::kernels::force;
use unpadded::layers::{Embedding, Lstm};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::VarId;
use unpadded::{Builder, DType, Variable, ops};

use crate::models;
use crate::models::{Feed, Made, Model, Random};

/// A small machine whose threads always share columns and whose sums are cut; a machine that always streams; and one in between.
const OTHERS: [Cpu; 3] = [
    Cpu { l2: 1 << 16, l3: 0, shared: 1 << 20, memory: 100 },
    Cpu { l2: 1 << 26, l3: 1 << 28, shared: 1, memory: 1 },
    Cpu { l2: 2 << 20, l3: 24 << 20, shared: 43, memory: 64 },
];

/// Logits so wide that the chunks of the fused loss follow from the machine, and the sums over classes are cut.
const WORDS: Model = Model {
    name: "words",
    feeds: &[Feed::Words],
    build: |net| {
        let words = net.feed(Feed::Words.name(), DType::I64, &[], 1);
        let h =
            net.lstm(net.embedding(words, Embedding::new(models::VOCABULARY, 24).sparse()), Lstm::new(40));
        let logits = net.linear(h, 6000);
        Made { loss: net.mean(net.cross_entropy(logits, words)), outputs: vec![logits] }
    },
};

#[test]
fn training_gives_the_same_parameters_on_any_machine_and_however_threads_divide_it() {
    own_process!();
    let here = cpu();
    for (model, words) in [(WORDS, 200), (models::WIDE, 30)] {
        let net = Builder::new();
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        let feeds: Vec<VarId> = model.feeds.iter().map(|f| program.find(f.name()).unwrap()).collect();
        let documents = models::documents(24, 6, words, &mut Random(5));
        let values = models::batch(&model, &documents, 7);
        assert!(model.name != "words" || values[0].rows() > 768, "too few rows for two chunks");
        let feeds: Vec<(VarId, &Variable)> = feeds.iter().copied().zip(&values).collect();
        assume(here);
        let train = |threads| {
            let mut exe = Executor::new(&program, &ops::catalogue(), &[made.loss.id()], threads).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            for step in 0..2 {
                exe.run(&mut scope, &Run::train(&feeds, step)).unwrap();
            }
            let names: Vec<String> = scope.names().map(str::to_owned).collect();
            names.into_iter().map(|name| (scope.get(&name).unwrap(), name)).collect::<Vec<_>>()
        };
        let expected = train(2);
        for other in OTHERS {
            assume(other);
            for threads in [1, 2, 3, 7] {
                let got = train(threads);
                for ((a, name), (b, _)) in got.iter().zip(&expected) {
                    assert!(a.bits_eq(b), "{}: `{name}` on {threads} threads of {other:?}", model.name);
                }
            }
        }
        assume(here);
        for ratio in [0.4, f32::NAN] {
            force(ratio);
            for threads in [2, 3, 7] {
                for ((a, name), (b, _)) in train(threads).iter().zip(&expected) {
                    assert!(a.bits_eq(b), "{}: `{name}` on {threads} threads cut at {ratio}", model.name);
                }
            }
        }
        force(0.0);
    }
}
