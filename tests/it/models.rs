//! Models that several tests run, and batches for them.

// Several test binaries have this module, and each uses its own part of it.
#![allow(dead_code)]

use unpadded::executor::Executor;
use unpadded::layers::{Embedding, Gru, Linear, Lstm};
use unpadded::ops::Pool;
use unpadded::program::Recurrence;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Var, Variable};

/// Numbers of each row of a batch's input, and of each state.
pub(crate) const INPUT: usize = 24;
pub(crate) const HIDDEN: usize = 64;
pub(crate) const CLASSES: usize = 5;
pub(crate) const VOCABULARY: usize = 500;

/// An executor that divides whatever can be divided over its threads and into chunks, however small a run is.
pub(crate) fn divided(mut executor: Executor) -> Executor {
    executor.divide_everything();
    executor
}

/// The results of a model: its loss, and the variables that a test compares.
pub(crate) struct Made {
    pub(crate) loss: Var,
    pub(crate) outputs: Vec<Var>,
}

/// A model: how it is built, and the contents of its feeds, by name.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) build: fn(&Builder) -> Made,
    pub(crate) feeds: &'static [Feed],
}

/// The contents of a feed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Feed {
    /// `x`: rows of floats, one level.
    Rows,
    /// `x`: rows of floats, two levels.
    Nested,
    /// `words`: ids, one level.
    Words,
    /// `words`: ids, two levels.
    NestedWords,
    /// `label`: one a sequence.
    Label,
    /// `topic`: a row of floats for each sequence.
    Topic,
}

impl Feed {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Feed::Rows | Feed::Nested => "x",
            Feed::Words | Feed::NestedWords => "words",
            Feed::Label => "label",
            Feed::Topic => "topic",
        }
    }

    fn add(self, net: &Builder) -> Var {
        let var = match self {
            Feed::Rows => net.feed("x", DType::F32, &[INPUT], 1),
            Feed::Nested => net.feed("x", DType::F32, &[INPUT], 2),
            Feed::Words => net.feed("words", DType::I64, &[], 1),
            Feed::NestedWords => net.feed("words", DType::I64, &[], 2),
            Feed::Label => net.feed("label", DType::I64, &[], 0),
            Feed::Topic => net.feed("topic", DType::F32, &[INPUT], 0),
        };
        if net.spec(var).is_some_and(|spec| spec.dtype.is_float()) {
            net.watch(var);
        }
        var
    }

    /// A value for `sentences[i]` sentences a document (one level: their sum of words), by a generator.
    pub(crate) fn value(self, documents: &[Vec<usize>], random: &mut Random) -> Variable {
        let flat: Vec<usize> = documents.iter().map(|d| d.iter().sum()).collect();
        let rows: usize = flat.iter().sum();
        let one = || Lod::from_lengths1(&flat).unwrap();
        let two =
            || Lod::from_lengths(&[documents.iter().map(Vec::len).collect(), documents.concat()]).unwrap();
        let floats = |rows: usize, random: &mut Random| {
            let numbers: Vec<f32> = (0..rows * INPUT).map(|_| random.float()).collect();
            Dense::from_vec(&[rows, INPUT], numbers).unwrap()
        };
        let ids = |rows: usize, below: usize, random: &mut Random| {
            let ids: Vec<i64> = (0..rows).map(|_| random.below(below) as i64).collect();
            Dense::from_vec(&[rows], ids).unwrap()
        };
        match self {
            Feed::Rows => Variable::sequences(floats(rows, random), one()).unwrap(),
            Feed::Nested => Variable::sequences(floats(rows, random), two()).unwrap(),
            Feed::Words => Variable::sequences(ids(rows, VOCABULARY, random), one()).unwrap(),
            Feed::NestedWords => Variable::sequences(ids(rows, VOCABULARY, random), two()).unwrap(),
            Feed::Label => Variable::dense(ids(documents.len(), CLASSES, random)),
            Feed::Topic => Variable::dense(floats(documents.len(), random)),
        }
    }
}

/// A small generator, so that batches are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }
}

