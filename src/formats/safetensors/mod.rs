//! Safetensors files: weights with the names and the layout of PyTorch.
//!
//! | in a program | in the file |
//! |---|---|
//! | `linear_0.weight` `[in, out]`, `linear_0.bias` | as in `nn.Linear`: `linear_0.weight` `[out, in]`, `linear_0.bias` |
//! | `embedding_0.weight` | as in `nn.Embedding`: the same name and layout |
//! | `lstm_0.weight_ih` `[in, 4H]`, `.weight_hh`, `.weight_hr` | as in `nn.LSTM`: `lstm_0.weight_ih_l0` `[4H, in]`, … |
//! | `lstm_0.bias` | `lstm_0.bias_ih_l0`, and `lstm_0.bias_hh_l0`, which is zero; an import adds the two |
//! | `gru_0.bias_ih`, `gru_0.bias_hh` | as in `nn.GRU`: `gru_0.bias_ih_l0`, `gru_0.bias_hh_l0` |
//! | `rnn_0.…`, with tanh or ReLU | as in `nn.RNN`: `rnn_0.weight_ih_l0`, … |
//! | `norm_0.gain`, `norm_0.bias` | as in `nn.LayerNorm`: `norm_0.weight`, `norm_0.bias` |
//! | any other parameter | the same name and layout |
//!
//! Stacked recurrent layers, in one or both directions, become one module, as in PyTorch. For example, the weights of
//! `Stacked::new(Lstm::new(16), 2).bidirectional()` are `lstm_0.weight_ih_l0`, `lstm_0.weight_ih_l0_reverse`,
//! `lstm_0.weight_ih_l1` and so on. The import and the export detect stacked and bidirectional layers in the program.
//! Two layers are the two directions of a level if they have the same kind and size, read the same input, and the
//! second layer runs backwards. A layer of the same kind and size that reads the outputs of a level, directly or
//! through dropout, is the next level of the module. A layer that PyTorch does not have keeps its own names and layout,
//! so that no PyTorch module loads its weights by mistake. Examples of layers that PyTorch lacks are an LSTM with
//! peepholes or a clipped cell state, a GRU that resets before its product, and a layer with other activations.
//!
//! In PyTorch, the names of weights come from the attributes of the user's module; [`Names`] maps the names of layers to these
//! names.
//!
//! ```
//! use unpadded::checkpoint::Checkpoint;
//! use unpadded::executor::Scope;
//! use unpadded::formats::safetensors::{self, Names};
//! use unpadded::layers::{Embedding, Lstm, Stacked};
//! use unpadded::{Builder, DType, ops};
//! let net = Builder::new();
//! let words = net.feed("words", DType::I64, &[], 1);
//! let states = words.embedding(Embedding::new(50, 8)).stacked(Stacked::new(Lstm::new(4), 2).bidirectional());
//! let logits = states.linear(3);
//! let outputs = [("logits".to_owned(), net.name_of(logits))];
//! let mut model = Checkpoint::of(net.finish()?, outputs);
//! let mut scope = Scope::of(&model.program)?;
//! for name in scope.names().map(str::to_owned).collect::<Vec<_>>() {
//!     model.tensors.insert(name.clone(), scope.value(&name)?);
//! }
//!
//! // class Tagger(nn.Module): self.words = nn.Embedding(50, 8); self.encoder = nn.LSTM(8, 4, 2, bidirectional=True); …
//! let names = Names::new().rename("embedding_0", "words").rename("lstm_0", "encoder").rename("linear_0", "out");
//! let path = std::env::temp_dir().join(format!("unpadded-doc-{}.safetensors", std::process::id()));
//! let written = safetensors::export(&model, &ops::catalogue(), &names, &path)?;
//! assert!(written.tensors.contains(&"encoder.weight_hh_l1_reverse".to_owned()));
//!
//! let mut other = model.clone();
//! other.tensors.clear();
//! safetensors::import(&path, &names, &mut other)?;
//! assert_eq!(other, model);
//! # std::fs::remove_file(path)?;
//! # Ok::<(), unpadded::Error>(())
//! ```
//!
//! `Trainer::load_safetensors` starts a training from a safetensors file. In Python, `safetensors.torch.load_file` and
//! `module.load_state_dict` read a file that [`export`] wrote; [`import`] reads a file that
//! `safetensors.torch.save_file(module.state_dict(), …)` wrote. An embedding table that is [tied](crate::layers::Linear::tied)
//! to a linear layer is stored once, under the name of the embedding, as `safetensors.torch.save_model` does.

mod file;
mod modules;
mod names;
mod read;
mod write;

pub use names::Names;
pub(crate) use read::read;
pub use read::{ImportReport, import};
pub use write::{ExportReport, export};
