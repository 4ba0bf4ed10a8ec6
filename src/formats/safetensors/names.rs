//! Maps the names of a program's parameters to names of tensors in a file.

use std::collections::BTreeMap;

use super::modules::{Form, TorchModule, places};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::{Program, VarDesc, VarRole};
use crate::tensor::{DType, StorageKind};

/// The mapping from layers of a program to modules of a file, and the parameters and tensors to leave out. By default, a module
/// has the name of its layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Pairs of name prefixes: the prefix in the program, and the prefix in the file.
    renamed: Vec<(String, String)>,
    /// Prefixes of parameter names; parameters with these prefixes are left out.
    without: Vec<String>,
    /// Prefixes of tensor names in the file; tensors with these prefixes are ignored.
    ignored: Vec<String>,
}

impl Names {
    /// Returns the mapping that changes no name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps the name prefix `ours` in the program to `theirs` in the file. The prefix can be the name of a layer (for
    /// example, `lstm_0` is mapped to `encoder.rnn`), of a scope with all its parameters, or of one parameter. If
    /// several prefixes match a name, the longest one is used. An empty `theirs` removes the prefix, as for the file of
    /// a bare `nn.LSTM`; an empty `ours` adds the prefix `theirs` to every name. A renamed recurrent layer becomes a
    /// separate module, even if it is stacked on a layer of the same kind and size.
    #[must_use]
    pub fn rename(mut self, ours: &str, theirs: &str) -> Self {
        self.renamed.push((ours.to_owned(), theirs.to_owned()));
        self
    }

    /// Leaves out the parameters whose names begin with `ours`, so that they are neither exported nor imported. An example is
    /// a last layer that will be trained from new initial values.
    #[must_use]
    pub fn without(mut self, ours: &str) -> Self {
        self.without.push(ours.to_owned());
        self
    }

    /// Ignores the tensors of the file whose names begin with `theirs`.
    #[must_use]
    pub fn ignore(mut self, theirs: &str) -> Self {
        self.ignored.push(theirs.to_owned());
        self
    }

    /// Returns, for each parameter of a program, the names of its tensors in the file: one name, or the two biases whose sum is
    /// the parameter.
    ///
    /// ```
    /// use unpadded::formats::safetensors::Names;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// x.lstm(16).lstm(16);
    /// let program = net.finish()?;
    /// let names = Names::new().rename("lstm_0", "encoder.rnn");
    /// assert_eq!(names.table(&program)?["lstm_1.bias"], ["encoder.rnn.bias_ih_l1", "encoder.rnn.bias_hh_l1"]);
    /// let names = names.rename("lstm_1", "second");
    /// assert_eq!(names.table(&program)?["lstm_1.weight_hh"], ["second.weight_hh_l0"]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a given prefix matches no parameter, or if two parameters get equal names. Also fails if a parameter is
    /// row-sparse, since a file stores only whole tables.
    #[track_caller]
    pub fn table(&self, program: &Program) -> Result<BTreeMap<String, Vec<String>>> {
        let entries = self.entries(program, &parameters(program)).at_caller()?;
        Ok(entries.into_iter().map(|entry| (entry.parameter.name.clone(), entry.tensors)).collect())
    }

    /// Returns whether a tensor with this name in the file is ignored.
    pub(super) fn ignores(&self, tensor: &str) -> bool {
        self.ignored.iter().any(|prefix| rest(tensor, prefix).is_some())
    }

