//! Saving of checkpoints: locked against other trainings, tried before the first step, and also when the system ends the process.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::ExitStatus;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[cfg(unix)]
use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batches, Data, Loader};
#[cfg(target_os = "linux")]
use unpadded::train::StopReason;
use unpadded::train::{Report, Steps, Until};
use unpadded::{ErrorKind, Result};

use crate::trainer::{dev, train, trainer};

/// The folder of the other process's training.
const FOLDER: &str = "UNPADDED_SAVING_FOLDER";

/// An empty folder of a test's own, which anybody may enter.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unpadded-saving-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Data that calls something before the first batch.
struct Calling<F>(F, Loader);

fn calling<F: Fn() + Send + Sync>(call: F) -> Calling<F> {
    Calling(call, train())
}

impl<F: Fn() + Send + Sync> Data for Calling<F> {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        (self.0)();
        self.1.batches(epoch, from)
    }
    fn batch_count(&self) -> Option<u64> {
        self.1.batch_count()
    }
    fn fingerprint(&self) -> u64 {
        self.1.fingerprint()
    }
}

/// Data whose second batch never comes, as from a disk that does not answer.
#[cfg(unix)]
struct Silent(PathBuf, Loader);

#[cfg(unix)]
impl Data for Silent {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        let there = self.0.join("there");
        let never = std::iter::from_fn(move || {
            std::fs::write(&there, "").unwrap();
            loop {
                sleep(Duration::from_secs(1));
            }
        });
        Ok(Box::new(self.1.batches(epoch, from)?.take(1).chain(never)))
    }
    fn batch_count(&self) -> Option<u64> {
        self.1.batch_count()
    }
    fn fingerprint(&self) -> u64 {
        self.1.fingerprint()
    }
}

/// The message of a training that is refused before it asks its data for anything.
fn refused(file: &Path, data: &dyn Data) -> String {
    let mut trainer = trainer().checkpoint(file);
    let error = trainer.fit(data, &dev(), Until::Epochs(1)).unwrap_err();
    assert_eq!((error.kind(), trainer.position().step), (ErrorKind::Io, 0), "{error}");
    error.to_string()
}

fn refused_at_once(file: &Path) -> String {
    refused(file, &calling(|| panic!("it trains")))
}

fn fit(file: &Path) -> Report {
    trainer().checkpoint(file).fit(&train(), &dev(), Until::Epochs(1)).unwrap()
}

/// The other process: in each epoch it reports, and waits until it may continue. Run as an ordinary test it does nothing.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    if folder.join("alone").exists() {
        println!("refused: {}", refused_at_once(&folder.join("x.ckpt")));
        return;
    }
    let wait = calling(|| {
        std::fs::write(folder.join("there"), "").unwrap();
        while !folder.join("go").exists() {
            sleep(Duration::from_millis(5));
        }
        sleep(Duration::from_millis(200)); // a signal that was sent before has come
    });
    let mut trainer = trainer().checkpoint(folder.join("x.ckpt")).every(Steps(1));
    #[cfg(unix)]
    if folder.join("silent").exists() {
        let ended = trainer.fit(&Silent(folder.clone(), train()), &dev(), Until::Epochs(3)).unwrap().ended;
        std::fs::write(folder.join("ended"), format!("{ended:?}")).unwrap();
        return;
    }
    let ended = trainer.fit(&wait, &dev(), Until::Epochs(3)).unwrap().ended;
    std::fs::write(folder.join("ended"), format!("{ended:?}")).unwrap();
}

/// The other process, once it trains.
fn spawn(folder: &Path, by: &[&str]) -> Child {
    let exe = std::env::current_exe().unwrap();
    let words = ["--exact", "saving::child", "--nocapture", "--test-threads=1"];
    let mut command = match by {
        [] => Command::new(exe),
        [program, first @ ..] => {
            let mut command = Command::new(program);
            command.args(first).arg(exe);
            command
        }
    };
    let child = command.args(words).env(FOLDER, folder).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&folder.join("there"));
    child
}

