//! The command `unpadded serve`: trained models answer over HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, ValueEnum};
use unpadded::memory::shown;
use unpadded_recipes::{ByteSize, Model};
use unpadded_serve::{ModelSource, Server, Settings};

use super::model_choice::ThreadCount;
use super::outcome::{Ending, Outcome, bad, message};
use super::{ask, init, run, terminal, together};

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded serve runs/classify-1
  curl -s localhost:8080/predict -d '{\"texts\": [\"What a film!\", \"Dull.\"]}'
  unpadded serve sentiment=runs/classify-1 names=runs/tag-1 --memory 1GB
  unpadded serve all=runs/classify-1,runs/classify-2        both as one model (ensemble)
The page at / takes texts to try; /openapi.json describes all routes. SIGHUP, or a change of a checkpoint, loads the models
again. SIGTERM and Ctrl-C end the server when all accepted requests are answered. A proxy in front of it adds TLS.")]
pub(crate) struct Serve {
    /// Models: run folders or checkpoints, each with a name in front, as sentiment=runs/a; runs joined by commas are an ensemble
    #[arg(value_name = "[NAME=]RUN", required = true, value_parser = init::path())]
    models: Vec<String>,
    /// Address to listen on; 0.0.0.0 for all networks
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 for a free one
    #[arg(long, value_name = "NUMBER", default_value_t = 8080)]
    port: u16,
    /// Memory bound of the process, as 500MB or 4GB [default: what the other limits add up to]
    #[arg(long, value_name = "SIZE", value_parser = ask::size)]
    memory: Option<ByteSize>,
    /// Requests in work at once; more are refused with 429
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().requests)]
    requests: usize,
    /// Open connections; one more takes the place of the oldest
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().connections)]
    connections: usize,
    /// Batch size: tokens from which a batch takes no further request
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().batch_tokens)]
    batch_tokens: usize,
    /// Microseconds for which a smaller batch waits for further requests
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    batch_wait: u64,
    /// Texts of a request
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().texts)]
    texts: usize,
    /// Body of a request
    #[arg(long, value_name = "SIZE", default_value = "2MB", value_parser = ask::size)]
    body: ByteSize,
    /// Longest text in tokens; longer texts are refused, or cut if the request says `truncate`
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().text_tokens)]
    text_tokens: usize,
    /// Tokens that a request lets a language model write
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().new_tokens)]
    new_tokens: usize,
    /// Texts that are written at once
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().streams)]
    streams: usize,
    /// Sessions of language models
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().sessions)]
    sessions: usize,
    /// Seconds after its last use for which a session lives
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().session_time.as_secs())]
    session_time: u64,
    /// Deadline of a request in seconds
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().deadline.as_secs())]
    deadline: u64,
    /// Grace time in seconds: how long the end waits for accepted requests
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().grace.as_secs())]
    grace: u64,
    /// File with the bearer token that requests must send
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Origin whose pages may call the server (CORS), as https://example.org; * for all; repeatable
    #[arg(long, value_name = "ORIGIN")]
    cors: Vec<String>,
    /// Log, to standard error
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    log: LogFormat,
    /// Log every request, not only those that fail
    #[arg(long)]
    log_requests: bool,
    #[command(flatten)]
    threads: ThreadCount,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum LogFormat {
    /// One line for people
    Lines,
    /// One object of JSON per line
    Json,
}

/// The runs of a model, joined to an ensemble if they are several.
struct Runs {
    paths: Vec<PathBuf>,
    threads: usize,
    /// The checkpoint of a single run: without `best.ckpt`, a reload must not take `last.ckpt` in its place.
    checkpoint: OnceLock<PathBuf>,
}

impl Runs {
    fn is_ensemble(&self) -> bool {
        self.paths.len() > 1 || self.paths.iter().any(|path| run::several(path))
    }

    fn model(&self) -> Outcome<Model> {
        match self.is_ensemble() {
            true => together::load(&self.paths, self.threads),
            false => {
                if self.checkpoint.get().is_none() {
                    let path = run::checkpoint(self.paths.first().map_or(Path::new(""), PathBuf::as_path))?;
                    let _ = self.checkpoint.set(path); // another load may have set it
                }
                let path = self.checkpoint.get().map_or(Path::new(""), PathBuf::as_path);
                Ok(Model::load(path)?.threads(self.threads))
            }
        }
    }
}

impl ModelSource for Runs {
    fn load(&self) -> Result<Model, String> {
        self.model().map_err(|e| message(&*e))
    }

    fn files(&self) -> Vec<PathBuf> {
        if let Some(path) = self.checkpoint.get() {
            return vec![path.clone()];
        }
        let members = |path: &PathBuf| match run::several(path) {
            true => run::members(path).unwrap_or_default(),
            false => vec![path.clone()],
        };
        self.paths.iter().flat_map(members).filter_map(|path| run::checkpoint(&path).ok()).collect()
    }
}

