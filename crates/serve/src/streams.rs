//! Texts that a language model writes, token by token, each on a thread of its own.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use unpadded::predict::Sampler;

use super::call::Call;
use super::failure::Failure;
use super::memory::MemoryPermit;
use super::sessions::Text;
use super::state::State;

/// A text to write: after `prompt`, and after all that the session of `text` has read and written.
pub(crate) struct Writing {
    pub(crate) text: Text,
    /// The name of the session that gets the state back.
    pub(crate) session: Option<String>,
    pub(crate) prompt: String,
    pub(crate) sampler: Sampler,
    pub(crate) tokens: usize,
    /// The texts that end the written text; they are not part of it.
    pub(crate) stop: Vec<String>,
}

/// The pieces of a text. Their place among the streams, and their memory, are free when the last piece was taken.
pub(crate) struct Pieces {
    pieces: UnboundedReceiver<Piece>,
    _permits: Arc<(OwnedSemaphorePermit, MemoryPermit)>,
}

impl Pieces {
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        self.pieces.recv().await
    }

    /// Waits for a piece, and adds all pieces that wait to `all`; returns whether there were any.
    pub(crate) async fn next_all(&mut self, all: &mut Vec<Piece>) -> bool {
        self.pieces.recv_many(all, 64).await > 0
    }
}

/// What a stream sends.
pub(crate) enum Piece {
    Text(String),
    Done { read: usize, written: usize, stopped: bool },
    Failed(Failure),
}

/// Starts to write; the number of tokens bounds the pieces that wait for a slow client.
pub(crate) fn start(call: &Call, writing: Writing) -> Result<Pieces, Failure> {
    let state = &call.state;
    let permit = state.streams.clone().try_acquire_owned();
    let Ok(permit) = permit else {
        give_back(state, writing.session, writing.text);
        state.metrics.reject("streams");
        let most = state.settings.streams;
        return Err(Failure::overloaded(format!("expected at most {most} texts written at once")));
    };
    let (to, pieces) = unbounded_channel();
    let (state, permits) = (state.clone(), Arc::new((permit, call.held.clone())));
    let (began, due) = (call.began, call.due);
    let of_writer = permits.clone();
    tokio::task::spawn_blocking(move || {
        let _until_the_end = of_writer;
        let Writing { mut text, session, prompt, mut sampler, tokens, stop } = writing;
        let mut sent = PieceSender::new(&state, &to, &stop, began);
        let mut run = || -> unpadded::Result<Piece> {
            let ends = || to.is_closed() || due < Instant::now();
            let go_on = &mut || if ends() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let read = text.model.model.read(&mut text.session, &prompt, go_on)?;
            text.tokens += read;
            if ends() {
                return Ok(Piece::Failed(Failure::no_answer()));
            }
            let model = &text.model.model;
            let written =
                model.write_each(&mut text.session, &mut sampler, tokens, &mut |piece| sent.add(piece))?;
            sent.end();
            text.tokens += written;
            Ok(Piece::Done { read, written, stopped: sent.stopped })
        };
        let done = match catch_unwind(AssertUnwindSafe(&mut run)) {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Piece::Failed(Failure::of_model(&error)),
            Err(_) => Piece::Failed(Failure::internal()),
        };
        give_back(&state, session, text);
        let _ = to.send(done); // the client may have left
    });
    Ok(Pieces { pieces, _permits: permits })
}

fn give_back(state: &State, session: Option<String>, text: Text) {
    if let Some(name) = session {
        state.sessions.put_back(&name, text);
    }
}

/// The pieces that are sent, without the end that may become a stop.
struct PieceSender<'a> {
    state: &'a State,
    to: &'a UnboundedSender<Piece>,
    stop: &'a [String],
    /// The text that is not sent yet: a stop may begin in it.
    kept: String,
    before: Instant,
    is_first: bool,
    stopped: bool,
}

impl<'a> PieceSender<'a> {
    fn new(state: &'a State, to: &'a UnboundedSender<Piece>, stop: &'a [String], began: Instant) -> Self {
        Self { state, to, stop, kept: String::new(), before: began, is_first: true, stopped: false }
    }

    fn add(&mut self, piece: &str) -> ControlFlow<()> {
        if piece.is_empty() {
            return self.send(String::new());
        }
        let metrics = &self.state.metrics;
        let times = if self.is_first { &metrics.first_token } else { &metrics.between_tokens };
        times.observe(self.before.elapsed().as_secs_f64());
        (self.before, self.is_first) = (Instant::now(), false);
        self.kept.push_str(piece);
        if let Some(at) = self.stop.iter().filter_map(|stop| self.kept.find(stop.as_str())).min() {
            self.kept.truncate(at);
            self.stopped = true;
        } else {
            let begins = |at: &usize| self.stop.iter().any(|stop| stop.starts_with(&self.kept[*at..]));
            let mut starts = self.kept.char_indices().map(|(at, _)| at);
            let keep = if self.stop.is_empty() { None } else { starts.find(begins) };
            let end = self.kept.split_off(keep.unwrap_or(self.kept.len()));
            let text = std::mem::replace(&mut self.kept, end);
            return self.send(text);
        }
        let text = std::mem::take(&mut self.kept);
        let _ = self.send(text);
        ControlFlow::Break(())
    }

    fn end(&mut self) {
        let text = std::mem::take(&mut self.kept);
        let _ = self.send(text);
    }

    /// Sends a text; ends the writing if the client has left.
    fn send(&self, text: String) -> ControlFlow<()> {
        match text.is_empty() || self.to.send(Piece::Text(text)).is_ok() {
            true if !self.to.is_closed() => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}
