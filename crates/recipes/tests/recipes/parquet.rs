//! Trainings on Parquet files that pyarrow wrote.

use std::path::{Path, PathBuf};

use unpadded_recipes::{Config, Task, prepare};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../text/tests/text/fixtures/parquet_{name}.parquet"))
}

#[test]
fn a_file_is_trained_on() -> unpadded::Result<()> {
    let mut config = Config::new(Task::Classify);
    config.data.train = Some(fixture("reviews").display().to_string());
    assert!(prepare(&config)?.messages[0].contains("texts of 2 labels"));
    let mut config = Config::new(Task::Tag);
    config.data.train = Some(fixture("tagged").display().to_string());
    (config.data.hold_out, config.text.min_count) = (0.25, 1);
    assert!(prepare(&config)?.messages[0].contains("IOB2"));
    Ok(())
}
