//! An error names the line of the user's code. The sources are checked: every public function that can fail is
//! `#[track_caller]`, and makes its errors in its own frame, or adds the line of its caller. Calls that fail hold each way in
//! which an error gets its line.

pub(crate) mod calls;
mod lines;
mod probe;
mod refusals;
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sources::{Function, Sources};

/// Public functions, or all functions of a trait, whose errors get their line elsewhere, each with the reason.
const ELSEWHERE: [(&str, &str); 31] = [
    ("Attribute::", "an error of the call that appends the operator"),
    ("Builder::check", "returns what was recorded, each error with its own line"),
    ("Builder::finish", "as `Builder::check`"),
    ("Builder::program", "as `Builder::check`"),
    ("Communicator::", "a transport returns `ExchangeFailure`, of which `World` makes an error"),
    ("Data::batches", "an error at the line that made the data"),
    ("Data::batches_that_fit", "as `Data::batches`"),
    ("Data::same_lengths", "as `Data::batches`"),
    ("DataStorage::open", "`DataSet::open_with` calls it, and adds the line"),
    ("DeclaredOp::", "a user's own: an error of the call that appends the operator"),
    ("Dot::product", "a user may implement it; the implementations of this crate have the line"),
    ("Files::larger_than", "what is wrong in a file has the file and its line"),
    ("Files::records", "what is wrong in a file is an item, with the file and its line"),
    ("Lane::split", "returns what the work of the threads returns, and has no error of its own"),
    ("Metric::update", "a user's own: an error at the line of `Trainer::metric`"),
    ("Op::", "a user's own: an error at the line that appended the operator"),
    ("Operators::operator", "`Op::resolve` calls it, as `Registry::parse`"),
    ("Optimizer::rule", "a user's own: an error of `minimize`"),
    ("Passes::each", "what is wrong in a file has the file and its line"),
    ("PlainFiles::pieces", "what is wrong in a file is an item, with the file and its line"),
    ("Record::plan", "`DataSet::open_with` calls it, and adds the line"),
    ("Record::settled", "`DataSet::open_with` calls it, and adds the line"),
    ("RecordStorage::pass", "what is wrong in a file is an item, with the file and its line"),
    ("RecordStorage::samples", "`DataSet::samples_by` calls it, and adds the line"),
    ("Samples::try_of", "its errors are the caller's"),
    ("SamplesBuilder::try_push", "fails only where memory ends"),
    ("Source::open", "a user's own: an error at the line of `Loader::new`"),
    ("Vocabulary::counted", "its error is the token that occurs twice, for the message of the caller"),
    ("best::best_paths", "fails only where memory ends"),
    ("AnyRule::", "what `update_rule!` calls, as the methods of `Op`"),
    ("testing::", "what it returns are the failures of operators, each with the sample and the rule"),
];

/// All functions of the libraries.
fn libraries() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions: Vec<Function> = Vec::new();
    for folder in ["src", "crates/text/src", "crates/recipes/src"] {
        for path in crate::tidy::sources(&root.join(folder)) {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            if !name.contains("tests") {
                functions.extend(sources::functions(&name, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    Sources::new(functions)
}

#[test]
fn every_public_function_that_fails_has_the_line_of_its_caller() {
    let libraries = libraries();
    assert!(libraries.public().count() > 500);
    let (mut wrong, mut needed) = (Vec::new(), BTreeSet::new());
    for function in libraries.public() {
        let lost = libraries.lost(function);
        match ELSEWHERE.iter().find(|(name, _)| function.is_named(name)) {
            Some((name, _)) if !lost.is_empty() => drop(needed.insert(*name)),
            _ => wrong.extend(lost),
        }
    }
    let needless = ELSEWHERE.iter().filter(|(name, _)| !needed.contains(name));
    wrong.extend(needless.map(|(name, _)| format!("{name}: take it off the list")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