/// Documents of up to `sentences` sentences, together up to `words` words; some are empty.
pub(crate) fn documents(
    count: usize,
    sentences: usize,
    words: usize,
    random: &mut Random,
) -> Vec<Vec<usize>> {
    let document = |random: &mut Random| {
        let count = random.below(sentences + 1);
        (0..count).map(|_| random.below(words / sentences + 1)).collect()
    };
    (0..count).map(|_| document(random)).collect()
}

/// A batch of a model: the value of each feed, in order.
pub(crate) fn batch(model: &Model, documents: &[Vec<usize>], seed: u64) -> Vec<Variable> {
    let mut random = Random(seed);
    model.feeds.iter().map(|feed| feed.value(documents, &mut random)).collect()
}

/// Some of a batch's sequences.
pub(crate) fn take(value: &Variable, sequences: &[usize]) -> Variable {
    let dense = value.storage().to_dense().unwrap();
    match value.lod() {
        None => Variable::dense(dense.gather_rows(sequences).unwrap()),
        Some(lod) => {
            let rows = lod.take_rows(sequences).unwrap();
            Variable::sequences(dense.gather_rows(&rows).unwrap(), lod.take(sequences).unwrap()).unwrap()
        }
    }
}

/// A loss to which every number counts differently, summed.
fn summed(net: &Builder, parts: &[Var]) -> Var {
    let mut loss = None;
    for &part in parts {
        let one = net.sum(net.square(part));
        loss = Some(loss.map_or(one, |so_far| so_far + one));
    }
    loss.unwrap()
}

/// Rows in, LSTM, last state, linear, cross-entropy.
pub(crate) const CLASSIFIER: Model = Model {
    name: "classifier",
    feeds: &[Feed::Rows, Feed::Label],
    build: |net| {
        let (x, label) = (Feed::Rows.add(net), Feed::Label.add(net));
        let h = net.lstm(x, Lstm::new(HIDDEN));
        let logits = net.linear(net.sequence_pool(h, Pool::Last), CLASSES);
        let loss = net.sum(net.cross_entropy(logits, label));
        Made { loss, outputs: vec![h, logits] }
    },
};

/// Two LSTMs with dropout between and behind.
pub(crate) const STACKED: Model = Model {
    name: "stacked, with dropout",
    feeds: &[Feed::Rows],
    build: |net| {
        let x = Feed::Rows.add(net);
        let h = net.dropout(net.lstm(x, Lstm::new(HIDDEN)), 0.3);
        let h = net.dropout(net.lstm(h, Lstm::new(HIDDEN)), 0.2);
        Made { loss: summed(net, &[h]), outputs: vec![h] }
    },
};

/// A GRU from the end of each sequence, with its final states.
pub(crate) const REVERSED: Model = Model {
    name: "reversed GRU",
    feeds: &[Feed::Rows],
    build: |net| {
        let x = Feed::Rows.add(net);
        let (h, last) = net.gru_states(x, Gru::new(HIDDEN).backwards());
        Made { loss: summed(net, &[h, last]), outputs: vec![h, last] }
    },
};

/// An LSTM over words, the last state of each sentence, an LSTM over sentences, the last state of each document.
pub(crate) const NESTED: Model = Model {
    name: "nested",
    feeds: &[Feed::Nested],
    build: |net| {
        let x = Feed::Nested.add(net);
        let words = net.lstm(x, Lstm::new(HIDDEN));
        let sentences = net.lstm(net.sequence_pool(words, Pool::Last), Lstm::new(HIDDEN));
        let last = net.sequence_pool(sentences, Pool::Last);
        Made { loss: summed(net, &[last]), outputs: vec![words, sentences, last] }
    },
};

