//! An HTTP server for trained models of text. The requests of all connections are joined into ragged batches, and a memory bound
//! holds for the whole process.
//!
//! [`Server::router`] returns the routes as a service of `tower`, to nest into a server of your own; [`Server::run`] serves them.
//!
//! ```no_run
//! use unpadded_serve::{CheckpointSource, Server, Settings};
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::new(Settings::default());
//! server.add("sentiment", CheckpointSource::new("runs/classify-1/best.ckpt"))?;
//! println!("at most {}", server.open()?.total());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! server.run(listener, std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

mod body;
mod bound;
mod call;
mod connections;
mod failure;
mod input;
mod json;
mod logs;
mod memory;
mod metrics;
mod models;
mod queue;
mod routes;
mod sessions;
mod settings;
mod state;
mod streams;

/// How to run the server, to call it from other languages, and to watch it.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("serving.md"))]
pub mod serving {}

pub use bound::MemoryBound;
pub use models::{CheckpointSource, ModelSource};
pub use settings::Settings;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use state::State;

/// A server of one or more models. Clones are handles of one server.
#[derive(Clone)]
pub struct Server(Arc<State>);

impl Server {
    /// Makes a server without models, and starts the thread that runs batches.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(State::new(settings)))
    }

    /// Loads a model and adds it under a name, after an answer of its own. The first model answers requests without a name.
    ///
    /// # Errors
    /// If the name is empty, is taken or has a `/`, or if the model cannot be loaded or cannot answer.
    pub fn add(&self, name: &str, source: impl ModelSource + 'static) -> Result<(), String> {
        let State { models, settings, metrics, .. } = &*self.0;
        models.add(name, Arc::new(source), settings, metrics)
    }

    /// Loads all models again; a model that cannot be loaded stays as it is. Returns a message per model.
    pub fn reload(&self) -> Vec<String> {
        self.0.reload(false)
    }

    /// Lets requests in; before, they get 503. Returns the memory bound of the process, which holds from now on, by part.
    ///
    /// # Errors
    /// If there is no model, or if [`Settings::memory`] leaves no room for a batch.
    pub fn open(&self) -> Result<MemoryBound, String> {
        if self.0.models.all().is_empty() {
            return Err("models: expected at least one, got none".to_owned());
        }
        let bound = MemoryBound::new(&self.0)?;
        self.0.open.store(true, Ordering::Relaxed);
        Ok(bound)
    }

    /// Returns the path and the body of a first request, as arguments of `curl`.
    pub fn example(&self) -> String {
        self.0.models.find(None).map_or_else(|_| "/info".to_owned(), |model| routes::example(&model))
    }

    /// Returns the routes as a service, to nest into a router of your own. The limits of connections are not part of it.
    pub fn router(&self) -> axum::Router {
        routes::router(self.0.clone())
    }

    /// Serves HTTP/1 on a listener until `end` is ready; then accepts nothing more, and returns when all accepted requests are
    /// answered or the grace time is over. While it serves, it reloads models whose files change.
    ///
    /// # Errors
    /// If requests are unanswered after the grace time.
    pub async fn run(
        &self,
        listener: tokio::net::TcpListener,
        end: impl Future<Output = ()>,
    ) -> io::Result<()> {
        connections::run(self.0.clone(), self.router(), listener, end).await
    }
}
