//! The encoder of the tasks `classify` and `tag`: word vectors, an optional encoder of characters, and recurrent
//! layers.

use unpadded::layers::{Embedding, Instance, Linear, Lstm, Stacked};
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Var};

use super::config::Config;
use super::sections::{ModelConfig, Pooling};
use super::{net, started};

/// The width of the vector of a character. `SPELLING` is the width of the states of the character LSTM, per direction.
const CHARACTER: usize = 32;
const SPELLING: usize = 48;
/// The dropout rate of character vectors.
const CHARACTER_DROPOUT: f64 = 0.2;

/// An encoder of texts, which reads both texts of a pair with the same weights.
pub(super) struct Encoder<'a> {
    model: &'a ModelConfig,
    words: Instance<Embedding>,
    /// The layers of a pre-trained language model, which read the word vectors; empty without a language model.
    below: Vec<Layers>,
    spelling: Option<Spelling>,
    layers: Layers,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder of texts. `words` and `characters` are the sizes of the vocabularies; `characters` is `None`
    /// for an encoder that reads no characters. `below` is the config of a pre-trained language model; the states of
    /// this language model are additional inputs of the recurrent layers.
    pub(super) fn new(
        net: &Builder,
        config: &'a Config,
        words: usize,
        characters: Option<usize>,
        below: Option<&ModelConfig>,
    ) -> Self {
        let table = net::table(words, net::WORDS, config);
        Self {
            model: &config.model,
            words: net.layer(table),
            below: below.map_or_else(Vec::new, |model| Layers::of_lm(net, model)),
            spelling: characters.map(|characters| Spelling::new(net, characters)),
            layers: Layers::new(net, &config.model),
        }
    }

    /// Adds the feed of word ids with `levels` LoD levels and, if the encoder reads characters, the feed of character
    /// ids with one more level. Returns the feed of the words, and one row per word: the word vector, the last states
    /// of the character LSTMs, and the state of the language model.
    pub(super) fn read(&self, net: &Builder, [words, characters]: [&str; 2], levels: usize) -> (Var, Var) {
        let spelt = self
            .spelling
            .as_ref()
            .map(|spelling| spelling.of(net.feed(characters, DType::I64, &[], levels + 1)));
        let words = match spelt {
            Some([forth, _]) => net.feed_like(words, DType::I64, &[], forth),
            None => net.feed(words, DType::I64, &[], levels),
        };
        let known = self.words.of(words);
        let mut vectors = vec![net::without_some(known, self.model.word_dropout)];
        vectors.extend(spelt.into_iter().flatten());
        if !self.below.is_empty() {
            // The states of a language model are additional features of each word (Peters et al., "Semi-supervised
            // sequence tagging with bidirectional language models", 2017).
            vectors.push(self.below.iter().fold(known, |h, layer| layer.of(h)));
        }
        let vectors = if let [alone] = vectors[..] { alone } else { net.concat(&vectors) };
        (words, vectors.dropout(net::embedding_dropout(self.model)))
    }

    /// Returns the states of the last recurrent layer, one row per row of `vectors`.
    pub(super) fn states(&self, vectors: Var) -> Var {
        self.layers.of(vectors)
    }
}

/// A character encoder of words: one LSTM reads the characters of a word forwards, a second LSTM backwards (Lample et
/// al., 2016).
struct Spelling {
    characters: Instance<Embedding>,
    forth: Instance<Lstm>,
    back: Instance<Lstm>,
}

impl Spelling {
    fn new(net: &Builder, characters: usize) -> Self {
        Self {
            characters: net.layer(Embedding::new(characters, CHARACTER).named("characters")),
            forth: net.layer(Lstm::new(SPELLING).named("characters.forward")),
            back: net.layer(Lstm::new(SPELLING).backwards().named("characters.backward")),
        }
    }

    /// Returns the last states of the forward LSTM and of the backward LSTM, each with one row per word.
    fn of(&self, characters: Var) -> [Var; 2] {
        let vectors = self.characters.of(characters).dropout(CHARACTER_DROPOUT);
        [self.forth.of(vectors).sequence_pool(Pool::Last), self.back.of(vectors).sequence_pool(Pool::First)]
    }
}

/// Stacked recurrent layers: LSTM, GRU or simple RNN.
pub(super) struct Layers(Box<dyn Fn(Var) -> Var>);

/// Evaluates an expression with a recurrent layer of the model's cell and hidden width.
macro_rules! with_cell {
    ($model:expr, $layer:ident => $of:expr) => {{
        use unpadded::layers::{Gru, Lstm, Rnn};
        match $model.cell {
            $crate::sections::Cell::Lstm => {
                let $layer = Lstm::new($model.hidden);
                $of
            }
            $crate::sections::Cell::Gru => {
                let $layer = Gru::new($model.hidden);
                $of
            }
            $crate::sections::Cell::Rnn => {
                let $layer = Rnn::new($model.hidden);
                $of
            }
        }
    }};
}
pub(super) use with_cell;

impl Layers {
    pub(super) fn new(net: &Builder, model: &ModelConfig) -> Self {
        with_cell!(model, layer => {
            let layer = layer.recurrent_dropout(model.recurrent_dropout);
            let layers = Stacked::new(layer, model.layers).dropout(model.dropout);
            let layers = net.layer(if model.bidirectional { layers.bidirectional() } else { layers });
            Self(Box::new(move |x| layers.of(x)))
        })
    }

    /// Returns the layers of a pre-trained language model, with its names of parameters, so that values can be copied.
    fn of_lm(net: &Builder, model: &ModelConfig) -> Vec<Self> {
        let layer = |at: usize| {
            with_cell!(model, layer => {
                let layer = net.layer(Stacked::new(layer.named(&started::layer(at)), 1));
                Self(Box::new(move |x| layer.of(x)))
            })
        };
        (0..model.layers).map(layer).collect()
    }

    /// Returns the states of the last layer, one row per row of `x`.
    pub(super) fn of(&self, x: Var) -> Var {
        self.0(x)
    }
}

/// A pooling layer, which reduces the states of each sequence to one row.
pub(super) struct Pooler<'a> {
    model: &'a ModelConfig,
    /// For attention pooling: the hidden layer and the output layer that compute the score of each state.
    attention: [Instance<Linear>; 2],
}

impl<'a> Pooler<'a> {
    pub(super) fn new(net: &Builder, model: &'a ModelConfig) -> Self {
        Self { model, attention: [64, 1].map(|width| net.layer(Linear::new(width))) }
    }

    /// Returns one row per sequence and, with attention pooling, the attention weights of the states.
    pub(super) fn of(&self, net: &Builder, states: Var) -> (Var, Option<Var>) {
        let hidden = self.model.hidden;
        match self.model.pool {
            Pooling::Last if self.model.bidirectional => {
                // The backward layer ends at the first token of the text, so its last state is in the first row.
                let (forth, back) = (states.slice(0..hidden), states.slice(hidden..2 * hidden));
                (net.concat(&[forth.sequence_pool(Pool::Last), back.sequence_pool(Pool::First)]), None)
            }
            Pooling::Last => (states.sequence_pool(Pool::Last), None),
            Pooling::Max => (states.sequence_pool(Pool::Max), None),
            Pooling::Mean => (states.sequence_pool(Pool::Mean), None),
            Pooling::Attention => {
                // Attention pooling follows Lin et al., "A structured self-attentive sentence embedding", 2017.
                let [hidden, score] = &self.attention;
                let weights = score.of(hidden.of(states).tanh()).sequence_softmax();
                ((states * weights).sequence_pool(Pool::Sum), Some(weights))
            }
        }
    }
}
