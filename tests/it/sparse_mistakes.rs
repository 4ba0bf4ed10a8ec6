//! Mistakes with sparse variables in programs: sizes that nothing can hold, and operators that are refused.

use unpadded::layers::init;
use unpadded::op::{Extent, Size, Spec};
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Error, Fallback};

/// The messages of a builder's errors.
fn messages(net: &Builder) -> Vec<String> {
    net.check().err().iter().flat_map(Error::all).map(|error| error.to_string()).collect()
}

/// There is one message, which has each of the words.
#[track_caller]
fn says(net: &Builder, words: &[&str]) {
    let found = messages(net);
    assert_eq!(found.len(), 1, "{found:#?}");
    for words in words {
        assert!(found[0].contains(words), "expected `{words}`: {}", found[0]);
    }
}

#[test]
fn a_size_that_nothing_can_hold_is_refused_at_its_own_line() {
    const HUGE: [usize; 4] = [(1 << 60) + 1, 1 << 62, 1 << 63, usize::MAX];
    for columns in HUGE {
        let net = Builder::new();
        let line = line!() + 1;
        let x = net.feed_csr("x", DType::F32, columns, 0);
        let _ = (x.softmax(), x.transposed_dot(x), x.tanh().mean());
        let location = format!("sparse_mistakes.rs:{line}:");
        says(
            &net,
            &["variable `x`: shape: expected rows and columns of which there are at most 2^60", &location],
        );

        let net = Builder::new();
        net.feed_stored("x", DType::F64, &[Some(columns), Some(4)], StorageKind::Coo).tanh();
        says(&net, &["at most 2^60, multiplied", "4] coo"]);
        let net = Builder::new();
        net.row_sparse_parameter("table", DType::F64, &[4, columns], init::zeros());
        says(&net, &["variable `table`: shape: expected fewer than 2^63 bytes in a row"]);
        let net = Builder::new();
        net.feed("x", DType::F64, &[columns], 0).sum();
        says(&net, &["variable `x`: shape: expected a number of elements that memory can hold"]);
        let net = Builder::new();
        net.parameter("x", DType::F64, &[3, columns], init::zeros());
        says(&net, &["variable `x`: shape: expected a number of elements that memory can hold"]);
    }
}

#[test]
fn the_largest_sparse_rows_are_projected_and_their_products_are_refused() {
    let net = Builder::new();
    let widest = net.feed_csr("widest", DType::F64, 1 << 60, 0);
    assert_eq!(net.describe(widest.random_projection(64, 7)), "`random_projection`: f64[batch, 64]");
    assert_eq!(net.describe(widest.sum_features()), "`sparse_sum_features`: f64[batch, 1]");
    assert!(net.check().is_ok(), "{:?}", messages(&net));
    let report = net.program().unwrap().storage_report(&net.registry()).unwrap();
    assert!(report.get(widest).is_some());
    let line = line!() + 1;
    widest.transposed_dot(widest);
    says(&net, &["transposed_dot #2: shape: expected rows", &format!("sparse_mistakes.rs:{line}:")]);
}

#[test]
fn bytes_beyond_all_numbers_are_counted_as_the_largest() {
    let most = [usize::MAX, usize::MAX];
    for storage in [StorageKind::Dense, StorageKind::SelectedRows, StorageKind::Csr, StorageKind::Coo] {
        let size = |spec: Spec| Size::of(&spec.stored(storage), Extent::Data(1)).bytes(3, 3);
        assert_eq!(size(Spec::fixed(DType::F64, &most).unwrap()), usize::MAX, "{storage}");
        let rows = Spec::rows_of(DType::F64, Extent::Batch, &most, Default::default()).unwrap();
        let sparse = matches!(storage, StorageKind::Csr | StorageKind::Coo);
        assert_eq!(size(rows), if sparse { 8 + 24 + 48 } else { usize::MAX }, "{storage}");
    }
}

