//! The names that most programs use, by one line: `use unpadded::prelude::*;`.
//!
//! ```
//! use unpadded::prelude::*;
//!
//! let net = Builder::new();
//! let words = net.feed("words", DType::I64, &[], 1);
//! let logits = words.embedding(1000, 32).lstm(64).sequence_pool(Pool::Last).linear(2);
//! let loss = logits.cross_entropy(net.feed("label", DType::I64, &[], 0)).mean();
//! let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3))?.output("logits", logits);
//! let words = vec![vec![3, 1, 4], vec![1, 5]];
//! let data = Samples::new([("words", words)]);
//! # Ok::<(), unpadded::Error>(())
//! ```

pub use super::checkpoint::Checkpoint;
pub use super::data::{
    Batching, Data, Field, LabelledTexts, Limits, Loader, Samples, TextFile, Tokenizer, Vocabulary,
};
pub use super::layers::{Activation, Embedding, Gru, Linear, Lstm, Stacked};
pub use super::metrics::{Accuracy, Loss, Metric};
pub use super::ops::{self, Pool};
pub use super::optimizer::{Adam, AdamW, Optimizer, Schedule, Sgd};
pub use super::predict::{Beam, Generation, Predictor, Sampling};
pub use super::train::{Progress, Trainer, Until};
pub use super::{Builder, DType, Lod, Program, Var, Variable};
