//! Programs row by row: sessions, generators, the queue.

use ndarray::array;
use unpadded::layers::Embedding;
use unpadded::predict::{Beam, Generation, Sampling};
use unpadded::{Builder, DType, Variable};

use super::Calls;
use crate::sessions::predictor;

pub(super) fn calls(calls: &mut Calls) {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = words.embedding(Embedding::new(5, 4));
    let logits = x.gru(4).linear(5);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    calls.at("Program::stepped", || program.stepped(&registry, &[]));
    let model = predictor(&program, &registry, &[logits.id()]);
    calls.at("Predictor::session", || model.session(&["nothing"]).map(drop));
    calls.at("Predictor::sessions", || model.sessions(2, &["nothing"]).map(drop));
    calls.at("Predictor::generator", || model.generator("nothing", "0").map(drop));

    let mut session = model.session(&["0"]).unwrap();
    let word = Variable::dense(array![9i64]);
    calls.at("Session::begin", || session.begin(&[("words", &word)]));
    calls.at("Session::step", || session.step(&[]));
    calls.at("Session::output", || session.output("0").map(drop));
    calls.at("Session::output", || session.output("1").map(drop));
    calls.at("Session::restore", || session.restore(b"else"));

    let generator = model.generator("words", "0").unwrap();
    calls.at("Generator::attention", || generator.clone().attention("nothing").map(drop));
    let options = Generation::new(0);
    calls.at("Generator::greedy", || generator.greedy(&[("words", &word)], &options).map(drop));
    let none = Sampling::default().top_k(0);
    calls.at("Generator::sample", || generator.sample(&[], &options, none, 1).map(drop));
    calls.at("Generator::beam", || generator.beam(&[], &options, &Beam::new(0)).map(drop));
    let found = generator.greedy(&[], &options.clone().max_steps(2)).unwrap();
    calls.at("Hypotheses::hypotheses", || found.hypotheses(1).map(drop));
    let mut sampler = Sampling::default().sampler(1).unwrap();
    calls.at("Sampler::draw_at", || sampler.draw_at(0, 0, &[f32::NAN]));

    let queue = model.queue();
    calls.at("Queue::run", || queue.run(&[("words", &word)], &["0"]).map(drop));
}
