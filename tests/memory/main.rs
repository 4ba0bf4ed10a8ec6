//! What runs allocate, and their peaks of memory; and trainings with the settings of other machines.
//!
//! Each test runs in a process of its own, because the allocator and the assumed machine are one for a whole process.

#![allow(clippy::unwrap_used)]

/// Runs the test in whose function this is written in a process of its own; the function continues only there.
macro_rules! own_process {
    () => {
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        if !crate::is_own_process(path.split_once("::").unwrap().1.trim_end_matches("::here")) {
            return;
        }
    };
}

mod allocations;
mod checkpoint;
mod computed;
#[path = "../it/damage.rs"]
mod damage;
mod families;
mod fused;
mod limit;
mod machines;
#[path = "../it/models.rs"]
mod models;
#[path = "../it/peak_memory.rs"]
mod peak_memory;
mod predicted;
// The generator of random programs, of which this binary uses a part.
#[allow(dead_code, unused_imports)]
#[path = "../it/step_blocks"]
mod step_blocks {
    pub(crate) mod generator;
}
mod table;
#[path = "../it/thorough.rs"]
mod thorough;
#[path = "../it/trained.rs"]
mod trained;
mod window;

use std::process::Command;

/// Returns whether this process runs one test alone. Otherwise, runs `test` in such a process, and fails if the test fails there.
#[track_caller]
fn is_own_process(test: &str) -> bool {
    const ALONE: &str = "UNPADDED_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let [out, err] =
        [output.stdout, output.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
    println!("{out}\n{err}");
    false
}
