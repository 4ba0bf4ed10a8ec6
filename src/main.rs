//! The program `unpadded`: trains, evaluates and runs models from the command line, without any Rust code of the user.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