    /// Returns the entry of each parameter: the names and shapes of its tensors in the file.
    pub(super) fn entries<'p>(
        &self,
        program: &Program,
        parameters: &[&'p VarDesc],
    ) -> Result<Vec<Entry<'p>>> {
        let places = places(program, |layer| self.renamed.iter().any(|(ours, _)| ours == layer));
        let mut unused: Vec<&str> = self.renamed.iter().map(|(ours, _)| &**ours).collect();
        unused.extend(self.without.iter().map(String::as_str));
        let (mut entries, mut taken) = (Vec::new(), BTreeMap::new());
        for &parameter in parameters {
            let torch_module = places.get(&parameter.name).cloned();
            let known = torch_module.is_some();
            let torch_module = torch_module.unwrap_or_else(|| TorchModule {
                module: String::new(),
                tensors: vec![parameter.name.clone()],
                form: Form::Same,
            });
            let module = [torch_module.module.as_str(), &parameter.name];
            unused.retain(|ours| module.iter().all(|name| rest(name, ours).is_none()));
            if self.without.iter().any(|prefix| rest(&parameter.name, prefix).is_some()) {
                continue;
            }
            let (dtype, shape) = layout(parameter)?;
            let shape = match torch_module.form {
                Form::Turned => shape.into_iter().rev().collect(),
                _ => shape,
            };
            let tensors: Vec<String> = torch_module
                .tensors
                .iter()
                .map(|tensor| self.renamed(&joined(&torch_module.module, tensor)))
                .collect();
            for tensor in &tensors {
                if let Some(other) = taken.insert(tensor.clone(), &parameter.name) {
                    let got = format!("`{tensor}` for `{other}` and `{}`", parameter.name);
                    return Err(Error::of(
                        ErrorKind::Program,
                        "names of tensors",
                        "one name per tensor",
                        got,
                    ));
                }
            }
            entries.push(Entry { parameter, tensors, form: torch_module.form, known, dtype, shape });
        }
        match unused.first() {
            None => Ok(entries),
            Some(unused) => {
                let known: Vec<&str> = parameters.iter().map(|desc| &*desc.name).collect();
                let expected = format!("the beginning of a parameter's name (`{}`)", known.join("`, `"));
                Err(Error::of(ErrorKind::Program, "name of a layer", expected, format!("`{unused}`")))
            }
        }
    }

    /// Returns the name in the file for a name in the program.
    fn renamed(&self, name: &str) -> String {
        let fits = |(ours, theirs): &'_ (String, String)| {
            let rest = rest(name, ours)?;
            Some((ours.len(), joined(theirs, rest)))
        };
        let found = self.renamed.iter().filter_map(fits).max_by_key(|(length, _)| *length);
        found.map_or_else(|| name.to_owned(), |(_, renamed)| renamed)
    }
}

/// A parameter of the program, and its tensors in a file.
pub(super) struct Entry<'p> {
    pub(super) parameter: &'p VarDesc,
    pub(super) tensors: Vec<String>,
    pub(super) form: Form,
    /// Whether the parameter belongs to a PyTorch module.
    pub(super) known: bool,
    pub(super) dtype: DType,
    /// The shape of each of the parameter's tensors in the file.
    pub(super) shape: Vec<usize>,
}

/// Returns the parameters of a program: its persistent variables without the optimizer state.
pub(super) fn parameters(program: &Program) -> Vec<&VarDesc> {
    let vars = program.vars().map(|(_, desc)| desc);
    vars.filter(|desc| desc.persistable && desc.role != VarRole::State && desc.spec().is_some()).collect()
}

fn layout(parameter: &VarDesc) -> Result<(DType, Vec<usize>)> {
    let dense = parameter.spec().filter(|spec| spec.storage == StorageKind::Dense);
    let shape = dense.and_then(|spec| spec.shape.iter().map(|extent| extent.known()).collect());
    dense.map(|spec| spec.dtype).zip(shape).ok_or_else(|| {
        let got = parameter.spec().map_or_else(|| "none".to_owned(), ToString::to_string);
        let expected = "a dense parameter of a known shape, since a file has whole tables";
        let error = Error::of(ErrorKind::Program, "parameter for a safetensors file", expected, got);
        error.variable(&parameter.name).noted_in_code("`Names::without` leaves the parameter out")
    })
}

/// Returns the part of a name after a prefix and its dot; `None` if the name does not begin with the prefix.
fn rest<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    match name.strip_prefix(prefix)? {
        behind if prefix.is_empty() || behind.is_empty() => Some(behind),
        behind => behind.strip_prefix('.'),
    }
}

/// Joins two parts of a name with a dot; an empty part adds no dot.
fn joined(before: &str, behind: &str) -> String {
    match (before, behind) {
        ("", name) | (name, "") => name.to_owned(),
        _ => format!("{before}.{behind}"),
    }
}