fn wait_for(file: &Path) {
    let clock = Instant::now();
    while !file.exists() {
        assert!(clock.elapsed() < Duration::from_secs(60), "it does not come: {}", file.display());
        sleep(Duration::from_millis(5));
    }
}

#[cfg(unix)]
fn go(folder: &Path) {
    std::fs::write(folder.join("go"), "").unwrap();
}

#[test]
fn two_trainings_do_not_save_to_one_file() {
    let folder = folder("two");
    let x = folder.join("x.ckpt");
    let mut child = spawn(&folder, &[]);
    let error = refused_at_once(&x);
    let start = format!(
        "file `{}`: expected no other training that saves to this file, got a training that",
        x.display()
    );
    assert!(
        error.starts_with(&start) && error.contains(".x.ckpt.lock`: wait until the training ends, stop it,"),
        "{error}"
    );
    assert!(trainer().save(&x).unwrap_err().to_string().starts_with(&start));
    assert_eq!(names(&folder), [".x.ckpt.lock", "there"]); // the other's, untouched
    fit(&folder.join("y.ckpt"));

    // Its lock is released when it dies, and its remaining files block no other process.
    child.kill().unwrap();
    child.wait().unwrap();
    fit(&x);
    assert_eq!(names(&folder), ["there", "x.ckpt", "y.ckpt"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn two_trainings_of_one_process_do_not_either() {
    let folder = folder("one-process");
    let x = folder.join("x.ckpt");
    let mut outer = trainer().checkpoint(&x);
    let inner = calling(|| assert!(refused_at_once(&x).contains("expected no other training")));
    outer.fit(&inner, &dev(), Until::Epochs(1)).unwrap();
    // Its training has ended, so another trainer may train, though this trainer still exists.
    let mut second = trainer().checkpoint(&x);
    second.resume(&x).unwrap();
    // From here on: what was saved after it was loaded would be replaced.
    assert!(refused_at_once(&x).contains("expected no other training"));
    assert!(
        trainer().checkpoint(&x).resume(&x).unwrap_err().to_string().contains("expected no other training")
    );
    second.save(&x).unwrap();
    second.resume(&x).unwrap();
    second.fit(&train(), &dev(), Until::Epochs(2)).unwrap();
    outer.fit(&train(), &dev(), Until::Epochs(2)).unwrap();
    assert_eq!(names(&folder), ["x.ckpt"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_no_checkpoint_is_not_replaced() {
    let folder = folder("foreign");
    let text = folder.join("train.tsv");
    std::fs::write(&text, "some text\tlabel\n").unwrap();
    let error = refused_at_once(&text);
    assert!(
        error
            .contains("expected a new file, or an existing file of `unpadded`, got a file of another format"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&text).unwrap(), "some text\tlabel\n");
    // A checkpoint is, as each run of a program does that does not resume.
    let x = folder.join("x.ckpt");
    fit(&x);
    fit(&x);
    let error = refused_at_once(&folder.join("x".repeat(240)));
    assert!(error.contains("expected a shorter name"), "{error}");
    assert_eq!(names(&folder), ["train.tsv", "x.ckpt"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A finished training does not touch the folder, which may be full or read-only.
#[cfg(target_os = "linux")]
#[test]
fn a_training_that_is_done_needs_no_room() {
    let folder = folder("done");
    let (x, nowhere) = (folder.join("x.ckpt"), Path::new("/proc/self/x.ckpt"));
    fit(&x);
    let mut done = trainer().checkpoint(nowhere);
    done.resume(&x).unwrap();
    let report = done.fit(&train(), &dev(), Until::Epochs(1)).unwrap();
    assert_eq!((report.ended, report.tokens), (StopReason::Done, 0));
    let error = done.fit(&train(), &dev(), Until::Epochs(2)).unwrap_err().to_string();
    assert!(error.contains("expected a folder in which files can be written, got a folder where"), "{error}");
    assert_eq!(done.position().epoch, 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Returns the output of the other process, started by these words as another user; `None` if this is impossible here.
#[cfg(unix)]
fn as_nobody(folder: &Path) -> Option<String> {
    let out = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "saving::child", "--nocapture"])
        .env(FOLDER, folder)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if text.contains("refused: ") {
        return Some(text);
    }
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!error.contains("panicked"), "{text}{error}");
    println!("not tried, as it takes root and a test that anybody may run: {error}");
    None
}

#[cfg(unix)]
#[test]
fn what_the_system_forbids_is_found_before_the_first_step() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder("forbidden");
    let x = folder.join("x.ckpt");
    fit(&x);
    std::fs::write(folder.join("alone"), "").unwrap();
    let before = std::fs::read(&x).unwrap();
    let mode = |mode: u32| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o1777); // as /tmp: everybody writes, and replaces what is theirs
    if let Some(text) = as_nobody(&folder) {
        assert!(
            text.contains(
                "expected a file that may be replaced, got a file of another user, or an immutable file: Operation"
            ),
            "{text}"
        );
        mode(0o755);
        let text = as_nobody(&folder).unwrap();
        assert!(
            text.contains(
                "expected a folder in which files can be written, got a folder where writing fails: Permission denied"
            ),
            "{text}"
        );
    }
    mode(0o755);
    let chattr = |word: &str| Command::new("chattr").arg(word).arg(&x).status().is_ok_and(|s| s.success());
    if chattr("+i") {
        let error = std::panic::catch_unwind(|| refused_at_once(&x));
        assert!(chattr("-i"));
        let error = error.unwrap();
        assert!(
            error.contains(
                "expected a file that may be replaced, got a file of another user, or an immutable file: Operation"
            ),
            "{error}"
        );
    } else {
        println!("not tried, as it takes root and a file system with attributes: an immutable file");
    }
    assert_eq!(std::fs::read(&x).unwrap(), before);
    assert_eq!(names(&folder), ["alone", "x.ckpt"]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
    sleep(Duration::from_millis(200)); // the next one is another
}

#[cfg(unix)]
fn ended(folder: &Path, status: ExitStatus) -> String {
    assert!(status.success(), "{status}");
    std::fs::read_to_string(folder.join("ended")).unwrap()
}

/// Returns whether this program and its children ignore hangups, as under `nohup`.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & 1 == 1))
}

#[cfg(unix)]
#[test]
fn what_asks_a_training_to_end_saves_it() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if name == "HUP" && hangups_are_ignored() {
            println!("not tried, as these tests run under nohup: a hangup");
            continue;
        }
        let folder = folder(name);
        let mut child = spawn(&folder, &[]);
        signal(&child, name);
        go(&folder);
        assert_eq!(ended(&folder, child.wait().unwrap()), "Interrupted");
        assert_eq!(Checkpoint::load(folder.join("x.ckpt")).unwrap().position.step, 0, "{name}");
        assert_eq!(names(&folder), ["ended", "go", "there", "x.ckpt"]);
        std::fs::remove_dir_all(&folder).unwrap();

        // A second one does not wait for the step, whichever came first.
        std::fs::create_dir(&folder).unwrap();
        let mut child = spawn(&folder, &[]);
        signal(&child, "TERM");
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_training_that_waits_for_data_ends_when_it_is_asked_to() {
    let folder = folder("silent");
    std::fs::write(folder.join("silent"), "").unwrap();
    let mut child = spawn(&folder, &[]);
    signal(&child, "TERM");
    assert_eq!(ended(&folder, child.wait().unwrap()), "Interrupted");
    assert_eq!(Checkpoint::load(folder.join("x.ckpt")).unwrap().position.step, 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Under `nohup` a program continues when its terminal is closed.
#[cfg(target_os = "linux")]
#[test]
fn an_ignored_hangup_stays_ignored() {
    let folder = folder("nohup");
    let mut child = spawn(&folder, &["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    signal(&child, "HUP");
    go(&folder);
    assert_eq!(ended(&folder, child.wait().unwrap()), "Done");
    std::fs::remove_dir_all(&folder).unwrap();
}
