//! Fine-tuning (`training.from`): extends vocabularies, copies parameters, and puts the layers of a language model below others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::checkpoint::{Checkpoint, Purpose};
use unpadded::data::{Limits, Tokenizer, Vocabulary};
use unpadded::optimizer::Group;
use unpadded::tensor::{Dense, Storage};
use unpadded::train::Trainer;
use unpadded::{AtCaller, Error, ErrorKind, Program, Result, ops};

use super::config::Config;
use super::sections::{CONFIG, ModelConfig, TASK, Tables, Task, TextConfig, Tokens};

/// The name of the note with the config of the language model whose layers are below the layers of this network.
const BELOW: &str = "language model";

/// A parameter with a row or a column per token, label or tag.
pub(super) struct Table {
    pub(super) parameter: &'static str,
    /// The name of the vocabulary whose ids are the indices of the rows or columns.
    pub(super) vocabulary: &'static str,
    pub(super) axes: &'static [usize],
    /// A function that converts a token to the form in which the vocabulary has it, such as lower case.
    pub(super) form: fn(&str) -> String,
}

impl Table {
    /// Returns a table for a vocabulary that has its tokens in their original form.
    pub(super) const fn new(
        parameter: &'static str,
        vocabulary: &'static str,
        axes: &'static [usize],
    ) -> Self {
        Self { parameter, vocabulary, axes, form: str::to_owned }
    }
}

/// The parameters with a vector of width `model.embedding` per token, whose vocabularies `text.max_size` limits.
const VECTORS: [&str; 3] = ["words.weight", "sources.weight", "targets.weight"];

/// The prefix of the names of the layers of a language model.
const LM: &str = "lm_";

/// Returns the name of the layer with index `at` in a language model.
pub(super) fn layer(at: usize) -> String {
    format!("{LM}{at}")
}

/// The trained model that a training starts from; `None` if the training starts from random parameters.
#[derive(Clone, Default)]
pub(super) struct Origin(Option<Arc<Trained>>);

struct Trained {
    /// The value of the setting `training.from`.
    name: String,
    task: Task,
    /// The checkpoint of the trained model; when a training is resumed, the checkpoint of that training.
    checkpoint: Checkpoint,
    resumed: bool,
    /// The model settings and the config, as TOML, of a language model whose layers are below this network.
    below: Option<(ModelConfig, String)>,
}

/// The checkpoints in a run folder. Until a training has ended, the second one also has the best parameters.
const CHECKPOINTS: [&str; 2] = ["best.ckpt", "last.ckpt"];

/// Returns the path of the checkpoint of a run: `run` itself if it is a file, or the best checkpoint in the run folder.
fn file(run: &str) -> Result<PathBuf> {
    let path = unpadded_text::path_of_text(run);
    let checkpoint =
        |folder: &Path| CHECKPOINTS.map(|name| folder.join(name)).into_iter().find(|path| path.exists());
    let wrong = |expected: &str, got| Err(Error::of(ErrorKind::Io, "training.from", expected, got));
    if !path.is_dir() {
        let got = format!("nothing at `{run}`");
        return if path.exists() { Ok(path) } else { wrong("a run folder or a checkpoint", got) };
    }
    if let Some(found) = checkpoint(&path) {
        return Ok(found);
    }
    let entries = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
    let got = match entries.filter(|path| checkpoint(path).is_some()).min() {
        Some(one) => {
            let one = unpadded_text::text_of_path(one);
            format!("a folder of several runs, `{run}`; name one of the runs, as `{one}`")
        }
        None => format!("neither in `{run}`"),
    };
    wrong("a run folder with a best.ckpt or last.ckpt", got)
}

/// Returns the config in the notes of a checkpoint, or an error if the checkpoint is not of a recipe.
fn config_of(name: &str, checkpoint: &Checkpoint) -> Result<Config> {
    let task = checkpoint.notes.get(TASK).and_then(|task| Task::from_name(task));
    let (Some(_), Some(config)) = (task, checkpoint.notes.get(CONFIG)) else {
        let got = format!("a checkpoint of another program, `{name}`");
        return Err(Error::of(ErrorKind::Format, "training.from", "a run of `unpadded train`", got));
    };
    Config::from_toml(config).map_err(|e| e.noted(format!("in the config of `{name}`")))
}

