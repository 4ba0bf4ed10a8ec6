//! The encoder of the tasks `classify` and `tag`: word vectors, an optional encoder of characters, and recurrent layers.

use unpadded::layers::{Embedding, Instance, Linear, Lstm, Stacked};
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Var};

use super::config::Config;
use super::sections::{ModelConfig, Pooling};
use super::{net, started};

/// The width of the vector of a character. `SPELLING` is the width of the states of the character LSTM, per direction.
const CHARACTER: usize = 32;
const SPELLING: usize = 48;
const CHARACTER_DROPOUT: f64 = 0.2;

pub(super) struct Encoder<'a> {
    model: &'a ModelConfig,
    words: Instance<Embedding>,
    /// The layers of a pre-trained language model, which read the word vectors; empty without a language model.
    below: Vec<Layers>,
    spelling: Option<Spelling>,
    pub(super) layers: Layers,
}

impl<'a> Encoder<'a> {
    /// `words` and `characters` are the sizes of the vocabularies; the states of the language model `below` are additional inputs.
    pub(super) fn new(
        net: &Builder,
        config: &'a Config,
        words: usize,
        characters: Option<usize>,
        below: Option<&ModelConfig>,
    ) -> Self {
        // The order of these lines is the order of the parameters.
        let words = net.layer(net::table(words, net::WORDS, config));
        let below = below.map_or_else(Vec::new, |model| Layers::of_lm(net, model));
        let spelling = characters.map(|characters| spelling(net, characters));
        Self { model: &config.model, words, below, spelling, layers: Layers::new(net, &config.model) }
    }

    /// Adds the feeds, of words with `levels` LoD levels. Returns the feed of the words, and their features, a row per word.
    pub(super) fn read(&self, net: &Builder, [words, characters]: [&str; 2], levels: usize) -> (Var, Var) {
        let spelling = self.spelling.as_ref();
        let spelled = spelling.map(|encoder| encoder(net.feed(characters, DType::I64, &[], levels + 1)));
        let words = match spelled {
            Some([forth, _]) => net.feed_like(words, DType::I64, &[], forth),
            None => net.feed(words, DType::I64, &[], levels),
        };
        let known = self.words.of(words);
        let mut vectors = vec![net::without_some(known, self.model.word_dropout)];
        vectors.extend(spelled.into_iter().flatten());
        if !self.below.is_empty() {
            // The states of a language model are features of each word (Peters et al., "Semi-supervised sequence tagging", 2017).
            vectors.push(self.below.iter().fold(known, |h, layer| layer.of(h)));
        }
        let vectors = if let [alone] = vectors[..] { alone } else { net.concat(&vectors) };
        (words, vectors.dropout(net::embedding_dropout(self.model)))
    }
}

/// Returns the last states of an LSTM that reads each word forwards and of one that reads it backwards (Lample et al., 2016).
type Spelling = Box<dyn Fn(Var) -> [Var; 2]>;

fn spelling(net: &Builder, characters: usize) -> Spelling {
    let table = net.layer(Embedding::new(characters, CHARACTER).named("characters"));
    let forth = net.layer(Lstm::new(SPELLING).named("characters.forward"));
    let back = net.layer(Lstm::new(SPELLING).backwards().named("characters.backward"));
    Box::new(move |characters| {
        let vectors = table.of(characters).dropout(CHARACTER_DROPOUT);
        [forth.of(vectors).sequence_pool(Pool::Last), back.of(vectors).sequence_pool(Pool::First)]
    })
}

pub(super) struct Layers(Box<dyn Fn(Var) -> Var>);

/// Evaluates an expression with a recurrent layer of the model's cell and hidden width.
macro_rules! with_cell {
    ($model:expr, $layer:ident => $layer_of:expr) => {{
        use unpadded::layers::{Gru, Lstm, Rnn};
        match $model.cell {
            $crate::sections::Cell::Lstm => {
                let $layer = Lstm::new($model.hidden);
                $layer_of
            }
            $crate::sections::Cell::Gru => {
                let $layer = Gru::new($model.hidden);
                $layer_of
            }
            $crate::sections::Cell::Rnn => {
                let $layer = Rnn::new($model.hidden);
                $layer_of
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

    pub(super) fn of(&self, x: Var) -> Var {
        self.0(x)
    }
}

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
