//! The server over its socket: what each route answers, what it refuses, and that nothing is lost.

#![allow(clippy::unwrap_used)]

mod answers;
mod clients;
mod limits;
mod protocols;
mod reload;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;
use unpadded::train::{Progress, Until};
use unpadded_recipes::{Config, Model, Task, prepare};
use unpadded_serve::{CheckpointSource, Server, Settings};

/// Returns a file below a folder of this process.
fn file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unpadded-serve-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Trains a small model of a task once, and returns its checkpoint.
fn trained(task: Task) -> PathBuf {
    static TRAINED: OnceLock<Mutex<()>> = OnceLock::new();
    let _one = TRAINED.get_or_init(Mutex::default).lock().unwrap();
    let path = file(&format!("{}.ckpt", task.name()));
    if path.exists() {
        return path;
    }
    let mut config = Config::new(task);
    (config.model.hidden, config.model.embedding, config.training.epochs) = (16, 8, 1);
    if task == Task::Translate {
        let pair = |i: usize| format!("one {} two\tein {} zwei\n", i % 7, i % 7);
        std::fs::write(file("pairs.tsv"), (0..80).map(pair).collect::<String>()).unwrap();
        config.data.train = Some(file("pairs.tsv").to_string_lossy().into_owned());
    }
    save(&config, &path);
    path
}

fn save(config: &Config, path: &PathBuf) {
    let prepared = prepare(config).unwrap();
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(config.training.epochs)).unwrap();
    trainer.for_inference().unwrap().save(path).unwrap();
}

/// A server of a test on a free port; it ends when it is dropped.
struct Running {
    runtime: Option<Runtime>,
    address: SocketAddr,
    server: Server,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn new(settings: Settings, models: &[(&str, PathBuf)]) -> Self {
        let server = Server::new(settings);
        for (name, path) in models {
            server.add(name, CheckpointSource::new(path)).unwrap();
        }
        server.open().unwrap();
        Self::of(server)
    }

    fn of(server: Server) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = tokio::sync::oneshot::channel();
        let run = server.clone();
        let ended = runtime.spawn(async move { run.run(listener, async { drop(ends.await) }).await });
        Self { runtime: Some(runtime), address, server, end: Some(end), ended: Some(ended) }
    }

    /// A server of the classifier of the tests.
    fn classifier(settings: Settings) -> Self {
        Self::new(settings, &[("films", trained(Task::Classify))])
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        stream
    }

    /// Sends bytes and returns all that comes until the server closes the connection.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request on a connection of its own; returns the status, the head and the body.
    fn send(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
        );
        parted(&self.raw(request.as_bytes()))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, "", "");
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.send("POST", path, "", &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Ends the server and returns how it ended.
    fn end(&mut self) -> std::io::Result<()> {
        self.end.take();
        let (runtime, ended) = (self.runtime.as_ref().unwrap(), self.ended.take().unwrap());
        runtime.block_on(ended).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.take();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the status, the head and the body of an answer.
fn parted(answer: &str) -> (u16, String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    (status, head.to_owned(), body)
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        if length == 0 {
            break;
        }
        body.push_str(&more[..length]);
        rest = &more[length + 2..];
    }
    body
}

/// Returns the value of a metric, without labels or with the labels in `name`.
fn metric(server: &Running, name: &str) -> f64 {
    let (_, _, text) = server.send("GET", "/metrics", "", "");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}
