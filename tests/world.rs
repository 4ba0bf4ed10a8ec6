//! Ranks that are processes of MPI pass the cases that ranks of threads pass: this program starts itself under `mpirun`.
//!
//! Cases that end a world have an `mpirun` each. Without `mpirun` the program prints a note and passes.
//! `UNPADDED_THOROUGH=20 cargo test --profile dev --features mpi --test world -- STOP KILL` has 20 rounds of each signal.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod conformance;
#[path = "it/thorough.rs"]
mod thorough;

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

use conformance::{Case, ENDING, TOGETHER};
use unpadded::parallel::{Communicator, Mpi, World};

/// The cases that a rank runs; set by the program that starts it.
const CASE: &str = "UNPADDED_WORLD_CASE";
/// All cases that leave a world whole.
const ALL: &str = "together";
/// The case of [`World::mpi`].
const WORLD: &str = "world";
/// The case of a rank that the system stops amid a long message.
const STOPPED: &str = "stopped_amid_a_message";

/// The time limit of one `mpirun`.
const LIMIT: Duration = Duration::from_secs(60);

/// The deadline of a world whose last rank gets a signal, and the time by which all ranks have ended.
const DEADLINE: Duration = Duration::from_secs(3);
const ENDED: Duration = Duration::from_secs(12);

fn main() -> ExitCode {
    match std::env::var(CASE) {
        Ok(case) => rank(&case),
        Err(_) => start(),
    }
}

/// One rank. It ends by exit code 1 if the case ends the world, as a training that fails does.
fn rank(case: &str) -> ExitCode {
    if case == WORLD {
        let world = World::mpi(LIMIT).unwrap();
        assert!(world.rank() < world.size());
        let again = World::mpi(LIMIT).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(again.contains("a process in which MPI was started before"), "{again}");
        assert!(again.contains("tests/world.rs:"), "{again}");
        println!("passed");
        return ExitCode::SUCCESS;
    }
    if let Some((signal, moment)) = signalled(case) {
        let done = struck(signal, moment).map_err(|error| println!("{error}"));
        return ExitCode::from(u8::from(done.is_err()));
    }
    let mut ranks = Mpi::new(LIMIT).unwrap();
    let name = |(name, _): &&Case| *name == case;
    let Some((_, run)) = ENDING.iter().find(name) else {
        if case == STOPPED {
            stopped(&mut ranks);
        }
        TOGETHER.iter().for_each(|(_, run)| run(&mut ranks));
        println!("passed");
        return ExitCode::SUCCESS;
    };
    run(&mut ranks);
    println!("rank {} passed", ranks.rank());
    drop(ranks);
    // Until the others have ended, too: `mpirun` ends them when one does.
    sleep(Duration::from_millis(800));
    exit(1)
}

/// The last rank stops itself while it exchanges 50 MB: the other one cannot give up a send that was begun.
fn stopped(ranks: &mut Mpi) -> ! {
    let (last, size) = (ranks.size() - 1, ranks.size());
    if ranks.rank() == last {
        std::thread::spawn(|| {
            sleep(Duration::from_millis(100));
            send_signal("STOP", std::process::id());
        });
    }
    let sent = vec![7; 50_000_000];
    let mut received = vec![Vec::new(); size];
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        if let Err(lost) =
            ranks.exchange("summing gradients", &vec![&sent[..]; size], &mut received, deadline)
        {
            println!("rank {}: {lost:?}", ranks.rank());
            exit(1);
        }
    }
}

/// Returns the signal and the moment of a case such as `STOP_before_start`, `KILL_20_ms_after_start` and `STOP_at_end`.
fn signalled(case: &str) -> Option<(&str, &str)> {
    case.split_once('_').filter(|(signal, _)| ["STOP", "KILL"].contains(signal))
}