/// A step block over sentences with a step block over words in it, which starts from the document's state.
pub(crate) const LOOP_IN_LOOP: Model = Model {
    name: "a loop in a loop, with dropout",
    feeds: &[Feed::Nested],
    build: |net| {
        let x = Feed::Nested.add(net);
        let over_sentences = Recurrence { level: Some(0), ..Recurrence::default() };
        let (all, last) = net.recurrent_with(over_sentences, x, |step, sentence| {
            let state = step.memory(HIDDEN);
            let start = step.linear(state, Linear::new(HIDDEN).named("start"));
            let words = step.lstm(step.dropout(sentence, 0.2), Lstm::new(HIDDEN).initial(start, state));
            let read = step.sequence_pool(words, Pool::Mean);
            let next = step.tanh(step.add(read, step.linear(state, HIDDEN)));
            step.update(state, next);
            (words, step.last(state))
        });
        Made { loss: summed(net, &[all, last]), outputs: vec![all, last] }
    },
};

/// A model that erases some words, and slices the rest, at the root and in a step over sentences.
pub(crate) const ERASED: Model = Model {
    name: "erased words",
    feeds: &[Feed::NestedWords],
    build: |net| {
        let words = Feed::NestedWords.add(net);
        let left = net.sequence_erase(words, &[3, 4, 5, 6]);
        let rows = net.embedding(left, Embedding::new(VOCABULARY, INPUT));
        let nothing = net.lod_of(net.sequence_erase(left, &(0..VOCABULARY as i64).collect::<Vec<i64>>()));
        let some = net.lod_of(net.sequence_erase(left, &[7, 8, 9]));
        let piece = net.sequence_slice(rows, nothing, some);
        let over_sentences = Recurrence { level: Some(0), ..Recurrence::default() };
        let last = net.recurrent_with(over_sentences, (left, piece), |step, (ids, rows)| {
            let state = step.memory_of(DType::F32, &[INPUT]);
            let fewer = step.sequence_erase(ids, &[10, 11, 12]);
            let words = step.embedding(fewer, Embedding::new(VOCABULARY, INPUT));
            let read = step.sequence_pool(step.lstm(words, Lstm::new(INPUT)), Pool::Mean);
            let read = step.add(read, step.sequence_pool(rows, Pool::Sqrt));
            step.update(state, step.tanh(step.add(state, read)));
            step.last(state)
        });
        Made { loss: summed(net, &[last]), outputs: vec![last] }
    },
};

/// A cell of plain operators, with dropout inside the step.
pub(crate) const OWN_CELL: Model = Model {
    name: "a cell of plain operators",
    feeds: &[Feed::Rows],
    build: |net| {
        let x = Feed::Rows.add(net);
        let (h, last) = net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(HIDDEN);
            let seen = step.dropout(h_prev, 0.1);
            let gate = step.sigmoid(step.add(step.linear(x_t, HIDDEN), step.linear(seen, HIDDEN)));
            let new = step.tanh(step.add(step.linear(x_t, HIDDEN), step.linear(seen, HIDDEN)));
            let kept = step.mul(gate, h_prev);
            let h = step.add(kept, step.mul(step.scale(gate, -1.0, 1.0), new));
            step.update(h_prev, h);
            (step.square(h), step.last(h_prev))
        });
        Made { loss: summed(net, &[h, last]), outputs: vec![h, last] }
    },
};

/// A cell that sees a row of its sequence at every step, and starts from one.
pub(crate) const STATIC_ROWS: Model = Model {
    name: "static rows",
    feeds: &[Feed::Rows, Feed::Topic],
    build: |net| {
        let (x, topic) = (Feed::Rows.add(net), Feed::Topic.add(net));
        let start = net.linear(topic, HIDDEN);
        let (h, last) = net.recurrent(x, |step, x_t| {
            let h_prev = step.memory_from(start);
            let from_topic = step.linear(topic, HIDDEN);
            let gate = step.sigmoid(step.add(step.linear(h_prev, HIDDEN), from_topic));
            let new = step.tanh(step.linear(step.concat(&[x_t, topic]), HIDDEN));
            let h = step.add(step.mul(gate, h_prev), new);
            let h = step.scale(h, 0.5, 0.0);
            step.update(h_prev, h);
            (h, step.last(h_prev))
        });
        Made { loss: summed(net, &[h, last]), outputs: vec![h, last] }
    },
};