impl Origin {
    /// Loads the model that `training.from` names or, when a training is resumed, the checkpoint `resumed` of this training.
    pub(super) fn of(config: &Config, resumed: Option<&Path>) -> Result<Self> {
        let Some(name) = &config.training.from else { return Ok(Self(None)) };
        let path = resumed.map_or_else(|| file(name), |path| Ok(path.to_owned()))?;
        let checkpoint = Checkpoint::load(&path)?;
        checkpoint.check_whole("training.from")?;
        let theirs = config_of(name, &checkpoint)?;
        let (task, wanted) = (theirs.run.task, config.run.task);
        let starts_from_lm = wanted.recipe().starts_from_lm;
        if task != wanted && !(starts_from_lm && task.continues_texts()) {
            let lm = if starts_from_lm { " or of `lm`" } else { "" };
            let expected = format!("a run of `{}`{lm}", wanted.name());
            let got = format!("`{name}`, a run of `{}`", task.name());
            return Err(Error::new("training.from", expected, got));
        }
        let below = match checkpoint.notes.get(BELOW) {
            _ if task != wanted => Some((theirs.model.clone(), theirs.to_toml())),
            Some(note) => {
                let noted = |e: Error| e.noted(format!("in note `{BELOW}` of `{name}`"));
                Some((Config::from_toml(note).map_err(noted)?.model, note.clone()))
            }
            None => None,
        };
        if let Some((model, _)) = &below
            && model.embedding != config.model.embedding
        {
            let expected = format!("{}, the width of the word vectors of `{name}`", model.embedding);
            return Err(Error::new("model.embedding", expected, config.model.embedding.to_string()));
        }
        let of_words = matches!(theirs.text.tokens, Some(Tokens::Words | Tokens::Whitespace));
        if task != wanted && wanted.has_words() && (theirs.text.tokenizer.is_some() || !of_words) {
            let expected = format!(
                "a language model of `words` or `whitespace` for `{}`, whose words are given",
                wanted.name()
            );
            let got = match (&theirs.text.tokenizer, theirs.text.tokens) {
                (Some(path), _) => format!("tokens of `{path}`"),
                (None, tokens) => format!("`text.tokens = \"{}\"`", tokens.map_or("none", Tokens::name)),
            };
            return Err(Error::new("training.from", expected, format!("`{name}` with {got}")));
        }
        let checkpoint = match checkpoint.purpose {
            Purpose::Training if resumed.is_none() => {
                checkpoint.for_inference(&ops::catalogue())?.dense_tables()?
            }
            _ => checkpoint,
        };
        let resumed = resumed.is_some();
        let trained = Trained { name: name.clone(), task, checkpoint, resumed, below };
        if !resumed {
            trained.within_size(config)?;
        }
        Ok(Self(Some(Arc::new(trained))))
    }

    /// Checks that `tokenizer` is the tokenizer of the trained model, whose name is in the note `note`.
    pub(super) fn same_tokenizer(&self, note: &str, tokenizer: &Tokenizer) -> Result<()> {
        let Some(Trained { name, checkpoint, .. }) = self.0.as_deref() else { return Ok(()) };
        // Language models and classifiers store the tokenizer in a note of the same name.
        let Some(theirs) = checkpoint.notes.get(note) else {
            let got =
                format!("`{name}`, a model that reads no texts, such as a classifier of rows of features");
            return Err(Error::new("training.from", "a model that reads texts", got));
        };
        if *theirs == tokenizer.name() {
            return Ok(());
        }
        let error = Error::new(note, format!("`{theirs}`, as `{name}`"), format!("`{}`", tokenizer.name()));
        Err(error
            .noted("set `text.tokens`, `text.lowercase` and `text.tokenizer` as in the model to start from"))
    }

