//! What the server refuses, and how; the memory that it promises.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

#[track_caller]
fn refused(found: (u16, Value), status: u16, kind: &str, part: &str) {
    let (got, error) = found;
    let message = error["error"].as_str().unwrap_or_default();
    assert_eq!((got, error["error_type"].as_str()), (status, Some(kind)), "{error}");
    assert!(message.contains(part), "`{message}` has no `{part}`");
    for inner in ["src", ".rs", "ckpt", "/tmp", "panicked"] {
        assert!(!message.contains(inner), "`{message}` shows `{inner}`");
    }
}

#[test]
fn wrong_requests_get_the_place_in_the_json() {
    let server = Running::classifier(Settings::default());
    let post = |body: Value| server.post("/predict", &body);
    refused(post(json!({"texts": ["a", 3]})), 422, "validation", "`texts[1]`: ");
    refused(post(json!({"text": "a", "texs": []})), 422, "validation", "unknown field `texs`");
    refused(post(json!({})), 422, "validation", "expected `text` or `texts`");
    refused(post(json!({"text": "a", "texts": ["a"]})), 422, "validation", "got several");
    refused(post(json!({"rows": [[1, 2]]})), 422, "validation", "got `rows`");
    refused(post(json!({"text": "a", "truncate": "middle"})), 422, "validation", "`truncate`: ");
    refused(post(json!({"texts": [["a", "b"]]})), 422, "validation", "`texts[0]`: expected one text, got 2");
    refused(server.post("/generate", &json!({"temperature": "hot"})), 422, "validation", "`temperature`: ");
    refused(post(json!({"text": "a", "model": "none"})), 404, "not_found", "expected one of `films`");
    refused(
        server.post("/generate", &json!({"prompt": "a"})),
        422,
        "validation",
        "got a model of `classify`",
    );
    let (status, _, body) = server.send("POST", "/predict", "", "{\"texts\": [\"a\",\n]}");
    assert!(status == 422 && body.contains("line 2 column 1"), "{body}");
    let deep = "[".repeat(100_000);
    assert_eq!(server.send("POST", "/predict", "", &deep).0, 422);
    assert_eq!(server.send("POST", "/predict", "content-type: text/csv\r\n", "a").0, 415);
    assert_eq!(server.get("/predict").0, 405);
    refused(server.get("/admin"), 404, "not_found", "no such path");
    let invalid = b"POST /predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 12\r\n\r\n{\"text\":\"\xff\"}";
    assert_eq!(parted(&server.raw(invalid)).0, 422);
}

#[test]
fn the_limits_of_a_request_are_413() {
    let settings = Settings { texts: 2, body: 1000, text_tokens: 10, ..Settings::default() };
    let server = Running::classifier(settings);
    refused(
        server.post("/predict", &json!({"texts": ["a", "b", "c"]})),
        413,
        "too_large",
        "at most 2 a request, got 3",
    );
    refused(
        server.post("/predict", &json!({"text": "a".repeat(2000)})),
        413,
        "too_large",
        "at most 1000 bytes, got",
    );
    let chunked = format!(
        "POST /predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        5000,
        "x".repeat(5000)
    );
    assert_eq!(parted(&server.raw(chunked.as_bytes())).0, 413);
    // Nothing is cut in silence.
    let long = (0..25).map(|i| format!("w{i}")).collect::<Vec<_>>();
    let text = long.join(" ");
    refused(
        server.post("/predict", &json!({"text": text})),
        413,
        "too_large",
        "expected at most 10 tokens, got 25",
    );
    for (side, kept) in [("right", &long[..10]), ("left", &long[15..])] {
        let (status, truncated) = server.post("/predict", &json!({"texts": [text, "a"], "truncate": side}));
        let (_, whole) = server.post("/predict", &json!({"text": kept.join(" ")}));
        assert_eq!((status, &truncated["answers"][0]["truncated"]), (200, &json!(15)));
        assert_eq!(truncated["answers"][0]["probabilities"], whole["answers"][0]["probabilities"]);
        assert_eq!(truncated["answers"][1]["truncated"], Value::Null);
    }
    assert_eq!(metric(&server, "unpadded_truncated_total"), 2.0);
}

/// A text longer than a batch looped for ever in text-embeddings-inference (#723): here it is alone in its batch. A client's own
/// list of texts counts its texts, and not 1 as in BentoML (#3859).
#[test]
fn a_text_longer_than_a_batch_runs_alone_and_lists_count_their_texts() {
    let settings =
        Settings { batch_tokens: 16, batch_wait: Duration::from_millis(200), ..Settings::default() };
    let server = Running::classifier(settings);
    let (status, found) = server.post("/predict", &json!({"text": "good film ".repeat(5000)}));
    assert_eq!(status, 200, "{found}");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(server.post("/predict", &json!({"texts": vec!["good film"; 8]})).0, 200)
            });
        }
    });
    // Each list has 16 tokens, so that each is a batch; 32 texts in all, and the long one.
    assert_eq!(metric(&server, "unpadded_batch_sequences_count"), 5.0);
    assert_eq!(metric(&server, "unpadded_batch_sequences_sum"), 33.0);
}