/// The last rank gets a signal before MPI starts, while MPI starts or soon after, or when all others end MPI.
fn struck(signal: &str, moment: &str) -> unpadded::Result<()> {
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let last = number("OMPI_COMM_WORLD_RANK") + 1 == number("OMPI_COMM_WORLD_SIZE");
    match (moment, moment.split_once("_ms")) {
        ("before_start", _) if last => send_signal(signal, std::process::id()),
        ("at_end", _) if last => {
            use ::mpi::{point_to_point::Destination as _, topology::Communicator as _};
            let (universe, _) = ::mpi::initialize_with_threading(::mpi::Threading::Funneled).unwrap();
            // The empty messages of the final exchange, with their length and tag. The others then wait in MPI's own end.
            let world = universe.world();
            (0..world.size() - 1)
                .for_each(|rank| world.process_at_rank(rank).send_with_tag(&[0_u8; 8][..], 3));
            send_signal(signal, std::process::id());
        }
        ("at_end", _) => return Mpi::new(DEADLINE).map(drop),
        (_, Some((after, _))) if last => {
            let (after, signal) = (Duration::from_millis(after.parse().unwrap()), signal.to_owned());
            std::thread::spawn(move || {
                sleep(after);
                send_signal(&signal, std::process::id());
            });
        }
        _ => {}
    }
    let world = World::mpi(DEADLINE)?;
    loop {
        world.broadcast("waiting", b"")?;
        sleep(Duration::from_millis(1));
    }
}

/// Returns the complaint about a run whose last rank got a signal: not ended soon after the deadline, no message, or ranks that
/// waited without sleeping. `cores` is the processor time of all ranks, in seconds.
fn struck_complaint(run: &Run, case: &str, ranks: usize, took: Duration, cores: f64) -> Option<String> {
    let most = 0.6 * DEADLINE.as_secs_f64() * (ranks - 1) as f64;
    let message = match case {
        "STOP_before_start" => "start of MPI: expected every process to reach it within 3.0 s",
        "STOP_at_end" => "end of MPI: expected every process to reach it within 3.0 s",
        _ if case.starts_with("STOP") => "within 3.0 s, got",
        _ => "",
    };
    let ended = run.status.is_some_and(|status| !status.success()) && took < ENDED + DEADLINE;
    let right = ended && run.printed.contains(message) && cores < most;
    let found = format!("{:?} after {took:?}, {cores:.1} of {most:.1} s of processor time", run.status);
    (!right).then(|| format!("{found}; expected `{message}`\n{}", run.printed))
}

/// Returns the processor time, in seconds, of all processes that this process has waited for, and that those have waited for.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split(' ').skip(15).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Sends a signal by the shell's own `kill`.
fn send_signal(signal: &str, process: u32) {
    let _ = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status();
}

/// The result of an `mpirun` of this program.
struct Run {
    /// `None` if it did not end in time.
    status: Option<ExitStatus>,
    printed: String,
}

/// Runs cases under `mpirun`, or without it if there are no ranks to start.
fn run(ranks: usize, case: &str) -> Run {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(if ranks == 0 { own.as_path() } else { Path::new("mpirun") });
    if ranks > 0 {
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]).arg(&own);
    }
    let output = own.with_extension(format!("{}.{ranks}.{case}", std::process::id()));
    let file = File::create(&output).unwrap();
    let file_too = file.try_clone().unwrap();
    let started = command.env(CASE, case).stdin(Stdio::null()).stdout(file).stderr(file_too).spawn();
    let (mut child, began) = (started.unwrap(), Instant::now());
    let mut status = None;
    while status.is_none() && began.elapsed() < LIMIT {
        sleep(Duration::from_millis(5));
        status = child.try_wait().unwrap();
        if status.is_none() && ranks > 0 && began.elapsed() > ENDED {
            // If a process ends while it connects to `mpirun`, PMIx 4.2 may use freed memory, and `mpirun` hangs alone.
            let left = Command::new("ps").args(["-o", "stat=", "--ppid", &child.id().to_string()]).output();
            if String::from_utf8_lossy(&left.unwrap().stdout).lines().all(|state| state.starts_with('Z')) {
                println!("all ranks have ended, and `mpirun` hangs");
                child.kill().unwrap();
            }
            sleep(Duration::from_millis(100));
        }
    }
    if status.is_none() {
        // `mpirun` ends its ranks when it is asked to end; killed, it would leave them behind.
        send_signal("TERM", child.id());
        sleep(Duration::from_secs(3));
        let _ = child.kill();
        let _ = child.wait();
    }
    let printed = String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
    let _ = std::fs::remove_file(&output);
    Run { status, printed }
}

