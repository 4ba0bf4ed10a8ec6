//! What the parameters of a program are called in a file.

use std::collections::BTreeMap;

use super::modules::{Form, TorchModule, places};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::{Program, VarDesc, VarRole};
use crate::tensor::{DType, StorageKind};

/// Which layer of a program is which module of a file, and what is left out. Without a word, modules are called as the layers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// What names begin with here, and there.
    renamed: Vec<(String, String)>,
    /// What the names of parameters begin with that are left out.
    without: Vec<String>,
    /// What the names of the file's tensors begin with that are left out.
    ignored: Vec<String>,
}

impl Names {
    /// Everything under its own name.
    pub fn new() -> Self {
        Self::default()
    }

    /// What begins with `ours` here begins with `theirs` there: a layer (`lstm_0` is `encoder.rnn`), a scope with all in it, or a
    /// parameter. Of several that fit, the longest counts. An empty `theirs` leaves it out, as in the file of a bare `nn.LSTM`, and
    /// an empty `ours` puts `theirs` before every name. A recurrent layer that is named here is a module of its own, also over another
    /// one like it.
    #[must_use]
    pub fn rename(mut self, ours: &str, theirs: &str) -> Self {
        self.renamed.push((ours.to_owned(), theirs.to_owned()));
        self
    }

    /// The parameters that begin with `ours` are neither written nor read, as a last layer that is to be learned anew.
    #[must_use]
    pub fn without(mut self, ours: &str) -> Self {
        self.without.push(ours.to_owned());
        self
    }

    /// The tensors of a file that begin with `theirs` are not looked at when it is read.
    #[must_use]
    pub fn ignore(mut self, theirs: &str) -> Self {
        self.ignored.push(theirs.to_owned());
        self
    }

    /// The tensors of each parameter of a program, by name: one, or the two biases whose sum it is.
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
    /// If nothing begins with a name that was given, two parameters get the same one, or one is row-sparse: a file has whole
    /// tables.
    #[track_caller]
    pub fn table(&self, program: &Program) -> Result<BTreeMap<String, Vec<String>>> {
        let entries = self.entries(program, &parameters(program)).at_caller()?;
        Ok(entries.into_iter().map(|entry| (entry.parameter.name.clone(), entry.tensors)).collect())
    }

    /// Whether a tensor of a file is not looked at.
    pub(super) fn ignores(&self, tensor: &str) -> bool {
        self.ignored.iter().any(|prefix| rest(tensor, prefix).is_some())
    }

    /// What stands for each of the parameters in a file.
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
            let place = places.get(&parameter.name).cloned();
            let known = place.is_some();
            let place = place.unwrap_or_else(|| TorchModule {
                module: String::new(),
                tensors: vec![parameter.name.clone()],
                form: Form::Same,
            });
            let module = [place.module.as_str(), &parameter.name];
            unused.retain(|ours| module.iter().all(|name| rest(name, ours).is_none()));
            if self.without.iter().any(|prefix| rest(&parameter.name, prefix).is_some()) {
                continue;
            }
            let (dtype, shape) = layout(parameter)?;
            let shape = match place.form {
                Form::Turned => shape.into_iter().rev().collect(),
                _ => shape,
            };
            let tensors: Vec<String> =
                place.tensors.iter().map(|tensor| self.renamed(&joined(&place.module, tensor))).collect();
            for tensor in &tensors {
                if let Some(other) = taken.insert(tensor.clone(), &parameter.name) {
                    let got = format!("`{tensor}` for `{other}` and `{}`", parameter.name);
                    return Err(Error::of(ErrorKind::Program, "names of tensors", "a name for each", got));
                }
            }
            entries.push(Entry { parameter, tensors, form: place.form, known, dtype, shape });
        }
        match unused.first() {
            None => Ok(entries),
            Some(unused) => {
                let known: Vec<&str> = parameters.iter().map(|desc| &*desc.name).collect();
                let expected = format!("what parameters' names begin with (`{}`)", known.join("`, `"));
                Err(Error::of(ErrorKind::Program, "name of a layer", expected, format!("`{unused}`")))
            }
        }
    }

    /// A name as it is in the file.
    fn renamed(&self, name: &str) -> String {
        let fits = |(ours, theirs): &'_ (String, String)| {
            let rest = rest(name, ours)?;
            Some((ours.len(), joined(theirs, rest)))
        };
        let found = self.renamed.iter().filter_map(fits).max_by_key(|(length, _)| *length);
        found.map_or_else(|| name.to_owned(), |(_, renamed)| renamed)
    }
}

/// A parameter, and what stands for it in a file.
pub(super) struct Entry<'p> {
    pub(super) parameter: &'p VarDesc,
    pub(super) tensors: Vec<String>,
    pub(super) form: Form,
    /// Whether a module of PyTorch has it.
    pub(super) known: bool,
    /// The parameter's.
    pub(super) dtype: DType,
    /// That of each tensor in the file.
    pub(super) shape: Vec<usize>,
}

/// The parameters of a program: what it keeps, without the optimizer's state.
pub(super) fn parameters(program: &Program) -> Vec<&VarDesc> {
    let vars = program.vars().map(|(_, desc)| desc);
    vars.filter(|desc| desc.persistable && desc.role != VarRole::State && desc.spec().is_some()).collect()
}

/// Dtype and shape of a parameter.
fn layout(parameter: &VarDesc) -> Result<(DType, Vec<usize>)> {
    let dense = parameter.spec().filter(|spec| spec.storage == StorageKind::Dense);
    let shape = dense.and_then(|spec| spec.shape.iter().map(|extent| extent.known()).collect());
    dense.map(|spec| spec.dtype).zip(shape).ok_or_else(|| {
        let got = parameter.spec().map_or_else(|| "none".to_owned(), ToString::to_string);
        let expected = "a dense one of a known shape, as a file has whole tables";
        let error = Error::of(ErrorKind::Program, "parameter for a safetensors file", expected, got);
        error.variable(&parameter.name).noted_in_code("`Names::without` leaves it out")
    })
}

/// What stands behind a prefix of whole parts of a name, without the dot between; `None` if the name does not begin so.
fn rest<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    match name.strip_prefix(prefix)? {
        behind if prefix.is_empty() || behind.is_empty() => Some(behind),
        behind => behind.strip_prefix('.'),
    }
}

/// Two parts of a name with a dot between, if there are two.
fn joined(before: &str, behind: &str) -> String {
    match (before, behind) {
        ("", name) | (name, "") => name.to_owned(),
        _ => format!("{before}.{behind}"),
    }
}
