//! The models of the workloads, each with its feeds in the order of the data's values.

#[path = "../../models/cells/diagonal_ssm.rs"]
mod diagonal_ssm;
#[path = "../../models/cells/min_gru.rs"]
mod min_gru;
#[path = "../../models/cells/rg_lru.rs"]
mod rg_lru;
#[path = "../../models/cells/slstm.rs"]
mod slstm;

use unpadded::layers::{Embedding, Gru, Lstm};
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Var};

/// What a model takes and what it makes smaller.
pub(crate) struct Model {
    pub(crate) feeds: Vec<Var>,
    pub(crate) loss: Var,
}

/// Which recurrent layer a classifier has.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Lstm,
    Gru,
    /// The LSTM again, spelt out operator by operator as a user would write a cell of their own.
    ByHand,
    /// The same with a product for each gate.
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