    /// Checks that the trained model has the note `note`, which only models of rows of features have.
    pub(super) fn of_rows(&self, note: &str) -> Result<()> {
        match self.0.as_deref() {
            Some(Trained { name, checkpoint, .. }) if !checkpoint.notes.contains_key(note) => {
                let got = format!("`{name}`, a model of texts");
                Err(Error::new("training.from", "a classifier of rows of features", got))
            }
            _ => Ok(()),
        }
    }

    /// Sets the trained model's vocabulary as the base of the new vocabulary, to which new tokens are appended.
    pub(super) fn grows(&self, limits: Limits, table: &Table) -> Limits {
        let known = self.0.as_deref().and_then(|from| from.vocabulary(table.parameter));
        limits.base(known.map(|known| known.in_form(table.form)))
    }

    /// Returns the model settings of the language model whose layers are below this network.
    pub(super) fn below(&self) -> Option<&ModelConfig> {
        self.0.as_deref()?.below.as_ref().map(|(model, _)| model)
    }

    /// Copies parameters of the trained model into a trainer; returns lines for people about what was copied.
    pub(super) fn start(&self, mut trainer: Trainer, task: Task) -> Result<(Trainer, Vec<String>)> {
        let Some(from) = self.0.as_deref() else { return Ok((trainer, Vec::new())) };
        if let Some((_, config)) = &from.below {
            trainer = trainer.note(BELOW, config.clone());
        }
        if from.resumed {
            // A vocabulary with equal ids is taken from the checkpoint, which has the counts from the start of the training.
            let same = |name: &str, ours: &Vocabulary| {
                let theirs = from.checkpoint.vocabularies.get(name)?;
                (theirs.fingerprint() == ours.fingerprint()).then(|| (name.to_owned(), theirs.clone()))
            };
            let own: Vec<_> = trainer.vocabularies().filter_map(|(name, ours)| same(name, ours)).collect();
            let trainer =
                own.into_iter().fold(trainer, |trainer, (name, own)| trainer.vocabulary(&name, own));
            return Ok((trainer, Vec::new()));
        }
        let messages = from.give(&mut trainer, task)?;
        Ok((trainer, messages))
    }
}

impl Trained {
    /// Returns the vocabulary of the trained model whose ids are the indices of the rows or columns of a parameter.
    fn vocabulary(&self, parameter: &str) -> Option<&Vocabulary> {
        let table = self.task.recipe().tables.iter().find(|table| table.parameter == parameter)?;
        self.checkpoint.vocabularies.get(table.vocabulary)
    }

    /// Checks that `text.max_size` allows all words that the trained model knows.
    fn within_size(&self, config: &Config) -> Result<()> {
        let Some(most) = config.text.max_size else { return Ok(()) };
        let tables = config.run.task.recipe().tables.iter();
        for table in tables.filter(|table| VECTORS.contains(&table.parameter)) {
            let Some(known) = self.vocabulary(table.parameter) else { continue };
            let known = known.in_form(table.form).len();
            if known > most {
                let expected = format!(
                    "at least {known}, the size of the vocabulary `{}` of `{}`",
                    table.vocabulary, self.name
                );
                let error = Error::new("text.max_size", expected, most.to_string());
                return Err(error.noted("fine-tuning keeps all known tokens"));
            }
        }
        Ok(())
    }

