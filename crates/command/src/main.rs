//! The command line: subcommands, their flags, and exit codes. Each subcommand has its own file in this folder.

mod allocator;
mod ask;
mod bench;
mod beside;
mod data;
mod eval;
mod events;
mod file;
mod findings;
mod graph;
mod init;
mod inspect;
mod interrupts;
mod memory;
mod model_choice;
mod on_file;
mod outcome;
mod output;
mod ranks;
mod record;
mod repeated;
mod report;
mod request;
mod run;
mod scores;
#[cfg(feature = "serve")]
mod serve;
mod terminal;
mod together;
mod train;
mod training;
mod tune;
#[cfg(feature = "safetensors")]
mod weights;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use unpadded::Printable;

use outcome::{BadInput, Ending, Outcome};
use terminal::say;

/// Train, evaluate and use models of text, without padding and without a line of Rust.
///
/// `unpadded train` alone trains on film reviews that come with it.
#[derive(Parser)]
#[command(
    name = "unpadded",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "\
Examples:
  unpadded train                                     on the reviews that come with it
  unpadded train --train reviews.tsv                 lines of text<TAB>label
  unpadded train --task tag --train train.conll      a word and its tag a line
  unpadded init classify > reviews.toml              a config to edit
  unpadded train reviews.toml --set model.hidden=256
  unpadded tune reviews.toml --budget 30m            searches settings
  echo 'What a film!' | unpadded predict runs/classify-1
Exit codes: 0 done, 1 error while running, 2 invalid request (nothing was begun), 130 interrupted and saved;
an interrupted `predict --output` writes no file and exits with 128 plus the number of the signal."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a config with a comment above each setting, to standard output
    Init(init::Init),
    /// Train a model, into a run folder with its checkpoints, metrics and report
    Train(Box<train::Train>),
    /// Search settings (hyperparameters) within a time budget, by random search with successive halving
    Tune(Box<tune::Tune>),
    /// Evaluate models on texts with right answers
    Eval(eval::Eval),
    /// Write one HTML page with the curves, scores and settings of several runs
    Report(beside::Report),
    /// Predict a label, tags or a translation for each record of a file, or each line of standard input
    Predict(ask::Predict),
    /// Generate text with a language model, from the beginning in each line of standard input
    Generate(ask::Generate),
    /// Serve trained models over HTTP
    #[cfg(feature = "serve")]
    Serve(Box<serve::Serve>),
    /// Serve trained models over HTTP
    #[cfg(not(feature = "serve"))]
    #[command(disable_help_flag = true)]
    Serve {
        #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
        given: Vec<String>,
    },
    /// Show the contents of a checkpoint
    Inspect(inspect::Inspect),
    /// Draw the program of a checkpoint as SVG, with each step block inside the box of its operator
    Graph(graph::Graph),
    /// Export a model's weights as safetensors, with PyTorch's parameter names, or a model with weights of 8-bit integers
    #[cfg(feature = "safetensors")]
    Export(weights::Export),
    /// Import weights from a safetensors file into a model, and write the model to a new file
    #[cfg(feature = "safetensors")]
    Import(weights::Import),
    /// Check and count texts before training on them
    Data(data::Data),
    /// Measure the speed of training and prediction on this machine
    Bench(bench::Bench),
    /// Write shell completions to standard output
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
}

/// Makes a write beyond the file-size limit (`ulimit -f`) an error, like a write to a full disk, instead of a deadly signal.
#[cfg(unix)]
fn catch_file_limit() -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()).map(drop)
}

#[cfg(not(unix))]
fn catch_file_limit() -> std::io::Result<()> {
    Ok(())
}

fn run(command: Command) -> Outcome<Ending> {
    if !matches!(command, Command::Train(_)) {
        ranks::alone()?;
    }
    match command {
        Command::Init(init) => init.run(),
        Command::Train(train) => train.run(),
        Command::Tune(tune) => tune.run(),
        Command::Eval(eval) => eval.run(),
        Command::Report(report) => report.run(),
        Command::Predict(predict) => predict.run(),
        Command::Generate(generate) => generate.run(),
        #[cfg(feature = "serve")]
        Command::Serve(serve) => serve.run(),
        #[cfg(not(feature = "serve"))]
        Command::Serve { .. } => outcome::bad(
            "serve: expected a command with the server in it; `cargo install --path crates/command --features serve` installs it",
        ),
        Command::Inspect(inspect) => inspect.run(),
        Command::Graph(graph) => graph.run(),
        #[cfg(feature = "safetensors")]
        Command::Export(export) => export.run(),
        #[cfg(feature = "safetensors")]
        Command::Import(import) => import.run(),
        Command::Data(data) => data.run(),
        Command::Bench(bench) => bench.run(),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "unpadded", &mut text);
            terminal::print_bytes(&text).map(|()| Ending::Done)
        }
    }
}

fn main() -> ExitCode {
    allocator::prepare();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let rank = ranks::before_error();
            if !rank.is_empty() && !error.use_stderr() {
                return ExitCode::SUCCESS;
            }
            let message = error.render().to_string();
            // The message is escaped here: arguments may be file names, and clap prints arguments unescaped.
            if Printable(&message).to_string() == message {
                return match error.print() {
                    Err(e) if !error.use_stderr() && e.kind() != std::io::ErrorKind::BrokenPipe => {
                        say(format!(
                            "error: {}",
                            outcome::message(&*outcome::unwritten("standard output", &e))
                        ));
                        ExitCode::FAILURE
                    }
                    _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
                };
            }
            say(message.trim_end());
            return ExitCode::from(2);
        }
    };
    if let Err(e) = catch_file_limit() {
        say(format!("warning: the signal of the limit of file sizes is not caught: {e}"));
    }
    match run(cli.command) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Interrupted) => ExitCode::from(130),
        // If a signal ended the command, the exit code is 128 plus the number of the signal, as in shells.
        Ok(Ending::Signal(signal)) => ExitCode::from(128 + signal),
        Err(error) => {
            let asked = error.downcast_ref::<BadInput>().is_some();
            say(format!("{}error: {}", ranks::before_error(), outcome::message(&*error)));
            ExitCode::from(if asked { 2 } else { 1 })
        }
    }
}
