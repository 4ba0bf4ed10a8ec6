//! Models that are replaced and servers that end, without a lost request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::*;

#[test]
fn a_changed_file_replaces_the_model_and_a_bad_file_does_not() {
    let path = file("changing.ckpt");
    std::fs::copy(trained(Task::Classify), &path).unwrap();
    let settings = Settings { watch: Some(Duration::from_millis(100)), ..Settings::default() };
    let server = Running::new(settings, &[("films", path.clone())]);
    let ask = || server.post("/predict", &json!({"text": "What a film!"}));
    let (before, stop, asked) = (ask(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(ask().0, 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wait = |name: &str, count: u64| {
            let line = format!("{name} {count}\n");
            let is = |_: &i32| server.send("GET", "/metrics", "", "").2.contains(&line);
            assert!((0..200).inspect(|_| thread::sleep(Duration::from_millis(50))).any(|i| is(&i)), "{name}");
        };
        std::fs::write(&path, "no checkpoint").unwrap();
        wait("unpadded_reloads_total{model=\"films\",outcome=\"failed\"}", 1);
        assert_eq!(ask(), before);
        let mut config = Config::new(Task::Classify);
        (config.model.hidden, config.model.embedding, config.training.epochs) = (8, 8, 1);
        save(&config, &file("other.ckpt"));
        std::fs::rename(file("other.ckpt"), &path).unwrap();
        wait("unpadded_reloads_total{model=\"films\",outcome=\"loaded\"}", 2);
        assert_ne!(ask(), before);
        assert_eq!(server.server.reload(), ["films: reloaded"]);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > 10);
}

/// Also connections that wait for a place.
#[test]
fn what_was_accepted_is_answered_before_the_end() {
    let settings = Settings { batch_wait: Duration::from_millis(700), connections: 4, ..Settings::default() };
    let mut server = Running::classifier(settings);
    let body = json!({"text": "good film"}).to_string();
    let request =
        format!("POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let sent = |_| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let waiting: Vec<_> = (0..8).map(sent).collect();
    thread::sleep(Duration::from_millis(100));
    let idle = server.connect();
    server.end().unwrap();
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    }
    drop(idle);
    assert!(TcpStream::connect(server.address).is_err(), "the server accepts after its end");
}

#[test]
fn a_server_answers_503_until_its_models_are_loaded() {
    let server = Running::of(Server::new(Settings::default()));
    assert_eq!((server.get("/health/ready").0, server.get("/health/live").0), (503, 200));
    assert_eq!(server.post("/predict", &json!({"text": "a"})).0, 503);
    server.server.add("films", CheckpointSource::new(trained(Task::Classify))).unwrap();
    assert_eq!(server.get("/health/ready").0, 503);
    server.server.open().unwrap();
    assert_eq!((server.get("/health/ready").0, server.post("/predict", &json!({"text": "a"})).0), (200, 200));
    for name in ["films", "", "a/b"] {
        let error = server.server.add(name, CheckpointSource::new(trained(Task::Classify))).unwrap_err();
        assert!(error.starts_with(&format!("model name `{name}`: expected")), "{error}");
    }
    assert!(server.server.add("none", CheckpointSource::new("/none.ckpt")).is_err());
}