    fn give(&self, trainer: &mut Trainer, task: Task) -> Result<Vec<String>> {
        let mut from = self.checkpoint.clone();
        let (mut shares, mut messages) = (Vec::<(&Table, String)>::new(), Vec::new());
        let tables = task.recipe().tables;
        for table in tables {
            let (Some(theirs), Ok(ours), Some((_, ours_known)), Some(known)) = (
                from.tensors.remove(table.parameter),
                trainer.scope().value(table.parameter),
                trainer.vocabularies().find(|(name, _)| *name == table.vocabulary),
                self.vocabulary(table.parameter),
            ) else {
                continue;
            };
            let numbers = ours_known.numbers_in(known, table.form);
            let Some(value) = merged(&ours, &theirs, table.axes, &numbers, known.len())? else {
                let width = |storage: &Storage| storage.shape().get(1).copied().unwrap_or(1);
                if VECTORS.contains(&table.parameter) && width(&ours) != width(&theirs) {
                    messages.push(format!(
                        "warning: no vector of `{}` was copied: `model.embedding` is {}, and {} in `{}`",
                        table.vocabulary,
                        width(&ours),
                        width(&theirs),
                        self.name
                    ));
                }
                continue;
            };
            from.tensors.insert(table.parameter.to_owned(), value);
            if !shares.iter().any(|(other, _)| other.vocabulary == table.vocabulary) {
                let both = numbers.iter().flatten().count();
                shares.push((table, format!("{both} of {} {}", numbers.len(), table.vocabulary)));
            }
        }
        // From a model of another task, only tables and language-model layers are copied: others may be alike by chance.
        if self.task != task {
            from.tensors
                .retain(|name, _| name.starts_with(LM) || tables.iter().any(|table| table.parameter == name));
        }
        // Parameters that are not trained, such as class weights, are computed from settings and therefore not copied.
        let fixed = trainer.program().vars().filter(|(_, var)| var.stop_gradient && var.persistable);
        let fixed: Vec<String> = fixed.map(|(_, var)| var.name.clone()).collect();
        from.tensors.retain(|name, _| !fixed.contains(name));
        let found =
            trainer.load_fitting_parameters(&from).map_err(|e| e.noted(format!("from `{}`", self.name)))?;
        let (mut layers, mut new) = (Vec::new(), Vec::new());
        let unlike = found.unlike.iter().map(|unlike| &unlike.name);
        let unknown = found.only_in_model.iter().chain(unlike).filter(|name| !fixed.contains(name));
        unknown.for_each(|name| add(&mut new, name));
        // A layer is reported as new if any of its parameters is new.
        let is_new = |parameter: &str| new.contains(&layer_of(parameter));
        shares.retain(|(table, _)| !is_new(table.parameter));
        let has_share = |name: &str| {
            let table = tables.iter().find(|table| table.parameter == name);
            table.is_some_and(|table| shares.iter().any(|(other, _)| other.vocabulary == table.vocabulary))
        };
        let loaded = found.loaded.iter().filter(|name| !has_share(name) && !is_new(name));
        loaded.for_each(|name| add(&mut layers, name));
        let mut parts: Vec<String> = shares.into_iter().map(|(_, share)| share).collect();
        parts.extend((!layers.is_empty()).then(|| format!("layers {}", layers.join(", "))));
        let new = if new.is_empty() { String::new() } else { format!("; new: {}", new.join(", ")) };
        if parts.is_empty() {
            parts.push("nothing".to_owned());
        }
        messages.insert(0, format!("from {}: {}{new}", self.name, parts.join(", ")));
        Ok(messages)
    }
}

/// Adds the name of a parameter's layer to a list, unless the list has it already.
fn add<'a>(layers: &mut Vec<&'a str>, parameter: &'a str) {
    if !layers.contains(&layer_of(parameter)) {
        layers.push(layer_of(parameter));
    }
}

fn layer_of(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer)
}

