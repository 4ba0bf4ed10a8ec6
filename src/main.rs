//! The command `unpadded`: trains, measures and asks models without a line of Rust.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