/// Returns the name of a model and its runs; without a name, the name of the run folder.
fn named(model: &str, threads: usize) -> Outcome<(String, Runs)> {
    let whole = unpadded_text::path_of_text(model);
    let (name, paths) = match model.split_once('=').filter(|_| !whole.exists()) {
        Some((name, paths)) => (Some(name), paths),
        None => (None, model),
    };
    let paths: Vec<PathBuf> = paths.split(',').map(unpadded_text::path_of_text).collect();
    let of_folder = |path: &PathBuf| {
        let folder = if path.is_file() { path.parent()? } else { path };
        let name = folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
        Some(name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-"))
    };
    let name = name.map(str::to_owned).or_else(|| paths.first().and_then(of_folder));
    Ok((name.unwrap_or_else(|| "model".to_owned()), Runs { paths, threads, checkpoint: OnceLock::new() }))
}

impl Serve {
    fn settings(&self) -> Outcome<Settings> {
        let token = match &self.token_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path).or_else(|e| {
                    bad(format!("--token-file {}: expected a file with the token, got: {e}", path.display()))
                })?;
                if text.trim().is_empty() {
                    return bad(format!(
                        "--token-file {}: expected a token, got an empty file",
                        path.display()
                    ));
                }
                Some(text.trim().to_owned())
            }
        };
        let counts = [
            ("--requests", self.requests),
            ("--connections", self.connections),
            ("--batch-tokens", self.batch_tokens),
            ("--texts", self.texts),
            ("--text-tokens", self.text_tokens),
            ("--streams", self.streams),
            ("--deadline", usize::try_from(self.deadline).unwrap_or(usize::MAX)),
        ];
        if let Some((flag, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return bad(format!("{flag}: expected at least 1, got 0"));
        }
        let is_origin = |origin: &&String| {
            let host = origin.split_once("://").map(|(_, host)| host);
            origin.as_str() == "*" || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ']))
        };
        if let Some(origin) = self.cors.iter().find(|origin| !is_origin(origin)) {
            return bad(format!("--cors {origin}: expected an origin, as https://example.org, or *"));
        }
        Ok(Settings {
            requests: self.requests,
            connections: self.connections,
            batch_tokens: self.batch_tokens,
            batch_wait: Duration::from_micros(self.batch_wait),
            texts: self.texts,
            body: usize::try_from(self.body.bytes()).unwrap_or(usize::MAX),
            text_tokens: self.text_tokens,
            new_tokens: self.new_tokens,
            streams: self.streams,
            deadline: Duration::from_secs(self.deadline),
            grace: Duration::from_secs(self.grace),
            sessions: self.sessions,
            session_time: Duration::from_secs(self.session_time),
            memory: self.memory.map(ByteSize::bytes),
            token,
            origins: self.cors.clone(),
            ..Settings::default()
        })
    }

    fn log(&self) {
        let level = if self.log_requests { tracing::Level::DEBUG } else { tracing::Level::INFO };
        let log =
            tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
        match self.log {
            LogFormat::Lines => log.with_ansi(false).init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
        super::allocator::report_panics(|panic| tracing::error!(reason = %panic, "a thread panicked"));
    }

    pub(crate) fn run(self) -> Outcome<Ending> {
        let settings = self.settings()?;
        self.log();
        super::allocator::keep_few_holes();
        // One thread serves many small requests while the others compute.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores / 4).max(1))
            .max_blocking_threads(self.streams + 8)
            .enable_all()
            .build()?;
        let ending = runtime.block_on(self.serve(settings));
        // A thread that still writes a text for a client is not waited for.
        runtime.shutdown_background();
        ending
    }

    async fn serve(self, settings: Settings) -> Outcome<Ending> {
        let listener = tokio::net::TcpListener::bind((self.host, self.port)).await.or_else(|e| {
            bad(format!("--host {} --port {}: expected a free address, got: {e}", self.host, self.port))
        })?;
        let (server, address) = (Server::new(settings), listener.local_addr()?);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut signals = Signals::new()?;
        // While the models load, the server answers with 503.
        let of_server = server.clone();
        let serves = tokio::spawn(async move { of_server.run(listener, async { drop(ended.await) }).await });
        let of_load = server.clone();
        let load = tokio::task::spawn_blocking(move || {
            // The error has no source line, and is no box that stays on this thread.
            self.load(&of_load, address).map_err(|e| message(&*e))
        });
        tokio::select! {
            loaded = load => {
                if let Err(why) = loaded? {
                    return bad(why);
                }
                signals.end(&server).await;
            }
            () = signals.end(&server) => {}
        }
        drop(end);
        tokio::select! {
            ended = serves => ended??,
            // A second signal ends the server at once.
            () = signals.end(&server) => return Ok(Ending::Interrupted),
        }
        Ok(Ending::Done)
    }

    /// Loads the models, lets requests in, and prints where the server is.
    fn load(&self, server: &Server, address: SocketAddr) -> Outcome<()> {
        let mut first = None;
        for model in &self.models {
            let (name, runs) = named(model, self.threads.number)?;
            // The first load is tried here, so that a wrong path has the message of other commands.
            server.add(&name, runs).or_else(|why| bad(format!("{model}: {why}")))?;
            first.get_or_insert(name);
        }
        let bound = server.open().or_else(bad)?;
        terminal::print(format!("serving on http://{address}, with a page to type into"))?;
        terminal::print(format!("memory: at most {}: {bound}", shown(bound.total().into())))?;
        terminal::print(format!("curl -s {address}{}", server.example()))
    }
}

/// The signals of a server, caught from its start on.
#[cfg(unix)]
struct Signals {
    ends: [tokio::signal::unix::Signal; 2],
    hangups: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Outcome<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        Ok(Self { ends, hangups: signal(SignalKind::hangup())? })
    }

    /// Waits for a signal that ends the server; SIGHUP loads the models again.
    async fn end(&mut self, server: &Server) {
        let [terminates, interrupts] = &mut self.ends;
        loop {
            tokio::select! {
                _ = terminates.recv() => return,
                _ = interrupts.recv() => return,
                _ = self.hangups.recv() => {
                    let server = server.clone();
                    tokio::task::spawn_blocking(move || server.reload());
                }
            }
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Outcome<Self> {
        Ok(Self)
    }

    async fn end(&mut self, _: &Server) {
        drop(tokio::signal::ctrl_c().await);
    }
}
