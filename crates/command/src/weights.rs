//! `unpadded export` and `unpadded import`: safetensors files with PyTorch's names, and models of 8-bit integers.

use std::path::PathBuf;

use clap::Args;
use unpadded::checkpoint::Checkpoint;
use unpadded::formats::safetensors::{self, Names};
use unpadded::tensor::StorageKind;
use unpadded::{Program, ops};

use super::memory::megabytes;
use super::model_choice::ModelChoice;
use super::outcome::{Ending, Outcome, UsageError, bad, fresh, written};
use super::scores::Table;
use super::terminal::{self, Console};

#[derive(Args)]
struct Renamed {
    /// Rename a layer: OURS here is THEIRS in the file, as lstm_0=encoder.rnn; repeatable
    #[arg(long, value_name = "OURS=THEIRS")]
    rename: Vec<String>,
}

impl Renamed {
    fn names(&self, program: &Program) -> Outcome<Names> {
        let mut names = Names::new();
        // PyTorch has no such parameter; its values stay as they are.
        if program.vars().any(|(_, var)| var.name.starts_with("untrained.")) {
            names = names.without("untrained");
        }
        for flag in &self.rename {
            let Some((ours, theirs)) = flag.split_once('=') else {
                return bad(format!(
                    "--rename {flag}: expected OURS=THEIRS, as lstm_0=encoder.rnn, got no `=`"
                ));
            };
            names = names.rename(ours, theirs);
        }
        Ok(names)
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded export runs/classify-1 weights.safetensors --rename lstm_0=rnn
  unpadded export runs/classify-1 small.ckpt --int8     a model of about a quarter of the size
  unpadded eval small.ckpt test.tsv                     its scores, which may be slightly lower")]
pub(crate) struct Export {
    #[command(flatten)]
    which: ModelChoice,
    /// File to write: safetensors, or a checkpoint with `--int8`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// 8-bit integers: write a checkpoint to predict with, whose weights of linear layers and tables are 8-bit integers
    #[arg(long, conflicts_with = "rename")]
    int8: bool,
    #[command(flatten)]
    renamed: Renamed,
}

/// Returns a checkpoint for inference whose tables are whole.
fn predicting(checkpoint: Checkpoint) -> unpadded::Result<Checkpoint> {
    checkpoint.for_inference(&ops::catalogue())?.dense_tables()
}

impl Export {
    /// Writes a model whose weights are 8-bit integers, and prints which parameters are.
    fn quantized(self) -> Outcome<Ending> {
        fresh(&self.file)?;
        if self.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("safetensors")) {
            let (name, fits) = (self.file.display(), self.file.with_extension("ckpt"));
            return bad(format!(
                "{name}: expected the name of a checkpoint, the format of `--int8`, got a name that ends with `.safetensors`: `{}` fits",
                fits.display()
            ));
        }
        let noted = |e: unpadded::Error| e.noted(format!("in `{}`", self.which.path.display()));
        let model = predicting(self.which.checkpoint()?).map_err(noted).usage()?;
        let before = model.to_bytes().usage()?.len();
        let model = model.quantize(&ops::catalogue()).map_err(noted).usage()?;
        written(model.save(&self.file))?;
        let after = std::fs::metadata(&self.file)?.len();
        let mut table = Table::new("", &["parameter", "shape", "stored as"]);
        for (name, value) in &model.tensors {
            let shape: Vec<String> = value.shape().iter().map(usize::to_string).collect();
            table.rows.push(vec![terminal::shown(name), shape.join(" × "), value.dtype().to_string()]);
        }
        table.print(Console { json: false, quiet: false })?;
        let kilobytes = |bytes: f64| {
            if bytes < 1e6 { format!("{:.0} kB", bytes / 1e3) } else { megabytes(bytes as usize) }
        };
        let [of_before, of_after] = [before as f64, after as f64].map(kilobytes);
        let share = 100.0 * after as f64 / before as f64;
        terminal::print(format!(
            "written: {}, {of_after}, {share:.0} % of the model in f32, {of_before}",
            self.file.display()
        ))?;
        Ok(Ending::Done)
    }

    pub(crate) fn run(self) -> Outcome<Ending> {
        if self.int8 {
            return self.quantized();
        }
        let mut checkpoint = self.which.checkpoint()?;
        // The last checkpoint of a training with dealt tables has only the rows that were updated.
        if checkpoint.tensors.values().any(|value| value.kind() == StorageKind::SelectedRows) {
            checkpoint = predicting(checkpoint).usage()?;
        }
        let names = self.renamed.names(&checkpoint.program)?;
        fresh(&self.file)?;
        let ending = self.file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if ending != "safetensors" {
            let (name, got) = (self.file.display(), self.file.with_extension("safetensors"));
            let got = got.display();
            return bad(format!(
                "{name}: expected a name that ends with `.safetensors`, the format that is written, got another ending or none: `{got}` fits"
            ));
        }
        written(safetensors::export(&checkpoint, &ops::catalogue(), &names, &self.file))?;
        let mut table = Table::new("", &["parameter", "names in the file"]);
        let rows = names.table(&checkpoint.program).usage()?;
        table.rows.extend(rows.into_iter().map(|(ours, theirs)| vec![ours, theirs.join(", ")]));
        table.print(Console { json: false, quiet: false })?;
        terminal::print(format!("written: {}", self.file.display()))?;
        Ok(Ending::Done)
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  unpadded import runs/classify-1 weights.safetensors --output with.ckpt")]
pub(crate) struct Import {
    #[command(flatten)]
    which: ModelChoice,
    /// Safetensors file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output: the checkpoint to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    renamed: Renamed,
}

impl Import {
    pub(crate) fn run(self) -> Outcome<Ending> {
        fresh(&self.output)?;
        let mut checkpoint = self.which.checkpoint()?;
        let names = self.renamed.names(&checkpoint.program)?;
        let hint = "`--rename OURS=THEIRS` maps a layer's name to its name in the file";
        safetensors::import(&self.file, &names, &mut checkpoint).map_err(|e| e.noted(hint)).usage()?;
        written(checkpoint.save(&self.output))?;
        terminal::print(format!("written: {}", self.output.display()))?;
        Ok(Ending::Done)
    }
}