/// Copies rows and columns of `theirs` into `ours`: on each axis in `axes`, entry `numbers[i]` (`None`: no entry) to entry i; entries
/// after the first `known` ones, as the start and end scores of a CRF, follow in order. `None` if the shapes do not fit.
fn merged(
    ours: &Storage,
    theirs: &Storage,
    axes: &[usize],
    numbers: &[Option<i64>],
    known: usize,
) -> Result<Option<Storage>> {
    let (to, from) = (ours.shape().to_vec(), theirs.shape().to_vec());
    let (Ok(mut values), Ok(given)) = (
        ours.as_dense().and_then(|dense| Ok(dense.as_slice::<f32>()?.to_vec())),
        theirs.as_dense().and_then(|dense| dense.as_slice::<f32>()),
    ) else {
        return Ok(None);
    };
    let places = |axis: usize| -> Option<Vec<Option<usize>>> {
        let (to, from) = (to.get(axis).copied().unwrap_or(1), from.get(axis).copied().unwrap_or(1));
        if !axes.contains(&axis) {
            return (to == from).then(|| (0..to).map(Some).collect());
        }
        let (behind, theirs) = (to.checked_sub(numbers.len())?, from.checked_sub(known)?);
        let found = numbers.iter().map(|number| number.and_then(|number| usize::try_from(number).ok()));
        (behind == theirs).then(|| found.chain((known..from).map(Some)).collect())
    };
    if to.len() != from.len() || to.len() > 2 {
        return Ok(None);
    }
    let (Some(rows), Some(columns)) = (places(0), places(1)) else { return Ok(None) };
    let width = from.get(1).copied().unwrap_or(1);
    for (row, from) in values.chunks_mut(columns.len().max(1)).zip(rows) {
        let Some(given) = from.and_then(|from| given.get(from * width..(from + 1) * width)) else { continue };
        for (value, from) in row.iter_mut().zip(&columns) {
            if let Some(&given) = from.and_then(|from| given.get(from)) {
                *value = given;
            }
        }
    }
    Ok(Some(Dense::from_vec(&to, values)?.into()))
}

/// Returns the groups of parameters for `training.unfreeze` and `training.lower_rates`: each level of the network is a group, the
/// last one the word vectors. The top level, the output layers or all layers above a language model, is in no group.
pub(super) fn groups(config: &Config, program: &Program, steps: usize) -> Vec<Group> {
    let training = &config.training;
    if training.from.is_none() || (training.unfreeze == 0 && training.lower_rates == 1.0) {
        return Vec::new();
    }
    let names: Vec<String> = program.parameters().map(|id| program.var(id).name.clone()).collect();
    let per_epoch = steps.div_ceil(training.epochs.max(1) as usize);
    let levels = levels(names, config.model.bidirectional);
    (1..)
        .zip(levels.into_iter().rev().skip(1))
        .map(|(depth, names)| {
            let held = (training.unfreeze as usize).saturating_mul(depth).saturating_mul(per_epoch);
            Group::of(names).rate(training.lower_rates.powi(depth as i32)).after(held)
        })
        .collect()
}

/// Returns the names of the parameters level by level, the lowest level first.
fn levels(names: Vec<String>, bidirectional: bool) -> Vec<Vec<String>> {
    let is_recurrent = |layer: &str| names.iter().any(|name| name == &format!("{layer}.weight_hh"));
    let mut layers: Vec<&str> = Vec::new();
    names.iter().for_each(|name| add(&mut layers, name));
    let of_lm = |layer: &str| layer.starts_with(LM);
    let has_lm = layers.iter().any(|layer| of_lm(layer));
    let top = layers.iter().rposition(|layer| if has_lm { of_lm(layer) } else { is_recurrent(layer) });
    let top = top.map_or(0, |last| last + 1);
    let mut levels: Vec<Vec<&str>> = vec![Vec::new()];
    let mut directions = 0;
    for (at, layer) in layers.iter().enumerate() {
        let begins = match has_lm {
            _ if at >= top => at == top,
            true => of_lm(layer),
            false => {
                directions += usize::from(is_recurrent(layer));
                is_recurrent(layer) && (!bidirectional || directions % 2 == 1)
            }
        };
        if begins && levels.last().is_some_and(|level| !level.is_empty()) {
            levels.push(Vec::new());
        }
        levels.last_mut().into_iter().for_each(|level| level.push(layer));
    }
    let of_level =
        |level: Vec<&str>| names.iter().filter(|name| level.contains(&layer_of(name))).cloned().collect();
    levels.into_iter().map(of_level).collect()
}

