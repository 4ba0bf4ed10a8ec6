//! However a checkpoint is damaged, to load it never takes more memory than a small multiple of its size.

use unpadded::checkpoint::Checkpoint;
use unpadded::op::Spec;
use unpadded::predict::Predictor;
use unpadded::program::VarKind;
use unpadded::tensor::Dense;
use unpadded::{DType, Program, wire};

use crate::damage::{change, file, item, record, sections};
use crate::models::Random;
use crate::thorough::times;
use crate::{peak_memory, trained};

/// Returns the bytes that loading takes at its peak, and whether it succeeds.
fn load(bytes: &[u8]) -> (usize, bool) {
    peak_memory::of(|| Checkpoint::from_bytes(bytes).is_ok())
}

/// Loads many changed files; each may take `times` times its own size, and the slack.
fn try_changed(whole: &Checkpoint, rounds: usize, times: f64) {
    // The decoder takes up to a mebibyte for a list of which it has only read the length, twice for a list in a list.
    let slack = 3 << 20;
    let bytes = whole.to_bytes().unwrap();
    let (sound, loads) = load(&bytes);
    assert!(loads);
    let (parts, mut random, mut most) = (sections(&bytes), Random(3), 0);
    for round in 0..rounds {
        let mut all = parts.clone();
        change(&mut all, &mut random);
        let bytes = file(&all);
        let (peak, _) = load(&bytes);
        most = most.max(peak);
        let bound = (times * bytes.len() as f64) as usize + slack;
        assert!(peak <= bound, "round {round}: {peak} bytes for a file of {}", bytes.len());
    }
    println!("{} bytes: {sound} to load, at most {most} damaged", bytes.len());
}

#[test]
fn a_damaged_checkpoint_takes_no_more_memory_than_its_size_justifies() {
    own_process!();
    let mut checkpoint = trained::checkpoint(4);
    try_changed(&checkpoint, times(2_000), 4.0);

    // The numbers are most of a large one, and are there once.
    let rows = 1_000_000;
    let id = checkpoint.program.find("linear_0.bias").unwrap();
    checkpoint.program.var_mut(id).kind = VarKind::Tensor(Spec::fixed(DType::F32, &[rows]).unwrap());
    checkpoint.best.clear();
    checkpoint.tensors.insert("linear_0.bias".to_owned(), Dense::zeros(DType::F32, &[rows]).unwrap().into());
    try_changed(&checkpoint, 100, 1.1);
}

/// Bytes that a forged file claims to have; it really has a few bytes, and a hole behind them.
const FORGED: u64 = 10 << 30;
/// The bytes that refusing a forged file may take.
const LITTLE: usize = 32 << 20;

/// Writes the start of a file with a section up to the forged end: the section's body begins with `body`, and the rest of the
/// body is a hole.
fn forge(path: &std::path::Path, before: &[(String, Vec<u8>)], section: &str, length: u64, body: &[u8]) {
    let mut bytes = file(&before.to_vec());
    // The empty section at the end is removed.
    bytes.truncate(bytes.len() - 17);
    let mut head = vec![section.len() as u8];
    head.extend_from_slice(section.as_bytes());
    head.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    bytes.extend_from_slice(body);
    std::fs::write(path, bytes).unwrap();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(FORGED).unwrap();
}

/// The head of a tensor, as a checkpoint has it.
fn head(name: &str, dtype: &str, shape: &[u64]) -> Vec<u8> {
    let shape: Vec<Vec<u8>> = shape.iter().map(|n| item(&n.to_le_bytes())).collect();
    item(&record(&[(1, name.into()), (2, dtype.into()), (3, shape.concat())]))
}

/// Returns the start of a field that claims the given length.
fn field(number: u8, length: u64) -> Vec<u8> {
    [vec![number], (length as u32).to_le_bytes().to_vec()].concat()
}

