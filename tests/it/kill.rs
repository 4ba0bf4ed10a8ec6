//! A training that is killed at random moments and resumed ends with the same bytes as one that never stopped.
//!
//! The suite kills a few times; `UNPADDED_THOROUGH=50 cargo test --test it kill:: -- --nocapture` kills more.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batching, Field, Loader, Samples};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::Accuracy;
use unpadded::optimizer::Adam;
use unpadded::train::{Progress, Steps, StopReason, Trainer, Until};
use unpadded::{Builder, DType, Result};

use crate::models::Random;
use crate::thorough::times;

/// The folder of the other process's checkpoint.
const FOLDER: &str = "UNPADDED_KILL_FOLDER";
const THREADS: &str = "UNPADDED_KILL_THREADS";
/// How often to kill.
const KILLS: usize = 4;

const FILE: &str = "x.ckpt";

/// Sentences, labelled by whether they have more large words than small words; some sentences are empty.
fn data(part: std::ops::Range<u64>) -> Result<Loader> {
    let sample = |i: u64| {
        let mut random = Random(i);
        let words: Vec<i64> = (0..i % 9).map(|_| random.below(40) as i64).collect();
        let large = words.iter().filter(|&&w| w >= 20).count();
        vec![Field::from(words.clone()), Field::from((2 * large > words.len()) as i64)]
    };
    Ok(Loader::new(part.map(sample).collect::<Samples>(), &["words", "label"])?
        .batching(Batching::Sequences(4)))
}

/// Trains from the file, if there is one, to the end: dropout, rows of an embedding, states that pass from batch to
/// batch, an order drawn through a buffer, a checkpoint after every third step.
fn train(folder: &Path, threads: usize) -> Result<()> {
    let net = Builder::new().seed(5);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let (h, c) = (net.carried_state(8), net.carried_state(8));
    let x = net.dropout(net.embedding(words, Embedding::new(40, 8).sparse()), 0.3);
    let (_, last_h, last_c) = net.lstm_states(x, Lstm::new(8).initial(h, c));
    let logits = net.linear(net.dropout(last_h, 0.2), 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    net.carry(h, last_h);
    net.carry(c, last_c);
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.01).lazy().clip_global_norm(1.0))?
        .threads(threads)
        .metric(Accuracy::new(logits, label))
        .output("logits", logits)
        .checkpoint(folder.join(FILE))
        .every(Steps(3))
        .progress(Progress::Quiet);
    trainer.resume_if(folder.join(FILE))?;
    let (train, dev) = (data(0..150)?.shuffle(3).buffer(20).prefetch(2), data(150..180)?);
    let report = trainer.fit(&train, &dev, Until::Epochs(4))?;
    assert_eq!(report.ended, StopReason::Done);
    Ok(())
}

/// The other process. By itself it has nothing to do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    train(Path::new(&folder), threads).unwrap();
}

fn spawn(folder: &Path, threads: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_and_resumed_is_the_same_to_the_byte() {
    let wanted = times(KILLS);
    let base = std::env::temp_dir().join(format!("unpadded-kill-{}", std::process::id()));
    let folder = |name: &str| {
        let folder = base.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    };
    let whole = folder("whole");
    let clock = Instant::now();
    assert!(spawn(&whole, 2).wait().unwrap().success());
    let mut most = clock.elapsed();
    let expected = std::fs::read(whole.join(FILE)).unwrap();
    let end = Checkpoint::from_bytes(&expected).unwrap().position;
    assert_eq!((end.epoch, end.batch), (4, 0));

    let mut random = Random(u64::from(std::process::id()));
    let (mut trainings, mut places, mut writing) = (0, Vec::new(), 0);
    while places.len() < wanted {
        let folder = folder(&trainings.to_string());
        trainings += 1;
        let killed_before = places.len();
        loop {
            let clock = Instant::now();
            let mut child = spawn(&folder, 1 + random.below(2));
            // A process that ends before it is killed ends its training; after the last kill the process runs to its end.
            if places.len() < wanted {
                sleep(Duration::from_micros(random.below(most.as_micros() as usize) as u64));
            } else {
                child.wait().unwrap();
            }
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "a resumed training failed");
                // The machine may have been busy when the first was timed: most kills would come too late.
                if places.len() == killed_before {
                    most = most.min(clock.elapsed());
                }
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            let half = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".tmp");
            writing += names.filter(half).count();
            // An existing file is complete; there may be no file yet.
            let path = folder.join(FILE);
            places.push(path.exists().then(|| Checkpoint::load(&path).unwrap().position.step));
        }
        assert_eq!(std::fs::read(folder.join(FILE)).unwrap(), expected, "training {trainings}: {places:?}");
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            1,
            "something was left beside the checkpoint"
        );
    }
    let mut steps: Vec<u64> = places.iter().flatten().copied().collect();
    let (before, resumed) = (places.len() - steps.len(), steps.len());
    steps.sort();
    steps.dedup();
    println!(
        "{} kills in {trainings} trainings of {} steps: {before} before the first checkpoint, {resumed} after one of \
         {} different steps, {writing} while one was written",
        places.len(),
        end.step,
        steps.len()
    );
    std::fs::remove_dir_all(&base).unwrap();
}