/// Waits until a metric has a value.
fn wait_for(server: &Running, name: &str, value: f64) {
    let begun = Instant::now();
    while metric(server, name) != value {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} is not {value}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn more_requests_than_slots_get_429_at_once_and_those_of_clients_that_left_are_dropped() {
    let batch_wait = Duration::from_secs(300);
    let settings = Settings { requests: 2, batch_tokens: 8, batch_wait, ..Settings::default() };
    let server = Running::classifier(settings);
    let body = json!({"text": "good film"}).to_string();
    let request =
        format!("POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut waiting: Vec<_> = (0..2).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(request.as_bytes()).unwrap());
    wait_for(&server, "unpadded_queue_texts", 2.0);
    let before = Instant::now();
    let (status, head, _) = server.send("POST", "/predict", "", &body);
    assert!(
        status == 429 && head.contains("retry-after: 1") && before.elapsed() < Duration::from_secs(5),
        "{head}"
    );
    assert_eq!(server.get("/health/ready").0, 200);
    assert_eq!(metric(&server, "unpadded_queue_texts"), 2.0);
    drop(waiting);
    wait_for(&server, "unpadded_requests_in_work", 0.0);
    // A full batch does not wait.
    let (status, _) = server.post("/predict", &json!({"text": "good film ".repeat(4)}));
    assert_eq!((status, metric(&server, "unpadded_batch_sequences_sum")), (200, 1.0));
}

/// Slow clients hold no slot, and only the memory of what they have sent.
#[test]
fn bodies_that_do_not_arrive_take_no_slot() {
    let settings = Settings { requests: 2, request_memory: 100_000, body: 100_000, ..Settings::default() };
    let server = Running::classifier(settings); // counts 4.8 MB, so that two bodies of 100 KB fit
    let half = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99000\r\n\r\n{";
    let mut slow: Vec<_> = (0..50).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(half).unwrap());
    thread::sleep(Duration::from_millis(200));
    let long = json!({"text": "a".repeat(20_000)});
    assert_eq!(server.post("/predict", &json!({"text": "good film"})).0, 200);
    assert_eq!(server.post("/predict", &long).0, 200);
    slow.iter_mut().take(2).for_each(|stream| stream.write_all(&[b' '; 95_000]).unwrap());
    // A request before the server has read them would take their memory.
    thread::sleep(Duration::from_secs(4));
    refused(server.post("/predict", &long), 429, "overloaded", "leave less memory than this one needs");
    drop(slow);
}

/// An idle connection gives its place to one that waits.
#[test]
fn idle_connections_keep_no_other_waiting() {
    let server = Running::classifier(Settings { connections: 3, ..Settings::default() });
    let mut idle: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let live = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    for stream in &mut idle[..2] {
        stream.write_all(live).unwrap();
        assert!(stream.read(&mut [0; 1000]).unwrap() > 0);
    }
    let before = Instant::now();
    assert_eq!(server.get("/health/live").0, 200);
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    assert_eq!(idle[0].read(&mut [0; 10]).unwrap(), 0, "the oldest is open");
}

#[test]
fn requests_without_a_body_or_an_answer_end_at_the_deadline() {
    let settings = Settings {
        deadline: Duration::from_millis(400),
        batch_wait: Duration::from_secs(5),
        ..Settings::default()
    };
    let server = Running::classifier(settings);
    refused(server.post("/predict", &json!({"text": "good"})), 504, "timeout", "did not answer within");
    let half = "POST /predict HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{";
    assert_eq!(parted(&server.raw(half.as_bytes())).0, 408);
}

#[test]
fn a_token_is_asked_of_all_but_probes() {
    let server = Running::classifier(Settings { token: Some("secret".into()), ..Settings::default() });
    for (path, status) in
        [("/health/live", 200), ("/ping", 200), ("/", 200), ("/info", 401), ("/metrics", 401)]
    {
        assert_eq!(server.get(path).0, status, "{path}");
    }
    let ask = |head: &str| server.send("POST", "/predict", head, "{\"text\": \"good\"}").0;
    assert_eq!(
        (ask(""), ask("authorization: Bearer secrets\r\n"), ask("authorization: secret\r\n")),
        (401, 401, 401)
    );
    assert_eq!(ask("authorization: Bearer secret\r\n"), 200);
}

/// The memory of a batch is known before it runs (asked of spaCy in #2792): a text that cannot fit is refused with what it needs.
#[test]
fn a_text_that_does_not_fit_the_memory_is_refused_with_what_it_needs() {
    let mut config = Config::new(Task::Classify);
    (config.model.hidden, config.model.embedding, config.training.epochs) = (64, 16, 1);
    config.model.bidirectional = true; // reads a text as a whole
    let path = file("wide.ckpt");
    save(&config, &path);
    let deadline = Duration::from_secs(300); // the model is slow without optimisation
    let settings = Settings { batch_memory: 16_000_000, deadline, ..Settings::default() };
    let server = Running::new(settings, &[("wide", path)]);
    let (status, error) = server.post("/predict", &json!({"text": "good film ".repeat(40_000)}));
    let message = error["error"].as_str().unwrap_or_default();
    assert_eq!(status, 413, "{error}");
    assert!(message.contains("expected at most 16 MB, got ") && message.contains("80000 rows"), "{message}");
    let many: Vec<String> = (0..30).map(|_| "good film ".repeat(1000)).collect();
    assert_eq!(server.post("/predict", &json!({"texts": many})).0, 200);
    let bound = |memory| {
        let server = Server::new(Settings { memory: Some(memory), ..Settings::default() });
        server.add("films", CheckpointSource::new(trained(Task::Classify))).unwrap();
        server.open()
    };
    assert!(bound(50_000_000).unwrap_err().starts_with("memory: expected at least "));
    let bound = bound(2_000_000_000).unwrap();
    assert!(bound.total() <= 2_000_000_000 && bound.total() > 1_900_000_000, "{bound}");
}
