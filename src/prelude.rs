//! The names that most programs use; `use unpadded::prelude::*;` imports all of them. `Result<T>` then has the error
//! [`Error`]; `Result<T, E>` is the `Result` of the standard library, as without the import.
//!
//! ```
//! use unpadded::prelude::*;
//!
//! let samples: Samples = (0..64).map(|i| vec![Field::from(vec![3, 1, 4 + i % 2]), (i % 2).into()]).collect();
//! let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(8));
//!
//! let net = Builder::new();
//! let words = net.feed("words", DType::I64, &[], 1);
//! let label = net.feed("label", DType::I64, &[], 0);
//! let logits = words.embedding(Embedding::new(6, 8)).lstm(8).sequence_pool(Pool::Last).linear(2);
//! let loss = logits.cross_entropy(label).mean();
//! let mut trainer = Trainer::new(net, loss, &Adam::new(0.05))?.progress(Progress::Quiet);
//! trainer.fit(&data, &data, Until::Epochs(5))?;
//! # Ok::<(), unpadded::Error>(())
//! ```

pub use super::checkpoint::Checkpoint;
pub use super::data::{Batching, Data, Field, Limits, Loader, Samples, Tokenizer, Vocabulary};
pub use super::layers::{Activation, Embedding, Gru, Linear, Lstm, Stacked};
pub use super::metrics::{Accuracy, Better, Loss, Metric};
pub use super::ops::{self, Pool};
pub use super::optimizer::{Adam, AdamW, Optimizer, Schedule, Sgd};
pub use super::predict::{Beam, Generation, Predictor, Sampling};
pub use super::train::{Progress, Trainer, Until};
pub use super::{Builder, DType, Error, Lod, Program, Result, Var, Variable};
