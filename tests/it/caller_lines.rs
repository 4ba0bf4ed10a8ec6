//! An error names the line of the user's code: every public function that can fail is called wrongly here, and the error must
//! name the line of this call. The sources tell which functions are public and can fail, so that none is forgotten.

pub(crate) mod calls;
mod classes;
mod data;
mod lines;
mod programs;
mod sparse;
mod store;
mod training;
mod values;
mod writing;

use std::path::Path;

use calls::Calls;

/// Public functions that can fail and are not called here, each with the reason.
const LEFT_OUT: [(&str, &str); 51] = [
    ("Checkpoint::check_whole", "as `Checkpoint::quantize` of a quantized checkpoint, by the same lines"),
    ("SamplesBuilder::try_push", "fails only where memory ends"),
    ("Vocabulary::counted", "its error is the token that occurs twice, for the message of the caller"),
    ("Trainer::check_data", "as `Trainer::fit`, by the same lines"),
    ("NextPath::best_paths", "fails only where memory ends"),
    ("Session::save", "fails only where memory ends, once a session has begun"),
    ("Hypotheses::best", "as `Hypotheses::hypotheses`, of sources that there are"),
    (
        "SelectedRows::merge",
        "fails only where memory ends: what it is given fits, and its result is no larger",
    ),
    ("Csr::canonicalize", "fails only where memory ends: what it is given fits, and its result is no larger"),
    ("Coo::canonicalize", "fails only where memory ends: what it is given fits, and its result is no larger"),
    ("Csr::cast", "fails only where memory ends: what it is given fits, and its result is no larger"),
    ("Coo::cast", "fails only where memory ends: what it is given fits, and its result is no larger"),
    (
        "SelectedRows::cast",
        "fails only where memory ends: what it is given fits, and its result is no larger",
    ),
    ("Csr::to_coo", "fails only where memory ends: the coordinates belong to existing entries"),
    ("SelectedRows::to_coo", "fails only where memory ends: the coordinates belong to existing numbers"),
    ("Variable::from_sequence", "fails only if lengths overflow, which no sequence in memory does"),
    ("Variable::from_sequences", "fails only if lengths overflow, which no batch in memory does"),
    ("Variable::from_nested", "fails only if lengths overflow, which no batch in memory does"),
    ("Lane::split", "hands on what the work of the threads returns, and has no error of its own"),
    ("Backward::result", "fails if two operators were made one wrongly, which no call can do"),
    ("Backward::output", "as `Forward::output`, by the same lines"),
    (
        "Backward::dout",
        "as `Backward::output_gradient`, or if no gradient reaches the output, which no call does",
    ),
    ("Forward::update_tables", "as `Forward::fill_rows`, by the same lines"),
    ("RowTable::rows", "a table is made by a scope alone, and holds what its variable says"),
    (
        "Backward::fill_gradient",
        "hands on what fills it; fails else as `Forward::fill_csr`, by the same lines",
    ),
    ("DeclaredOp::parse", "a user's own: what it returns is an error of the call that appends the operator"),
    ("Op::infer_shape", "a user's own: what it returns is an error of the call that appends the operator"),
    ("Op::levels", "a user's own: what it returns is an error at the line that appended the operator"),
    ("Op::forward", "a user's own: what it returns is an error at the line that appended the operator"),
    ("Op::settle", "a user's own: what it returns is an error at the line that appended the operator"),
    ("Op::resolve", "a user's own: what it returns is an error of `Registry::parse`"),
    ("Operators::operator", "what `Op::resolve` calls, as `Registry::parse`"),
    ("element::infer_shape", "what `update_rule!` calls, as `Op::infer_shape`"),
    ("element::forward", "what `update_rule!` calls, as `Op::forward`"),
    ("element::settle", "what `update_rule!` calls, as `Op::settle`"),
    ("element::samples", "what `update_rule!` calls, as `Op::samples`"),
    ("Op::backward", "a user's own: what it returns is an error at the line that appended the operator"),
    ("Op::samples", "a user's own: what it returns is an error of `Registry::samples`"),
    ("Registry::samples", "what an operator's own samples return keeps its line"),
    ("Builder::check", "returns what was written down, each with its own line"),
    ("Builder::program", "as `Builder::check`"),
    ("Builder::carried_state", "as `Builder::carried_state_of`, but for a name that is taken"),
    ("Builder::finish", "as `Builder::check`"),
    ("Op::prepare", "a user's own: what it returns is an error at the line that appended the operator"),
    ("Optimizer::rule", "a user's own: what it returns is an error of `minimize`"),
    ("Metric::update", "a user's own: what it returns is an error at the line of `Trainer::metric`"),
    ("testing::check", "what it returns are the failures of operators, each with the sample and the rule"),
    ("testing::check_kinds", "as `testing::check`"),
    ("World::mpi", "only with the feature `mpi`: `tests/world.rs` calls it"),
    ("Mpi::new", "only with the feature `mpi`, as `World::mpi`"),
    ("Communicator::exchange", "a transport returns `ExchangeFailure`, of which `World` makes an error"),
    ("Source::open", "a user's own: what it returns is an error at the line of `Loader::new`"),
];

#[test]
fn every_public_call_that_fails_names_its_line() {
    let mut calls = Calls::default();
    values::calls(&mut calls);
    sparse::calls(&mut calls);
    data::calls(&mut calls);
    programs::calls(&mut calls);
    classes::calls(&mut calls);
    training::calls(&mut calls);
    store::calls(&mut calls);
    writing::calls(&mut calls);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // What each of them says, whole, so that a change of words is reviewed as words: see `snapshots.rs`.
    insta::assert_snapshot!("messages", calls.check(&root, &LEFT_OUT));
}
