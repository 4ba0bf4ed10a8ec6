//! `train` on several processes of MPI, started by `mpirun`. Without `mpirun` the test prints a note and passes.
//!
//! `UNPADDED_THOROUGH=50 cargo test --profile dev --features mpi --test command -- random_faults --nocapture` has 200 faults.

use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use unpadded::checkpoint::Checkpoint;

use super::thorough::times;
use super::*;

/// One `mpirun` at a time: ranks wait for each other, and share the cores with other tests.
static ALONE: Mutex<()> = Mutex::new(());

/// The seconds that an `mpirun` may take.
const LIMIT: &str = "120";
const EPOCHS: [&str; 2] = ["--epochs", "40"];

/// A folder with texts, where `mpirun` is installed.
fn test_dir(name: &str) -> Option<(TestDir, MutexGuard<'static, ()>)> {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("mpirun is not installed: nothing was tested");
        return None;
    }
    let dir = TestDir::new(&format!("processes-{name}"));
    dir.write("reviews.tsv", &reviews());
    Some((dir, ALONE.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn training<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    with(&["train", "--train", "reviews.tsv", "--quiet"], rest)
}

/// An `mpirun` of this many processes, ended by `timeout`.
fn mpirun(dir: &TestDir, processes: usize, arguments: &[&str]) -> Command {
    let own = dir.command(arguments);
    let mut command = Command::new("timeout");
    command.args([LIMIT, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", &processes.to_string()]);
    command.arg(own.get_program()).args(own.get_args()).current_dir(&dir.0).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the exit code, and the text of both outputs.
fn ended(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn done(dir: &TestDir, processes: usize, arguments: &[&str]) -> String {
    let (code, text) = ended(&mpirun(dir, processes, arguments).output().unwrap());
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

/// Returns the bytes of the last checkpoint, with the rows of dealt tables.
fn last(dir: &TestDir, run: &str) -> Vec<u8> {
    Checkpoint::load(dir.0.join(run).join("last.ckpt")).unwrap().to_bytes().unwrap()
}

fn files_of(dir: &TestDir, run: &str) -> Vec<String> {
    let files = fs::read_dir(dir.0.join(run)).unwrap();
    files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn children(process: u32) -> Vec<u32> {
    let found = Command::new("pgrep").args(["-P", &process.to_string()]).output().unwrap();
    let mut found: Vec<u32> =
        String::from_utf8_lossy(&found.stdout).lines().map(|line| line.trim().parse().unwrap()).collect();
    found.sort_unstable();
    found
}

fn send(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// A training of two processes, once it has trained two epochs: `timeout`, the process of `mpirun` and the ranks.
fn under_way(dir: &TestDir, run: &str, more: &[&str]) -> (Child, u32, Vec<u32>) {
    let arguments = training(&[&EPOCHS[..], &["--run", run], more].concat());
    let child = mpirun(dir, 2, &arguments).spawn().unwrap();
    let began = Instant::now();
    let epochs = || fs::read_to_string(dir.0.join(run).join("metrics.jsonl")).unwrap_or_default();
    while epochs().lines().count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "no epoch");
        sleep(Duration::from_millis(20));
    }
    let mpirun = children(child.id())[0];
    let ranks = children(mpirun);
    assert_eq!(ranks.len(), 2);
    (child, mpirun, ranks)
}

/// Sends a signal to a training of two processes; how it ended, within this many seconds.
fn signalled(
    dir: &TestDir,
    run: &str,
    more: &[&str],
    seconds: u64,
    signal: impl FnOnce(u32, &[u32]),
) -> (Option<i32>, String) {
    let (child, mpirun, ranks) = under_way(dir, run, more);
    signal(mpirun, &ranks);
    let began = Instant::now();
    let ended = ended(&child.wait_with_output().unwrap());
    assert!(began.elapsed() < Duration::from_secs(seconds), "{:?}: {}", began.elapsed(), ended.1);
    ended
}

/// Checks that a resumed run has the bytes of a run that nothing has interrupted.
fn goes_on(dir: &TestDir, run: &str, processes: usize) {
    if !dir.0.join("whole").exists() {
        dir.stdout(&training(&[&EPOCHS[..], &["--run", "whole", "--set", "training.parts=2"]].concat()), "");
    }
    done(dir, processes, &["train", "--resume", run, "--quiet"]);
    assert!(last(dir, run) == last(dir, "whole"), "{run}");
}

#[test]
fn several_processes_train_to_the_bytes_of_one() {
    let Some((dir, _alone)) = test_dir("bytes") else { return };
    // Equal texts would all be held out, or none.
    let sentence = |i: usize| format!("it O\nrains O\nin O\nParis{i} B-place\n\nno O\nrain{i} O\n\n");
    dir.write("tags.conll", &(0..30).map(sentence).collect::<String>());
    let line = |i: usize| format!("it rains {i} times and then it does not rain, and so on\n");
    dir.write("text.txt", &(0..60).map(line).collect::<String>());
    for (task, data, processes, tables) in [
        ("classify", "reviews.tsv", 2_usize, "whole"),
        ("classify", "reviews.tsv", 3, "dealt"),
        ("tag", "tags.conll", 2, "dealt"),
        ("lm", "text.txt", 3, "whole"),
    ] {
        let parts = format!("training.parts={}", processes.next_power_of_two());
        let tables = format!("training.tables={tables}");
        let train = with(&["train", "--task", task, "--train", data], &["--epochs", "2", "--set", &tables]);
        dir.stdout(&[&train[..], &["--run", "one", "--overwrite", "--set", &parts]].concat(), "");
        let text = done(&dir, processes, &[&train[..], &["--run", "several", "--overwrite"]].concat());
        assert!(last(&dir, "one") == last(&dir, "several"), "{task}, {processes} processes");
        dir.best_is_of_last("several");
        // Rank 0 alone writes, and reports for the others.
        assert_eq!(text.matches("run folder: ").count(), 1, "{text}");
        assert!(text.contains(&format!("{processes} processes: waited ")), "{text}");
        let files = files_of(&dir, "several").into_iter();
        let of_ranks = files.filter(|name| name.ends_with(&format!("-of-{processes}"))).count();
        assert_eq!(of_ranks, if tables.ends_with("dealt") { processes } else { 0 }, "{text}");
        assert_eq!(text.contains("held ") && text.contains(" of dealt tables"), of_ranks > 0, "{text}");
        if of_ranks > 0 {
            // Exports and new trainings have whole tables.
            for (from, to) in [("best.ckpt", "best.safetensors"), ("last.ckpt", "last.safetensors")] {
                dir.stdout(&["export", &format!("several/{from}"), to], "");
            }
            assert!(
                fs::read(dir.0.join("best.safetensors")).unwrap()
                    == fs::read(dir.0.join("last.safetensors")).unwrap()
            );
            ["best.safetensors", "last.safetensors"].map(|name| fs::remove_file(dir.0.join(name)).unwrap());
            let again = [
                "train",
                "--from",
                "several",
                "--train",
                data,
                "--epochs",
                "1",
                "--run",
                "again",
                "--overwrite",
            ];
            dir.stdout(&with(&again, &["--quiet"]), "");
            let name = files_of(&dir, "several").into_iter().find(|name| name.contains("-of-")).unwrap();
            let text = dir.refused(&["inspect", &format!("several/{name}")]);
            assert!(text.contains("has the rows of one process"), "{text}");
        }
        let read = |run: &str, name: &str| fs::read_to_string(dir.0.join(run).join(name)).unwrap();
        assert_eq!(read("one", "metrics.jsonl"), read("several", "metrics.jsonl"));
        assert_eq!(read("one", "config.toml"), read("several", "config.toml"));
        assert!(read("several", "report.html").contains("processes: waited "));
    }
}

#[test]
fn a_training_goes_on_on_other_numbers_of_processes() {
    let Some((dir, _alone)) = test_dir("resumed") else { return };
    done(&dir, 3, &training(&["--epochs", "2", "--run", "run"]));
    dir.stdout(&["train", "--resume", "run", "--epochs", "3", "--quiet"], "");
    done(&dir, 2, &["train", "--resume", "run", "--epochs", "5", "--quiet"]);
    dir.stdout(&training(&["--epochs", "5", "--run", "one", "--set", "training.parts=4"]), "");
    assert!(last(&dir, "run") == last(&dir, "one"));
    // A run of one part is of one process.
    dir.stdout(&training(&["--epochs", "1", "--run", "alone"]), "");
    let (code, text) = ended(&mpirun(&dir, 2, &["train", "--resume", "alone"]).output().unwrap());
    assert!(code == Some(2) && text.contains("processes: expected at most 1"), "{code:?}: {text}");
    assert!(text.contains("`--set training.parts=2`"), "{text}");
}

#[test]
fn a_process_that_is_killed_or_stopped_ends_all() {
    let Some((dir, _alone)) = test_dir("killed") else { return };
    for rank in [0, 1] {
        let run = format!("killed{rank}");
        let (code, text) = signalled(&dir, &run, &[], 8, |_, ranks| send("-KILL", ranks[rank]));
        assert!(code.is_some_and(|code| code != 0), "{text}");
        goes_on(&dir, &run, 2 - rank);
        let run = format!("stopped{rank}");
        let (code, text) =
            signalled(&dir, &run, &["--deadline", "3"], 10, |_, ranks| send("-STOP", ranks[rank]));
        assert!(code.is_some_and(|code| code != 0), "{text}");
        assert!(text.contains(&format!("within 3.0 s, got none of rank {rank}")), "{text}");
        goes_on(&dir, &run, 1 + rank);
    }
}

#[test]
fn an_interrupt_is_saved_once() {
    let Some((dir, _alone)) = test_dir("interrupted") else { return };
    let (code, text) = signalled(&dir, "usr1", &[], 20, |mpirun, _| send("-USR1", mpirun));
    assert!(code == Some(130) && text.matches("--resume usr1 continues").count() == 1, "{code:?}: {text}");
    dir.best_is_of_last("usr1");
    goes_on(&dir, "usr1", 2);
    // A signal of one process interrupts all.
    let (code, text) = signalled(&dir, "term", &[], 20, |_, ranks| send("-TERM", ranks[1]));
    assert!(code == Some(130) && text.contains("--resume term continues"), "{code:?}: {text}");
    goes_on(&dir, "term", 1);
    // `mpirun` kills its processes two seconds after Ctrl-C.
    let (code, text) = signalled(&dir, "int", &[], 10, |mpirun, _| send("-INT", mpirun));
    assert!(code.is_some_and(|code| code != 0), "{text}");
    goes_on(&dir, "int", 2);
}

#[test]
fn errors_of_a_process_are_reported_once() {
    let Some((dir, _alone)) = test_dir("errors") else { return };
    // Each rank in a folder of its own, as on hosts with their own disks.
    let others = reviews().replacen("dull", "fine", 1);
    for (host, text) in
        [("0", Some(reviews())), ("1", Some(reviews())), ("other", Some(others)), ("none", None)]
    {
        fs::create_dir(dir.0.join(host)).unwrap();
        text.map_or(Ok(()), |text| fs::write(dir.0.join(host).join("reviews.tsv"), text)).unwrap();
    }
    let own = env!("CARGO_BIN_EXE_unpadded");
    for ((host, more), expected) in [
        (("1", &["--set", "training.rate=0.5"][..]), "training.rate: expected 0.03, as on rank 0, got 0.5"),
        (("1", &["--seed", "7"]), "seed: expected 1, as on rank 0, got 7"),
        (("1", &["--epocs", "7"]), "unexpected argument '--epocs'"),
        (("other", &[]), "training data of rank 1: expected fingerprint"),
        (("none", &[]), "a failure of rank 1: file `reviews.tsv`: expected a file"),
    ] {
        let run = training(&["--run", "run"]);
        let mut command = mpirun(&dir, 1, &[]);
        command.args(&run).args([":", "-n", "1", "--wdir"]).arg(dir.0.join(host)).arg(own).args(&run);
        let (code, output) = ended(&command.args(more).current_dir(dir.0.join("0")).output().unwrap());
        assert!(matches!(code, Some(1 | 2)), "{code:?}: {output}");
        assert_eq!(output.matches(expected).count(), 1, "{host} {more:?}: {output}");
        fs::remove_dir_all(dir.0.join("0/run")).ok();
    }
    // An error of all ranks is reported by rank 0.
    for arguments in
        [&["train", "none.toml"][..], &["train", "--train", "none.tsv"], &["train", "--resume", "none"]]
    {
        let (code, output) = ended(&mpirun(&dir, 2, arguments).output().unwrap());
        assert!(code == Some(2) && output.matches("error: ").count() == 1, "{code:?}: {output}");
    }
    assert_eq!(dir.files(), ["0", "1", "none", "other", "reviews.tsv"]);
}

#[test]
fn a_full_disk_ends_all() {
    let Some((dir, _alone)) = test_dir("full") else { return };
    let disk = dir.0.join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=32k", "tmpfs"]).arg(&disk).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        println!("no disk could be mounted: nothing was tested");
        return;
    }
    let began = Instant::now();
    let (code, text) =
        ended(&mpirun(&dir, 2, &training(&["--epochs", "4", "--run", "disk/run"])).output().unwrap());
    let unmounted = Command::new("umount").arg(&disk).status().unwrap();
    assert!(unmounted.success());
    assert!(code == Some(1) && text.matches("full disk").count() == 1, "{code:?}: {text}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn other_commands_are_of_one_process() {
    let Some((dir, _alone)) = test_dir("others") else { return };
    for arguments in [&["data", "stats", "reviews.tsv"][..], &["init", "classify"]] {
        let (code, text) = ended(&mpirun(&dir, 2, arguments).output().unwrap());
        assert_eq!(code, Some(2), "{text}");
        assert_eq!(
            text.matches("processes: expected 1, since only `train` runs on several processes").count(),
            1,
            "{text}"
        );
    }
}

/// Returns whether a process runs the command: `mpirun` has started it, and it has not ended.
fn runs(process: &u32) -> bool {
    let own = fs::canonicalize(env!("CARGO_BIN_EXE_unpadded")).unwrap();
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program == own)
}

/// Returns the ranks of an `mpirun` under `timeout`.
fn ranks(timeout: u32) -> Vec<u32> {
    children(timeout).into_iter().flat_map(children).filter(runs).collect()
}

/// Returns the state of each thread of these processes: the numbers of `/proc/PID/stat`, and the place in the system where the
/// thread waits.
fn states(processes: &[u32]) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_else(|e| e.to_string());
    let threads = |process: &u32| fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let shown = |thread: std::io::Result<fs::DirEntry>| {
        let path = thread.unwrap().path().display().to_string();
        format!("{}    waits in {}\n", read(format!("{path}/stat")), read(format!("{path}/wchan")))
    };
    processes.iter().flat_map(threads).map(shown).collect()
}

/// Waits until a training has ended after a fault in the process `rank`. Ends what no rank waits for any more: `mpirun`, which
/// hangs if PMIx 4.2 uses freed memory (a process ended while it connected), and a process that stopped after the end of MPI.
fn wait_after(child: &mut Child, rank: Option<u32>, fault: &str) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let (left, all) = (ranks(child.id()), children(child.id()));
        if began.elapsed().as_secs() > 20 && left.iter().all(|left| Some(*left) == rank) {
            println!("{fault}: `mpirun` is left, with {left:?}:\n{}", states(&[&all[..], &left].concat()));
            all.iter().chain(&left).for_each(|process| send("-KILL", *process));
        }
        if began.elapsed().as_secs() > 60 {
            let all = [all, left].concat();
            let first = states(&all);
            sleep(Duration::from_secs(1));
            panic!("{fault}: no end; all threads, and again after a second:\n{first}\n{}", states(&all));
        }
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn random_faults_end_all() {
    let Some((dir, _alone)) = test_dir("faults") else { return };
    let settings = ["--epochs", "6", "--deadline", "4", "--set", "training.parts=4", "--set"];
    let start = |processes, tables: &str, run: &str| {
        let tables = format!("training.tables={tables}");
        mpirun(&dir, processes, &training(&[&settings, &[&tables, "--run", run][..], &SMALL].concat()))
            .spawn()
            .unwrap()
    };
    assert!(start(2, "dealt", "dealt").wait().unwrap().success());
    let began = Instant::now();
    assert!(start(2, "whole", "whole").wait().unwrap().success());
    let whole = began.elapsed();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let (rounds, mut failed) = (times(4), 0);
    for round in 0..rounds {
        let (run, processes, signal) = (format!("run{round}"), 2 + round % 2, ["-STOP", "-KILL"][random(2)]);
        let tables = ["dealt", "whole"][round / 2 % 2];
        // Every fourth fault is in the first 3 % of the training: before or in the start of MPI.
        let share = random(if round % 4 == 0 { 30 } else { 1000 });
        let mut child = start(processes, tables, &run);
        while child.try_wait().unwrap().is_none() && ranks(child.id()).is_empty() {}
        sleep(whole * share as u32 / 1000);
        let found = ranks(child.id());
        let rank = (!found.is_empty()).then(|| found[random(found.len())]);
        let fault = format!("{signal} of {rank:?} of {found:?} at {share}/1000");
        // The process may have ended by itself.
        rank.map(|rank| Command::new("kill").args([signal, &rank.to_string()]).output().unwrap());
        wait_after(&mut child, rank, &fault);
        let (code, text) = ended(&child.wait_with_output().unwrap());
        failed += u32::from(code != Some(0));
        let ends = Instant::now();
        while found.iter().any(runs) {
            assert!(ends.elapsed().as_secs() < 5, "{fault}: {}\n{text}", states(&found));
        }
        // Whatever the fault has left behind is complete.
        if dir.0.join(&run).join("last.ckpt").exists() {
            dir.stdout(&["train", "--resume", &run, "--quiet"], "");
            assert!(last(&dir, &run) == last(&dir, tables), "{fault}: {text}");
            dir.best_is_of_last(&run);
        }
        fs::remove_dir_all(dir.0.join(&run)).ok();
    }
    println!("{rounds} faults, {failed} of them in time to end the training with an error");
}
