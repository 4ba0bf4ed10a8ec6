//! The command `unpadded graph`: draws the program of a checkpoint as an SVG picture, or writes it for Graphviz.

mod arrange;
mod draw;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model_choice::ModelChoice;
use super::outcome::{Ending, Outcome, fresh};
use super::output::print_or_write;

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded graph runs/classify-1 > program.svg
  unpadded graph runs/classify-1/last.ckpt --all -o training.svg
  unpadded graph runs/classify-1 --format dot | dot -Tpdf > program.pdf")]
pub(crate) struct Graph {
    #[command(flatten)]
    which: ModelChoice,
    /// Output file, which must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// All operators: gradients and updates too, if the checkpoint has them, as last.ckpt does
    #[arg(long)]
    all: bool,
    /// Format: svg for a picture, dot for Graphviz with every detail
    #[arg(long, value_enum, default_value = "svg")]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Svg,
    Dot,
}

impl Graph {
    pub(crate) fn run(self) -> Outcome<Ending> {
        self.output.as_deref().map_or(Ok(()), fresh)?;
        let checkpoint = self.which.checkpoint()?;
        let drawn = match self.format {
            Format::Svg => draw::svg(&checkpoint.program, self.all),
            Format::Dot => checkpoint.program.dot(),
        };
        print_or_write(self.output.as_deref(), &drawn)?;
        Ok(Ending::Done)
    }
}
