//! `unpadded serve`: how it starts, what it prints, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};

use super::*;

/// Starts a server on a free port; returns its process, its output and its address.
fn started(dir: &TestDir, arguments: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let arguments = [&["serve", "--port", "0"], arguments].concat();
    let mut child = dir.command(&arguments).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
    let Some(address) = address else {
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        panic!("{line}{error}");
    };
    let address = address.to_owned();
    (child, out, address)
}

/// Returns the answer to a request.
fn asked(address: &str, path: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let method = if body.is_empty() { "GET" } else { "POST" };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_model_is_served_reloaded_and_ended() {
    let dir = TestDir::trained("served", "reviews.tsv", "2");
    dir.write("token", "secret\n");
    let train = |run: &str, settings: [&str; 2]| {
        let [first, second] = settings;
        let arguments = ["train", "--train", "reviews.tsv", "--quiet", "--epochs", "1", "--run", run];
        dir.stdout(&[&arguments[..], &["--set", first, "--set", second]].concat(), "");
    };
    train("wide", ["model.hidden=16", "model.embedding=16"]);
    dir.stdout(&["export", "wide", "small.ckpt", "--int8"], "");
    train("halved", ["training.precision=bf16", "training.allow_slow=true"]);
    let models = ["films=run", "both=run,run", "small=small.ckpt", "halved=halved", "--token-file", "token"];
    let models = [&models[..], &["--log", "json", "--memory", "900MB"]].concat();
    let (mut child, mut out, address) = started(&dir, &models);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    says(&line, &["memory: at most ", " resident at the start, ", " a batch"]);
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, format!("curl -s {address}/predict -d '{{\"texts\":[\"What a film!\"]}}'\n"));
    let ask_of = |model: &str, text: &str| {
        let body = format!("{{\"model\": \"{model}\", \"texts\": [\"{text}\"]}}");
        asked(&address, "/predict", "authorization: Bearer secret\r\n", &body)
    };
    let ask = |model: &str| ask_of(model, "it was fine");
    for (model, path) in [("films", "run"), ("small", "small.ckpt"), ("halved", "halved")] {
        let answer = dir.json(&["predict", path, "--json"], "it was fine\n");
        says(&ask(model), &["HTTP/1.1 200", &format!("\"probability\":{}", answer["probability"])]);
    }
    says(&ask("both"), &["HTTP/1.1 200", "\"label\":\"good\""]);
    says(&ask("other"), &["HTTP/1.1 404", "expected one of `films`, `both`, `small`, `halved`, got `other`"]);
    says(&asked(&address, "/predict", "", "{}"), &["HTTP/1.1 401"]);
    signal(&child, "HUP");
    let reloads = || asked(&address, "/metrics", "authorization: Bearer secret\r\n", "");
    let is_reloaded =
        |_: &i32| reloads().contains("unpadded_reloads_total{model=\"both\",outcome=\"loaded\"} 2");
    assert!(
        (0..100)
            .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(50)))
            .any(|i| is_reloaded(&i))
    );
    // The resident memory never was above the bound that the server printed.
    for text in [1, 5_000, 60, 30_000].map(|words| "it was fine ".repeat(1 + words / 3)) {
        for model in ["films", "both", "small"] {
            says(&ask_of(model, &text), &["HTTP/1.1 200"]);
        }
    }
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let peak = peak.unwrap().parse::<u64>().unwrap() * 1024;
        assert!(peak < 900_000_000, "{peak} bytes were resident of a bound of 900 MB");
    }
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    assert!(
        events.into_iter().any(|event| event["message"] == "reloaded" && event["model"] == "films"),
        "{log}"
    );
}

#[test]
fn wrong_requests_for_a_server_are_refused() {
    let dir = TestDir::trained("unserved", "reviews.tsv", "1");
    dir.write("empty", "\n");
    for (arguments, parts) in [
        (&["none"][..], &["`none`: expected a run folder or a checkpoint, got nothing there"][..]),
        (&["reviews.tsv"], &["reviews.tsv"]),
        (&["a=run", "a=run"], &["model name `a`: expected each name once, got it twice"]),
        (&["a/b=run"], &["model name `a/b`: expected up to 64 letters, digits"]),
        (
            &["run", "--memory", "60MB"],
            &["memory: expected at least ", ", got 60 MB: ", " resident at the start"],
        ),
        (&["run", "--requests", "0"], &["--requests: expected at least 1, got 0"]),
        (&["run", "--token-file", "no"], &["--token-file no: expected a file with the token, got: "]),
        (&["run", "--token-file", "empty"], &["--token-file empty: expected a token, got an empty file"]),
        (&["run", "--body", "3"], &["expected a size with its unit, as 500MB or 4GB"]),
        (&[], &["[NAME=]RUN"]),
    ] {
        dir.refuses(&[&["serve", "--port", "0"], arguments].concat(), parts);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    dir.refuses(
        &["serve", "run", "--port", &port],
        &[&format!("--port {port}: expected a free address, got: ")],
    );
}
