//! Checkpoints: every bit is restored, equal states have equal bytes, and damaged or hostile files are refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use unpadded::checkpoint::{Checkpoint, SparseSums};
use unpadded::executor::Scope;
use unpadded::op::{Attributes, Spec};
use unpadded::predict::Predictor;
use unpadded::program::{BlockId, VarDesc, VarKind, VarRole};
use unpadded::tensor::{Dense, Storage};
use unpadded::{DType, ErrorKind, Lod, Program, Variable, ops};

use crate::damage::{Sections, change, fields, file, item, items, record, sections};
use crate::models::Random;
use crate::thorough::times;
use crate::trained::{self, FEEDS};

/// How many changed checkpoints the suite tries.
const ROUNDS: usize = 10_000;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unpadded-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn refused(sections: &Sections) -> String {
    let error = Checkpoint::from_bytes(&file(sections)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    let message = error.to_string();
    let (text, line) = message.split_once(" (at ").unwrap();
    assert!(line.starts_with(file!()), "{message}");
    text.to_owned()
}

/// Returns a file in which a field of a section's record is replaced.
fn with(name: &str, number: u8, value: &[u8]) -> Sections {
    let mut all = sections(&trained::checkpoint(4).to_bytes().unwrap());
    for (_, body) in all.iter_mut().filter(|(section, _)| section == name) {
        let mut changed = fields(body);
        changed.iter_mut().filter(|(known, _)| *known == number).for_each(|(_, old)| *old = value.to_vec());
        *body = record(&changed);
    }
    all
}

#[test]
fn everything_comes_back_and_equal_states_are_equal_bytes() {
    let checkpoint = trained::checkpoint(4);
    let bytes = checkpoint.to_bytes().unwrap();
    assert_eq!(Checkpoint::from_bytes(&bytes).unwrap(), checkpoint);
    assert_eq!(trained::checkpoint(4).to_bytes().unwrap(), bytes);
    assert_ne!(trained::checkpoint(5).to_bytes().unwrap(), bytes);
    println!("{} bytes", bytes.len());

    // By a file and a scope it is the same.
    let folder = folder("checkpoint-back");
    let path = folder.join("x.ckpt");
    checkpoint.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let mut loaded = Checkpoint::load(&path).unwrap();
    let mut scope = Scope::of(&loaded.program).unwrap();
    loaded.restore(&mut scope).unwrap();
    assert!(loaded.tensors.is_empty());
    loaded.save_from(&mut scope, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    // A program is found in it too.
    assert_eq!(Program::load(&path).unwrap(), checkpoint.program);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Numbers that `==` or a conversion would lose.
#[test]
fn every_bit_of_every_dtype_comes_back() {
    let f16 = half::f16::from_bits;
    let bf16 = half::bf16::from_bits;
    let long: Vec<f32> = (0..20_000u32).map(|i| f32::from_bits(i * 214_748)).collect();
    let values: Vec<Dense> = vec![
        Dense::from(ndarray::array![f32::NAN, -f32::NAN, -0.0, 1e-45, f32::from_bits(0x7f80_0001)]),
        Dense::from(ndarray::array![[f64::from_bits(0xfff8_dead_beef_0001)], [-0.0], [5e-324]]),
        Dense::from(ndarray::array![f16(0x7e01), f16(0x8000), f16(1), f16(0xfc00)]),
        Dense::from(ndarray::array![bf16(0x7fc1), bf16(0x8000), bf16(1), bf16(0xff80)]),
        Dense::from(ndarray::array![i8::MIN, -1, i8::MAX]),
        Dense::from(ndarray::array![i16::MIN, -1, i16::MAX]),
        Dense::from(ndarray::array![i32::MIN, -1, i32::MAX]),
        Dense::from(ndarray::array![i64::MIN, -1, i64::MAX]),
        Dense::from(ndarray::array![[true, false], [false, true]]),
        Dense::from_vec(&[], vec![1.5f64]).unwrap(),
        Dense::zeros(DType::F32, &[0, 3]).unwrap(),
        Dense::from_vec(&[200, 100], long).unwrap(),
    ];
    let mut checkpoint = Checkpoint::default();
    for (i, value) in values.into_iter().enumerate() {
        let name = format!("v{i}");
        let spec = Spec::fixed(value.dtype(), value.shape()).unwrap();
        let mut var = VarDesc::new(&name, BlockId(0), VarKind::Tensor(spec), VarRole::Parameter);
        (var.persistable, var.stop_gradient) = (true, true);
        checkpoint.program.add_var(var).unwrap();
        checkpoint.tensors.insert(name, value.into());
    }
    checkpoint.best = checkpoint.tensors.clone();
    let bytes = checkpoint.to_bytes().unwrap();
    let loaded = Checkpoint::from_bytes(&bytes).unwrap();
    for (name, value) in &checkpoint.tensors {
        let same = |storage: &Storage| storage.as_dense().unwrap().bits_eq(value.as_dense().unwrap());
        assert!(same(&loaded.tensors[name]) && same(&loaded.best[name]), "{name}");
    }
    assert_eq!(loaded.to_bytes().unwrap(), bytes);
}

/// Without its checksum made right again, nothing that was changed loads.
#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let bytes = trained::checkpoint(4).to_bytes().unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let error = Checkpoint::from_bytes(&changed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        assert!(error.to_string().starts_with("bytes of a checkpoint: "), "{error}");
        let error = Checkpoint::from_bytes(&bytes[..at]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    }
}

/// Does everything that a user does with a loaded checkpoint, and returns whether it predicted.
fn use_up(checkpoint: Checkpoint, batch: &[(&str, &Variable)]) -> bool {
    let position = &checkpoint.position;
    let _ = (position.epoch + 1, position.step + 1, position.since_best + 1, position.tokens + (1 << 40));
    let Ok(bytes) = checkpoint.to_bytes() else { return false };
    assert!(Checkpoint::from_bytes(&bytes).is_ok(), "what loaded and was saved does not load again");
    // A well-formed program with large variables needs memory for them.
    let large = |spec: &Spec| {
        spec.shape.iter().filter_map(|e| e.known()).fold(1usize, usize::saturating_mul) > 1 << 20
    };
    if checkpoint.program.vars().filter_map(|(_, v)| v.spec()).any(large) {
        return false;
    }
    let names: Vec<String> = checkpoint.outputs.keys().cloned().collect();
    let Ok(predictor) = Predictor::new(checkpoint, &ops::catalogue()) else { return false };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    predictor.threads(1).run(batch, &names).is_ok()
}

/// Changes sections and bytes and updates the checksums; a file that still loads is saved, predicts, or is refused.
#[test]
fn no_changed_checkpoint_panics() {
    let whole = trained::checkpoint(4);
    try_changed(&whole, &sections(&whole.to_bytes().unwrap()), file, times(ROUNDS));
}

fn try_changed(whole: &Checkpoint, parts: &Sections, file: fn(&Sections) -> Vec<u8>, rounds: usize) {
    const PARTS: usize = 4;
    let values = trained::batch();
    let feeds = values.iter().filter(|(name, _)| FEEDS.contains(name));
    let batch: Vec<_> = feeds.map(|(name, value)| (*name, value)).collect();
    assert!(use_up(Checkpoint::from_bytes(&file(parts)).unwrap(), &batch));
    let one = |round: usize, random: &mut Random| {
        let mut all = parts.clone();
        change(&mut all, random);
        match Checkpoint::from_bytes(&file(&all)) {
            // Other numbers in the same program are tried now and then.
            Ok(other)
                if other.program == whole.program
                    && other.outputs == whole.outputs
                    && !round.is_multiple_of(32) =>
            {
                (true, false)
            }
            Ok(checkpoint) => (true, use_up(checkpoint, &batch)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Format, "{error}");
                (false, false)
            }
        }
    };
    let part = &|seed: usize| {
        let (mut random, mut counts) = (Random(seed as u64), [0; 2]);
        for round in 0..rounds / PARTS {
            let outcome = catch_unwind(AssertUnwindSafe(|| one(round, &mut random)));
            let (loaded, ran) = outcome.unwrap_or_else(|_| panic!("part {seed}, round {round}"));
            counts = [counts[0] + usize::from(loaded), counts[1] + usize::from(ran)];
        }
        counts
    };
    let counts: Vec<[usize; 2]> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PARTS).map(|seed| scope.spawn(move || part(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [loaded, ran] = [0, 1].map(|i| counts.iter().map(|c| c[i]).sum::<usize>());
    println!("{rounds} changed: {loaded} loaded, {ran} predicted");
    assert!(loaded > rounds / 20 && ran > rounds / 200, "{loaded} {ran}");
}

#[test]
fn errors_name_the_section_and_what_is_wrong() {
    let whole = sections(&trained::checkpoint(4).to_bytes().unwrap());
    let names: Vec<&str> = whole.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..6], ["program", "position", "notes", "outputs", "vocabulary", "vocabulary"]);
    for name in ["program", "position", "notes", "outputs"] {
        let without = whole.iter().filter(|(section, _)| section != name).cloned().collect();
        let expected = format!("sections of a checkpoint: expected a section `{name}`, got none");
        assert!(refused(&without).ends_with(&expected), "{}", refused(&without));
        let mut twice = whole.clone();
        twice.extend(whole.iter().filter(|(section, _)| section == name).cloned());
        assert!(
            refused(&twice)
                .ends_with(&format!("section `{name}`: expected the section once, got the section twice"))
        );
    }
    for name in ["vocabulary", "tensor", "best", "carried"] {
        let mut twice = whole.clone();
        twice.push(whole.iter().find(|(section, _)| section == name).unwrap().clone());
        assert!(refused(&twice).contains(&format!("section `{name}`, `")), "{}", refused(&twice));
    }
    let tensor = names.iter().position(|&name| name == "tensor").unwrap();
    let mut missing = whole.clone();
    let taken = missing.remove(tensor);
    assert!(refused(&missing).ends_with("expected a tensor for this variable of the program, got none"));
    let mut other = missing.clone();
    other.push(("best".to_owned(), taken.1.clone()));
    assert!(refused(&other).contains("section `best`, `"), "{}", refused(&other));
    // A tensor that claims to be larger than any file.
    let mut absurd = whole.clone();
    let body = &mut absurd[tensor].1;
    let shape = body.windows(8).position(|w| w == 3u64.to_le_bytes()).unwrap();
    body[shape..shape + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    assert!(refused(&absurd).contains("section `tensor`"), "{}", refused(&absurd));
    absurd[tensor].1[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&absurd).contains("length of the head: expected at most"), "{}", refused(&absurd));
}

#[test]
fn a_position_that_cannot_be_is_refused() {
    for number in [f64::NAN, f64::INFINITY] {
        let message = refused(&with("position", 11, &number.to_le_bytes()));
        assert!(message.contains("section `position`, `rate`: expected a finite number"), "{message}");
        let best = [number.to_le_bytes(), 2u64.to_le_bytes(), 2u64.to_le_bytes()].map(|field| field.to_vec());
        let message = refused(&with("position", 6, &record(&(1..).zip(best).collect::<Vec<_>>())));
        assert!(message.contains("section `position`, `best value`: expected a finite number"), "{message}");
        // A metric may be anything.
        let sums = [item(&1f64.to_le_bytes()), item(&number.to_le_bytes())].concat();
        let running = item(&record(&[(1, b"loss".to_vec()), (2, sums)]));
        let read = Checkpoint::from_bytes(&file(&with("position", 8, &running))).unwrap();
        assert_eq!(read.position.running["loss"][1].to_bits(), number.to_bits());
    }
    let mut many = trained::checkpoint(4);
    many.position.sparse =
        [("many".to_owned(), SparseSums { count: 9, sums: vec![(1, 0.5), (3, f64::NAN)] })].into();
    let read = Checkpoint::from_bytes(&many.to_bytes().unwrap()).unwrap();
    assert!(read.position.sparse["many"].sums[1].1.is_nan());
    for (count, sums, expected) in [
        (9, vec![(3, 0.5), (3, 1.0)], "expected ascending indices below 9, got 3"),
        (3, vec![(1, 0.5), (3, 1.0)], "expected ascending indices below 3, got 3"),
        (u64::MAX, vec![(u64::MAX, 1.0)], "below 18446744073709551615, got 18446744073709551615"),
    ] {
        let mut whole = trained::checkpoint(4);
        whole.position.sparse = [("many".to_owned(), SparseSums { count, sums })].into();
        let message = whole.to_bytes().unwrap_err().to_string();
        assert!(message.contains("section `sums`, `many`") && message.contains(expected), "{message}");
    }
    let message = refused(&with("position", 3, &u64::MAX.to_le_bytes()));
    assert!(message.contains("`step`: expected a count below 2^53, got 18446744073709551615"), "{message}");
}

#[test]
fn a_history_that_cannot_be_is_refused() {
    let whole = trained::checkpoint(4);
    let unfit = |change: &dyn Fn(&mut Checkpoint), expected: &str| {
        let mut other = whole.clone();
        change(&mut other);
        let error = other.to_bytes().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let number = "section `epoch`, `number`: expected";
    unfit(&|c| c.history.swap(0, 1), &format!("{number} epochs in ascending order, got 1 after 2"));
    unfit(&|c| c.history[1].epoch = 1, &format!("{number} epochs in ascending order, got 1 after 1"));
    unfit(&|c| c.history[0].epoch = 0, &format!("{number} at least 1, got 0"));
    unfit(&|c| c.history[2].epoch = 4, &format!("{number} at most 3, the number of finished epochs, got 4"));
    unfit(&|c| c.position.epoch = 2, &format!("{number} at most 2, the number of finished epochs, got 3"));
    let step = "section `epoch`, `step`: expected";
    unfit(&|c| c.history[1].step = 0, &format!("{step} steps in ascending order, got 0 after 1"));
    unfit(&|c| c.history[2].step = 5, &format!("{step} at most 4, the number of steps made, got 5"));
    // From a file too, as are scores without a name and names without a score.
    let message = refused(&with("epoch", 1, &0u64.to_le_bytes()));
    assert!(message.contains("expected epochs in ascending order, got 0 after 0"), "{message}");
    let message = refused(&with("epoch", 2, &5u64.to_le_bytes()));
    assert!(message.contains("at most 4, the number of steps made, got 5"), "{message}");
    for field in [5, 7] {
        let three =
            [item(&1f64.to_le_bytes()), item(&2f64.to_le_bytes()), item(&3f64.to_le_bytes())].concat();
        let names = if field == 5 { 1 } else { 2 };
        for (values, got) in [(three, 3), (Vec::new(), 0)] {
            let message = refused(&with("epoch", field, &values));
            assert!(message.contains("section `epoch`"), "{message}");
            assert!(
                message.contains(&format!("scores of an epoch: expected {names}, one per name, got {got}")),
                "{message}"
            );
        }
    }
}

/// Every record of a value, with a field that no release knows before and behind its own, to the innermost ones.
fn with_more_fields(record_of: &[u8], depth: usize) -> Vec<u8> {
    let more = (250, b"of a later release".to_vec());
    let mut all = fields(record_of);
    if depth > 0 {
        for (_, value) in all.iter_mut().filter(|(number, _)| *number <= 2) {
            let inner = items(value);
            let records = inner.iter().map(|inner| item(&with_more_fields(inner, depth - 1)));
            *value = records.collect::<Vec<_>>().concat();
        }
    }
    all.insert(0, more.clone());
    all.push(more);
    record(&all)
}

#[test]
fn fields_of_later_releases_are_skipped() {
    let checkpoint = trained::checkpoint(4);
    let mut more = sections(&checkpoint.to_bytes().unwrap());
    for (section, body) in &mut more {
        match section.as_str() {
            // The program, each of its variables and each of its blocks.
            "program" => *body = with_more_fields(body, 1),
            "tensor" | "best" | "carried" => {
                let length = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
                let head = with_more_fields(&body[4..4 + length], 0);
                *body = [item(&head), body[4 + length..].to_vec()].concat();
            }
            _ => *body = with_more_fields(body, 0),
        }
    }
    assert_eq!(Checkpoint::from_bytes(&file(&more)).unwrap(), checkpoint);
}

#[test]
fn fields_that_are_missing_take_their_defaults() {
    let mut checkpoint = trained::checkpoint(4);
    let mut less = sections(&checkpoint.to_bytes().unwrap());
    // The settings of metrics beside their variables, and the lines that appended operators.
    for (_, body) in less.iter_mut().filter(|(section, _)| section == "metric") {
        let left: Vec<_> = fields(body).into_iter().filter(|(number, _)| *number != 4).collect();
        *body = record(&left);
    }
    for (_, body) in less.iter_mut().filter(|(section, _)| section == "program") {
        let mut program = fields(body);
        for (_, blocks) in program.iter_mut().filter(|(number, _)| *number == 2) {
            let without = |op: &Vec<u8>| {
                let left: Vec<_> = fields(op).into_iter().filter(|(number, _)| *number != 7).collect();
                item(&record(&left))
            };
            let block = |block: &Vec<u8>| {
                let mut of_block = fields(block);
                for (_, ops) in of_block.iter_mut().filter(|(number, _)| *number == 2) {
                    *ops = items(ops).iter().map(without).collect::<Vec<_>>().concat();
                }
                item(&record(&of_block))
            };
            *blocks = items(blocks).iter().map(block).collect::<Vec<_>>().concat();
        }
        *body = record(&program);
    }
    let loaded = Checkpoint::from_bytes(&file(&less)).unwrap();
    let ops = loaded.program.ops();
    assert!(ops.map(|op| &op.caller).all(String::is_empty));
    checkpoint.metrics.iter_mut().for_each(|metric| metric.attributes = Attributes::new());
    assert_eq!(loaded.metrics, checkpoint.metrics);
    assert_eq!(loaded.tensors, checkpoint.tensors);
    // A field without a default is required.
    let mut less = sections(&checkpoint.to_bytes().unwrap());
    for (_, body) in less.iter_mut().filter(|(section, _)| section == "position") {
        let left: Vec<_> = fields(body).into_iter().filter(|(number, _)| *number != 3).collect();
        *body = record(&left);
    }
    assert!(
        refused(&less).contains("expected a field `step` of StoredPosition, got none"),
        "{}",
        refused(&less)
    );
}

/// Later releases add sections of other names.
#[test]
fn sections_of_later_releases_are_skipped() {
    let checkpoint = trained::checkpoint(4);
    let mut more = sections(&checkpoint.to_bytes().unwrap());
    more.insert(1, ("of a later release".to_owned(), vec![7; 100_000]));
    assert_eq!(Checkpoint::from_bytes(&file(&more)).unwrap(), checkpoint);
}

#[test]
fn parts_that_do_not_fit_are_refused_before_anything_is_written() {
    let folder = folder("checkpoint-parts");
    let path = folder.join("x.ckpt");
    let whole = trained::checkpoint(4);
    whole.save(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = |change: &dyn Fn(&mut Checkpoint), expected: &str| {
        let mut other = whole.clone();
        change(&mut other);
        for error in [other.save(&path).unwrap_err(), other.to_bytes().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Program, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    };
    let zeros = |shape: &[usize]| Dense::zeros(DType::F32, shape).unwrap();
    let bias = "linear_0.bias";
    refused(
        &|c| drop(c.tensors.insert(bias.to_owned(), zeros(&[3]).into())),
        "section `tensor`, `linear_0.bias`: expected f32[2], got f32[3]",
    );
    refused(
        &|c| drop(c.tensors.insert(bias.to_owned(), Dense::zeros(DType::F64, &[2]).unwrap().into())),
        "got f64[2]",
    );
    refused(
        &|c| drop(c.tensors.remove(bias)),
        "`linear_0.bias`: expected a tensor for this variable of the program",
    );
    refused(
        &|c| drop(c.tensors.insert("x".to_owned(), zeros(&[1]).into())),
        "`x`: expected only variables that the program keeps",
    );
    refused(&|c| drop(c.best.remove(bias)), "section `best`, `linear_0.bias`: expected a tensor");
    refused(
        &|c| drop(c.outputs.insert("p".to_owned(), "q".to_owned())),
        "section `outputs`, `p`: expected a tensor",
    );
    refused(
        &|c| drop(c.carried.insert("logits".to_owned(), Variable::dense(zeros(&[1])))),
        "section `carried`, `logits`: expected the name of a feed, got another name",
    );
    refused(
        &|c| drop(c.carried.insert("h".to_owned(), Variable::dense(zeros(&[3, 9])))),
        "`h`: expected f32[",
    );
    let levels = Variable::sequences(zeros(&[3, 2]), Lod::from_lengths1(&[3]).unwrap()).unwrap();
    refused(
        &|c| drop(c.carried.insert("h".to_owned(), levels.clone())),
        "expected 0 levels of offsets, got 1",
    );
    refused(&|c| c.position.tokens = 1 << 53, "section `position`, `tokens`: expected a count below 2^53");
    let mut empty = Scope::new();
    let error = whole.save_from(&mut empty, &path).unwrap_err();
    assert!(error.to_string().contains("scope: expected the variable, initialised or loaded, got none"));
    untouched(&path, &before);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Checks that the file is unchanged, and that no other file lies beside it.
fn untouched(path: &Path, before: &[u8]) {
    assert_eq!(std::fs::read(path).unwrap(), before);
    let beside = std::fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 1);
}

const FULL: &str = "UNPADDED_CHECKPOINT_FULL";

/// The other process of the test below. By itself it has nothing to do.
#[test]
fn child() {
    let Some(path) = std::env::var_os(FULL) else { return };
    let error = trained::checkpoint(5).save(Path::new(&path)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    println!("refused: {error}");
}

/// A full disk, simulated by a process that may write no file larger than 2 KB.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_file() -> unpadded::Result<()> {
    let folder = folder("checkpoint-full");
    let path = folder.join("x.ckpt");
    trained::checkpoint(4).save(&path)?;
    let before = std::fs::read(&path)?;
    let child = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" --exact checkpoint::child --nocapture"])
        .arg(std::env::current_exe()?)
        .env(FULL, &path)
        .output()?;
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{out}\n{}", String::from_utf8_lossy(&child.stderr));
    assert!(out.contains(&format!("refused: file `{}`: expected to write it, got", path.display())), "{out}");
    untouched(&path, &before);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// A folder that nobody may write in, not even root.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written() {
    let error = trained::checkpoint(4).save("/proc/self/x.ckpt").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().starts_with(
            "file `/proc/self/x.ckpt`: expected a folder where it can be written, got none (No such"
        ),
        "{error}"
    );
}
