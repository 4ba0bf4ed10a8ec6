//! Modern recurrent cells as user code: each is one page of plain operators, and runs on the same step executor as the
//! LSTM. `cargo run --release --example cells` trains each on a small task and prints how its loss falls.
mod diagonal_ssm;
mod min_gru;
mod rg_lru;
mod slstm;
mod trial;

use trial::Cell;
use unpadded::{Error, Result};

const CELLS: [(&str, Cell); 4] = [
    ("minGRU", min_gru::min_gru),
    ("RG-LRU", rg_lru::rg_lru),
    ("sLSTM", slstm::slstm),
    ("diagonal state space", diagonal_ssm::diagonal_ssm),
];

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        return Err(Error::new("arguments", "none", argument));
    }
    for (name, cell) in CELLS {
        let losses = trial::train(cell, 200)?;
        let shown: Vec<String> = losses.iter().step_by(40).map(|loss| format!("{loss:.3}")).collect();
        println!("{name}: loss {} … {:.3}", shown.join(", "), losses.last().copied().unwrap_or(f64::NAN));
    }
    Ok(())
}
