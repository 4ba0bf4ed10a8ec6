//! The models of the workloads, each with its feeds in the order of the data's values.

#[path = "../../models/cells/diagonal_ssm.rs"]
mod diagonal_ssm;
#[path = "../../models/cells/min_gru.rs"]
mod min_gru;
#[path = "../../models/cells/rg_lru.rs"]
mod rg_lru;
#[path = "../../models/cells/slstm.rs"]
mod slstm;

use unpadded::layers::{Embedding, Gru, Linear, Lstm, init};
use unpadded::ops::{Pool, UpdateGate};
use unpadded::{Builder, DType, Var};

/// The feeds of a model and its loss.
pub(crate) struct Model {
    pub(crate) feeds: Vec<Var>,
    pub(crate) loss: Var,
}

/// The recurrent layer of a classifier.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Lstm,
    Gru,
    /// The LSTM again, spelt out operator by operator as a user would write a cell of their own.
    ByHand,
    /// The LSTM spelt out, with a product for each gate.
    ByHandApart,
    /// A cell in a user's code.
    Other(fn(&Builder, Var, usize) -> Var),
}

/// The cells of `models/cells`.
pub(crate) const CELLS: [(&str, Cell); 4] = [
    ("minGRU", Cell::Other(min_gru::min_gru)),
    ("RG-LRU", Cell::Other(rg_lru::rg_lru)),
    ("sLSTM", Cell::Other(slstm::slstm)),
    ("diagonal-ssm", Cell::Other(diagonal_ssm::diagonal_ssm)),
];

/// Embedding 30000×128 → recurrent layer → last step → linear 2 → cross-entropy.
pub(crate) fn classify(net: &Builder, cell: Cell, hidden: usize) -> Model {
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(30_000, 128).sparse());
    let h = match cell {
        Cell::Lstm => net.lstm(x, Lstm::new(hidden)),
        Cell::Gru => net.gru(x, Gru::new(hidden)),
        Cell::ByHand => lstm_by_hand(net, x, hidden, false),
        Cell::ByHandApart => lstm_by_hand(net, x, hidden, true),
        Cell::Other(cell) => cell(net, x, hidden),
    };
    let logits = net.linear(net.sequence_pool(h, Pool::Last), 2);
    Model { feeds: vec![words, label], loss: net.mean(net.cross_entropy(logits, label)) }
}

fn lstm_by_hand(net: &Builder, x: Var, hidden: usize, apart: bool) -> Var {
    net.recurrent(x, |step, x_t| {
        let (h_prev, c_prev) = (step.memory(hidden), step.memory(hidden));
        let sum = |width| x_t.linear(width) + h_prev.linear(width);
        let gates = match apart {
            true => [hidden; 4].map(sum),
            false => sum(4 * hidden).split([hidden; 4]),
        };
        let [i, f, g, o] = gates;
        let c = f.sigmoid() * c_prev + i.sigmoid() * g.tanh();
        let h = o.sigmoid() * c.tanh();
        step.update(c_prev, c);
        step.update(h_prev, h);
        h
    })
}

/// W2, hidden 512, and W2wide, 1,024: embedding 10000×256 → LSTM twice → linear 10000 → cross-entropy of the next token.
pub(crate) fn language(net: &Builder, hidden: usize) -> Model {
    let words = net.feed("words", DType::I64, &[], 1);
    let next = net.feed_like("next", DType::I64, &[], words);
    let x = net.embedding(words, Embedding::new(10_000, 256).sparse());
    let h = net.lstm(net.lstm(x, Lstm::new(hidden)), Lstm::new(hidden));
    let logits = net.linear(h, 10_000);
    Model { feeds: vec![words, next], loss: net.mean(net.cross_entropy(logits, next)) }
}

/// W4: embedding 30000×128 → LSTM(128) over the words of each sentence → last → LSTM(128) over the sentences of each
/// document → last → linear 5 → cross-entropy.
pub(crate) fn nested(net: &Builder) -> Model {
    let words = net.feed("words", DType::I64, &[], 2);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(30_000, 128).sparse());
    let sentences = net.sequence_pool(net.lstm(x, Lstm::new(128)), Pool::Last);
    let documents = net.sequence_pool(net.lstm(sentences, Lstm::new(128)), Pool::Last);
    let logits = net.linear(documents, 5);
    Model { feeds: vec![words, label], loss: net.mean(net.cross_entropy(logits, label)) }
}

/// How the decoder of W5 attends.
#[derive(Clone, Copy)]
pub(crate) enum Attends {
    /// By the operator.
    AsOne,
    /// By an equal computation, spelt out operator by operator.
    ByHand,
}

/// W5: a GRU(256) over the source; a decoder, step by step a GRU cell(256) of the target's embedding and of additive attention to
/// the source's states → linear 8000 → cross-entropy of the next token.
pub(crate) fn translate(net: &Builder, attends: Attends) -> Model {
    let ([source, words], logits) = decoder(net, attends);
    let next = net.feed_like("next", DType::I64, &[], words);
    Model { feeds: vec![source, words, next], loss: net.mean(net.cross_entropy(logits, next)) }
}

/// Returns the feeds `source` and `words` of W5, and the scores of the next token after each of the words.
pub(crate) fn decoder(net: &Builder, attends: Attends) -> ([Var; 2], Var) {
    const HIDDEN: usize = 256;
    let source = net.feed("source", DType::I64, &[], 1);
    let words = net.feed("words", DType::I64, &[], 1);
    let embedded = |ids| net.embedding(ids, Embedding::new(8_000, 128).sparse());
    let (encoded, last) = net.gru_states(embedded(source), Gru::new(HIDDEN));
    let v = net.parameter("v", DType::F32, &[HIDDEN], init::uniform(-0.0625, 0.0625));
    let states = net.recurrent(embedded(words), |step, x| {
        let h = step.memory_from(last);
        let (query, keys) = (h.linear(HIDDEN), encoded.linear(Linear::new(HIDDEN).without_bias()));
        let context = match attends {
            Attends::AsOne => query.additive_attention(keys, encoded, v),
            Attends::ByHand => {
                let met = (query.sequence_expand_as(keys) + keys).tanh();
                let weights = (met * v).sum_features().sequence_softmax();
                (encoded * weights).sequence_pool(Pool::Sum)
            }
        };
        // One product of both side by side; the product of the words leaves the loop.
        let from_input = x.linear(3 * HIDDEN) + context.linear(Linear::new(3 * HIDDEN).without_bias());
        let new = step.gru_cell(from_input, h.linear(3 * HIDDEN), h, UpdateGate::Keeps);
        step.update(h, new);
        new
    });
    ([source, words], net.linear(states, 8_000))
}