#[test]
fn each_conversion_of_the_program_is_one_warning_with_the_bytes_that_it_has_there() {
    let net = Builder::new();
    let x = net.feed_csr("x", DType::F32, 30, 1);
    let z = net.feed_csr("z", DType::F32, 7, 0);
    // Both slots, and then another line, read the same dense variable.
    let _ = (net.less(z, z), z.softmax());
    net.recurrent(x, |step, x_t| {
        let state = step.memory(30);
        step.update(state, state + x_t.softmax() + x_t.log_softmax());
        let around = z.softmax().linear(30);
        (step.last(state), around)
    });
    let warnings: Vec<String> = net.warnings().iter().map(ToString::to_string).collect();
    let program = net.program().unwrap();
    let made = program.root().ops.iter().filter(|op| op.kind == "to_dense").count();
    assert_eq!(warnings.len(), made, "{warnings:#?}");
    let expected = [
        "variable `z` is csr, for which `x` of less #1 has no kernel: made dense, 28 × batch bytes;",
        "variable `x` is csr, for which `x` of softmax #0 has no kernel: made dense, 120 × rows0 bytes;",
        "variable `z` is csr, for which `x` of softmax ",
    ];
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(expected), "{warning}");
    }
    assert!(warnings[2].contains("made dense, 28 × batch bytes"), "{}", warnings[2]);
    let report = program.storage_report(&net.registry()).unwrap();
    let text: Vec<String> = report.fallbacks().map(|dense| dense.size.to_string()).collect();
    let warned: Vec<String> = net.warnings().iter().map(|warning| warning.dense.to_string()).collect();
    assert_eq!(text, warned);
}

#[test]
fn what_is_refused_in_a_step_is_one_error() {
    let net = Builder::new().fallback(Fallback::Deny);
    let x = net.feed_csr("x", DType::F32, 10, 1);
    let h = net.recurrent(x, |step, x_t| {
        let state = step.memory(10);
        let next = x_t.softmax() + state;
        step.update(state, next);
        next
    });
    h.linear(2).mean();
    says(&net, &["softmax #0: variable `x`: storage of input `x`: expected dense, got csr"]);

    let net = Builder::new();
    let x = net.feed_csr("x", DType::F32, 10, 1);
    let h = net.recurrent(x, |step, x_t| {
        let state = step.memory(10);
        let next = x_t + state;
        step.update(state, next);
        next
    });
    h.linear(2).mean();
    says(
        &net,
        &[
            "add #0 in the step over `x`: variable `x.step`: sparse rows in a step",
            "`memory`, which the step computes",
        ],
    );
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let net = Builder::new();
    let x = net.feed_csr("x", DType::F32, 3, 1);
    let y = net.feed("y", DType::F32, &[4], 1);
    net.less(x, y);
    says(&net, &["less #0: ", "f32[rows of `x`, 3] csr"]);
    assert!(net.warnings().is_empty(), "{:?}", net.warnings());
    // In a step, of a variable around it and of one of the step.
    let z = net.feed_csr("z", DType::F32, 3, 0);
    net.recurrent(x, |step, x_t| {
        let state = step.memory(4);
        step.less(state, z);
        step.less(state, x_t);
        step.update(state, state.tanh());
        step.last(state)
    });
    let found = messages(&net);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found[1].contains("less #0 in the step over `x`: ") && found[1].contains("3] csr"),
        "{}",
        found[1]
    );
    assert!(
        found[2].contains("less #0 in the step over `x`: ") && found[2].contains("3] csr"),
        "{}",
        found[2]
    );
    assert!(net.warnings().is_empty(), "{:?}", net.warnings());
    // Operators accepted afterwards have the numbers that they would have had.
    x.softmax();
    let warnings: Vec<String> = net.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("softmax #1"), "{}", warnings[0]);
}

#[test]
fn a_feed_of_unknown_dimensions_is_refused_with_its_shape() {
    let net = Builder::new();
    net.feed_stored("rows", DType::F32, &[None, Some(4)], StorageKind::SelectedRows);
    says(&net, &["variable `rows`: shape of a feed: expected a known height of selected rows, got None"]);
    let net = Builder::new();
    net.feed_stored("x", DType::F32, &[Some(2), None], StorageKind::Dense);
    says(&net, &["shape of a feed: expected known dimensions after the first, got [Some(2), None]"]);
}

/// A memory holds dense rows: a memory that began as csr, and stayed csr, was an error of the run.
#[test]
fn a_memory_does_not_start_as_sparse_rows() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    let start = net.feed_csr("start", DType::F32, 3, 0);
    let _ = net.recurrent(x, |step, x| {
        let memory = step.memory_from(start);
        step.update(memory, start);
        x
    });
    let error = net.finish().unwrap_err().to_string();
    assert!(
        error.contains("initial memory: expected dense rows (call `to_dense` first)")
            && error.contains("`start`"),
        "{error}"
    );
}