impl Config {
    /// Returns a config for a training that starts from a trained model; `run` is a run folder or a checkpoint. For the
    /// task of the model, or for `None`, the result is the config of the model's run. For another task, the result has
    /// the defaults of the task, with the tokens and the word vector width of the model. In both cases, `training.from`
    /// is set to `run`. For another task, the paths and columns of the data are reset, too.
    ///
    /// ```no_run
    /// use unpadded_recipes::{Config, Task};
    /// let mut config = Config::starting_from("runs/lm-1", Some(Task::Classify))?;
    /// config.data.train = Some("reviews.tsv".into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no checkpoint at `run`, or if no recipe has saved the checkpoint.
    #[track_caller]
    pub fn starting_from(run: &str, task: Option<Task>) -> Result<Self> {
        let config = file(run).and_then(Checkpoint::load).and_then(|checkpoint| config_of(run, &checkpoint));
        let theirs = config.at_caller()?;
        let mut config = match task {
            Some(task) if task != theirs.run.task => {
                let mut config = Self::new(task);
                config.model.embedding = theirs.model.embedding;
                if Self::has(task, "text.tokens") {
                    let TextConfig { tokens, tokenizer, lowercase, .. } = theirs.text;
                    config.text = TextConfig { tokens, tokenizer, lowercase, ..config.text };
                }
                config
            }
            _ => theirs,
        };
        config.run.threads = 0;
        config.training.tables = Tables::Whole;
        config.training.from = Some(run.to_owned());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_output_layers_then_recurrent_ones_then_vectors() {
        let levels_of = |names: &[&str], bidirectional| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let levels = levels(names, bidirectional);
            levels.iter().map(|level| level.join(" ")).collect::<Vec<_>>()
        };
        let names =
            ["words.weight", "lstm_0.weight_hh", "lstm_1.weight_hh", "linear_0.weight", "linear_0.bias"];
        assert_eq!(
            levels_of(&names, true),
            ["words.weight", "lstm_0.weight_hh lstm_1.weight_hh", "linear_0.weight linear_0.bias"]
        );
        assert_eq!(levels_of(&names, false).len(), 4);
        let names = ["words.weight", "lm_0.weight_hh", "lstm_0.weight_hh", "linear_0.weight"];
        assert_eq!(
            levels_of(&names, false),
            ["words.weight", "lm_0.weight_hh", "lstm_0.weight_hh linear_0.weight"]
        );
        assert_eq!(levels_of(&["wide.weight"], false), ["wide.weight"]);
    }

    #[test]
    fn tables_are_merged_by_entry() -> Result<()> {
        let storage = |shape: &[usize], from: f32| -> Result<Storage> {
            let len = shape.iter().product::<usize>();
            Ok(Dense::from_vec(shape, (0..len).map(|i| from + i as f32).collect())?.into())
        };
        let values = |merged: Option<Storage>| -> Result<Vec<f32>> {
            let merged = merged.map(|merged| Ok(merged.as_dense()?.as_slice::<f32>()?.to_vec()));
            merged.unwrap_or_else(|| Ok(Vec::new()))
        };
        let numbers = [Some(1), None, Some(0)];
        let rows = merged(&storage(&[3, 2], 0.0)?, &storage(&[2, 2], 10.0)?, &[0], &numbers, 2)?;
        assert_eq!(values(rows)?, [12.0, 13.0, 2.0, 3.0, 10.0, 11.0]);
        let columns = merged(&storage(&[1, 3], 0.0)?, &storage(&[1, 2], 10.0)?, &[1], &numbers, 2)?;
        assert_eq!(values(columns)?, [11.0, 1.0, 10.0]);
        let bias = merged(&storage(&[3], 0.0)?, &storage(&[2], 10.0)?, &[0], &numbers, 2)?;
        assert_eq!(values(bias)?, [11.0, 1.0, 10.0]);
        // The transitions of a conditional random field have two more rows than there are tags.
        let field = merged(&storage(&[4, 2], 0.0)?, &storage(&[3, 1], 10.0)?, &[0, 1], &[None, Some(0)], 1)?;
        assert_eq!(values(field)?, [0.0, 1.0, 2.0, 10.0, 4.0, 11.0, 6.0, 12.0]);
        assert!(merged(&storage(&[3, 2], 0.0)?, &storage(&[2, 5], 0.0)?, &[0], &numbers, 2)?.is_none());
        Ok(())
    }
}