/// An LSTM that looks back over the whole sequence at every step: a static sub-sequence.
pub(crate) const ATTENTION: Model = Model {
    name: "attention",
    feeds: &[Feed::Rows],
    build: |net| {
        let x = Feed::Rows.add(net);
        let keys = net.linear(x, 16);
        let (h, last) = net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(16);
            let wide = step.sequence_expand_as(h_prev, keys);
            let scores = step.sum_features(step.mul(wide, keys));
            let read = step.mul(keys, step.sequence_softmax(scores));
            let read = step.sequence_pool(read, Pool::Sum);
            let h = step.tanh(step.add(step.linear(x_t, 16), step.linear(read, 16)));
            step.update(h_prev, h);
            (h, step.last(h_prev))
        });
        Made { loss: summed(net, &[h, last]), outputs: vec![h, last] }
    },
};

/// The classifier as it is trained: a sparse embedding, dropout, the mean of the losses.
pub(crate) const TRAINED: Model = Model {
    name: "trained classifier",
    feeds: &[Feed::Words, Feed::Label],
    build: |net| {
        let (words, label) = (Feed::Words.add(net), Feed::Label.add(net));
        let x = net.embedding(words, Embedding::new(VOCABULARY, INPUT).sparse().padding(0));
        let h = net.lstm(net.dropout(x, 0.2), Lstm::new(HIDDEN));
        let last = net.dropout(net.sequence_pool(h, Pool::Last), 0.2);
        let logits = net.linear(last, CLASSES);
        let loss = net.mean(net.cross_entropy(logits, label));
        Made { loss, outputs: vec![logits] }
    },
};

/// So wide that threads share the columns of a product with one row, and that the weights are larger than a core's own
/// cache: then they share calls of more rows too.
pub(crate) const WIDE: Model = Model {
    name: "wide classifier",
    feeds: &[Feed::Rows, Feed::Label],
    build: |net| {
        let (x, label) = (Feed::Rows.add(net), Feed::Label.add(net));
        let h = net.recurrent(net.lstm(x, Lstm::new(384)), |step, x| {
            let (before, kept) = (step.memory(384), step.memory(384));
            let seen = step.dropout(before, 0.2);
            let gates = step.add(step.linear(x, 4 * 384), step.linear(seen, 4 * 384));
            let parts = step.split(gates, [384; 4]);
            let [i, f, o] = [parts[0], parts[1], parts[2]].map(|gate| step.sigmoid(gate));
            let c = step.add(step.mul(f, kept), step.mul(i, step.tanh(parts[3])));
            let h = step.mul(o, step.tanh(c));
            step.update(before, h);
            step.update(kept, c);
            h
        });
        let logits = net.linear(net.sequence_pool(h, Pool::Last), CLASSES);
        let loss = net.mean(net.cross_entropy(logits, label));
        Made { loss, outputs: vec![logits] }
    },
};

/// A model that predicts its input words: its logits are so wide that they are fused with the loss.
pub(crate) const MANY_CLASSES: Model = Model {
    name: "many classes",
    feeds: &[Feed::Words],
    build: |net| {
        let words = Feed::Words.add(net);
        let h = net.lstm(net.embedding(words, Embedding::new(VOCABULARY, INPUT).sparse()), Lstm::new(HIDDEN));
        let logits = net.linear(h, VOCABULARY);
        Made { loss: net.mean(net.cross_entropy(logits, words)), outputs: vec![logits] }
    },
};

/// The trained classifier over documents of sentences.
pub(crate) const TRAINED_NESTED: Model = Model {
    name: "trained nested classifier",
    feeds: &[Feed::NestedWords, Feed::Label],
    build: |net| {
        let (words, label) = (Feed::NestedWords.add(net), Feed::Label.add(net));
        let x = net.embedding(words, Embedding::new(VOCABULARY, INPUT).sparse());
        let h = net.lstm(net.dropout(x, 0.2), Lstm::new(HIDDEN));
        let h = net.lstm(net.sequence_pool(h, Pool::Last), Lstm::new(HIDDEN));
        let logits = net.linear(net.sequence_pool(h, Pool::Last), CLASSES);
        let loss = net.mean(net.cross_entropy(logits, label));
        Made { loss, outputs: vec![logits] }
    },
};