/// Every reader refuses a file that claims to be large, and is a hole, in little memory and at once.
#[test]
fn a_forged_length_takes_no_memory() {
    own_process!();
    let path = std::env::temp_dir().join(format!("unpadded-forged-{}.ckpt", std::process::id()));
    let parts = sections(&trained::checkpoint(4).to_bytes().unwrap());
    let first = |name: &str| parts.iter().position(|(section, _)| section == name).unwrap();
    let most = wire::LONGEST - 1000;
    let numbers = |elements: u64| head("linear_0.bias", "f32", &[elements]).len() as u64 + 4 * elements;
    let billion = 1u64 << 31;
    // Tokens up to the end, the first of them long, the others empty.
    let name = record(&[(1, b"words".to_vec())]);
    let left = most - name.len() as u64 - 10;
    let tokens = [name, field(2, left + 5), field(1, left), (1u32 << 24).to_le_bytes().to_vec()].concat();
    // The section, its length, the start of its body, and words of the error.
    let cases: Vec<(&str, u64, Vec<u8>, &str)> = vec![
        ("program", 9 << 30, Vec::new(), "section `program`: expected at most"),
        ("program", wire::STRUCTURED, Vec::new(), "section `program`"),
        ("position", 9 << 30, Vec::new(), "section `position`: expected at most"),
        ("notes", 9 << 30, Vec::new(), "section `notes`: expected at most"),
        ("notes", wire::STRUCTURED, field(1, wire::STRUCTURED - 5), "section `notes`"),
        ("outputs", 9 << 30, Vec::new(), "section `outputs`: expected at most"),
        ("metric", 9 << 30, Vec::new(), "section `metric`: expected at most"),
        ("metric", wire::STRUCTURED, Vec::new(), "section `metric`"),
        ("purpose", 9 << 30, Vec::new(), "section `purpose`: expected at most"),
        ("criterion", 9 << 30, Vec::new(), "section `criterion`: expected at most"),
        ("vocabulary", 9 << 30, Vec::new(), "section `vocabulary`: expected at most"),
        ("vocabulary", most, Vec::new(), "section `vocabulary`"),
        ("vocabulary", most, tokens, "section `vocabulary`"),
        (
            "tensor",
            9 << 30,
            u32::MAX.to_le_bytes().to_vec(),
            "section `tensor`, length of the head: expected at most",
        ),
        ("best", 9 << 30, (1u32 << 24).to_le_bytes().to_vec(), "section `best`"),
        (
            "tensor",
            numbers(billion),
            head("linear_0.bias", "f32", &[billion]),
            "`linear_0.bias`: expected f32[2], got",
        ),
        (
            "tensor",
            numbers(billion),
            head("linear_0.bias", "f32", &[2]),
            "`linear_0.bias`: expected the bytes of f32[2]",
        ),
        (
            "tensor",
            numbers(billion),
            head("another", "f32", &[billion]),
            "`another`: expected only variables that the program keeps",
        ),
        (
            "best",
            numbers(billion),
            head("linear_0.bias", "f32", &[billion]),
            "`linear_0.bias`: expected f32[2], got",
        ),
        ("carried", 1 << 33, head("h", "f32", &[billion / 2, 2]), "`h`: expected at most"),
        (
            "carried",
            1 << 33,
            head("words", "i64", &[1 << 30]),
            "`words`: expected 1 levels of offsets, got 0",
        ),
    ];
    for (section, length, body, says) in cases {
        let at = if section == "purpose" { first("tensor") } else { first(section) };
        let before = if section == "vocabulary" { &parts[..at] } else { &parts[..at.max(1)] };
        forge(&path, if section == "program" { &[] } else { before }, section, length, &body);
        let case = format!("`{section}` of {length} bytes");
        let clock = std::time::Instant::now();
        let (peak, error) = peak_memory::of(|| Checkpoint::load(&path).unwrap_err().to_string());
        assert!(error.contains(says), "{case}: {error}");
        assert!(peak < LITTLE, "{case}: {peak} bytes");
        let (peak, refused) = peak_memory::of(|| Predictor::load(&path).is_err());
        assert!(refused && peak < LITTLE, "{case}: {peak} bytes to predict");
        if section == "program" {
            let (peak, refused) = peak_memory::of(|| Program::load(&path).is_err());
            assert!(refused && peak < LITTLE, "{case}: {peak} bytes for the program");
        }
        println!("{case}: {:.2} s", clock.elapsed().as_secs_f64());
        assert!(clock.elapsed().as_secs() < 20, "{case}");
    }
    // A section of a later release is skipped without being held.
    forge(&path, &parts, "later", 1 << 30, &[]);
    let (peak, refused) = peak_memory::of(|| Checkpoint::load(&path).is_err());
    assert!(refused && peak < LITTLE, "{peak} bytes to skip");
    forge(&path, &[], "vocabulary", 9 << 30, &[]);
    let (peak, refused) = peak_memory::of(|| unpadded::data::Vocabulary::load(&path).is_err());
    assert!(refused && peak < LITTLE, "{peak} bytes for a vocabulary");
    std::fs::remove_file(path).unwrap();
}

/// Every saved file can be loaded: a section beyond its bound is refused before a file is written.
#[test]
fn what_is_too_long_to_load_is_not_saved() {
    own_process!();
    let mut checkpoint = trained::checkpoint(1);
    checkpoint.notes.insert("large".to_owned(), "x".repeat(wire::STRUCTURED as usize));
    let error = checkpoint.to_bytes().unwrap_err().to_string();
    assert!(error.contains("section `notes`: expected at most 16777216 bytes, got "), "{error}");
    checkpoint.notes.insert("large".to_owned(), "x".repeat(wire::STRUCTURED as usize - 1000));
    assert_eq!(Checkpoint::from_bytes(&checkpoint.to_bytes().unwrap()).unwrap().notes, checkpoint.notes);
}