/// Returns the complaint about a run in which `passing` ranks pass; a world that a case ends has a failure's exit code.
fn complaint(run: &Run, passing: usize, ends: bool) -> Option<String> {
    let passed = run.printed.lines().filter(|line| line.ends_with("passed")).count();
    let what = match run.status {
        None => format!("no end after {LIMIT:?}"),
        Some(status) if status.success() == ends => format!("{status}"),
        Some(_) if passed != passing => format!("{passed} ranks passed, expected {passing}"),
        Some(_) => return None,
    };
    Some(format!("{what}\n{}", run.printed))
}

/// Starts ranks, case by case, and prints their results in the form of other test programs.
fn start() -> ExitCode {
    let there = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        println!("mpirun is not installed: the conformance suite ran on threads only");
        return ExitCode::SUCCESS;
    }
    let mut cases = vec![(0, WORLD), (0, ALL), (1, ALL), (2, WORLD), (2, ALL), (3, ALL), (2, STOPPED)];
    cases.extend(ENDING.iter().map(|(case, _)| (3, *case)));
    cases.extend([(2, "failure_reaches_all"), (2, "deadline_names_the_missing")]);
    let mut cases: Vec<_> = cases.into_iter().map(|(ranks, case)| (ranks, case.to_owned())).collect();
    for round in 0..thorough::times(1) {
        let after = format!("{}_ms_after_start", (20 + 37 * round) % 300);
        for (signal, moment) in [
            ("STOP", "before_start"),
            ("KILL", "before_start"),
            ("STOP", &after),
            ("KILL", &after),
            ("STOP", "at_end"),
        ] {
            cases.extend([2, 3].map(|ranks| (ranks, format!("{signal}_{moment}"))));
        }
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    cases.retain(|(_, case)| filters.is_empty() || filters.iter().any(|word| case.contains(word.as_str())));
    let (began, mut failed) = (Instant::now(), 0);
    for (ranks, case) in &cases {
        let (ranks, case) = (*ranks, case.as_str());
        let (started, before) = (Instant::now(), processor_time());
        let run = run(ranks, case);
        let wrong = if case == STOPPED {
            // An error if no exchange was under way, else the last output of the process.
            let aborted = "rank 0: summing gradients: expected an answer";
            let message =
                ["rank 0: Late { ranks: [1] }", aborted].iter().any(|message| run.printed.contains(message));
            complaint(&run, 0, true).or_else(|| (!message).then(|| format!("no message\n{}", run.printed)))
        } else if signalled(case).is_some() {
            struck_complaint(&run, case, ranks, started.elapsed(), processor_time() - before)
        } else {
            complaint(&run, ranks.max(1), ENDING.iter().any(|(name, _)| *name == case))
        };
        let took = started.elapsed().as_secs_f64();
        failed += usize::from(wrong.is_some());
        let by = if ranks == 0 { "no mpirun".to_owned() } else { format!("mpirun -n {ranks}") };
        println!("test {case} ({by}, {took:.1} s) ... {}", if wrong.is_some() { "FAILED" } else { "ok" });
        if let Some(wrong) = wrong {
            println!("{wrong}");
        }
    }
    let (result, passed) = (if failed == 0 { "ok" } else { "FAILED" }, cases.len() - failed);
    let took = began.elapsed().as_secs_f64();
    println!("\ntest result: {result}. {passed} passed; {failed} failed; finished in {took:.2}s");
    ExitCode::from(u8::from(failed > 0))
}
