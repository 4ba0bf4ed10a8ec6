//! Connections: their number, their times, and the end of the server.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_io_timeout::TimeoutStream;

use super::state::State;

/// The time within which the head of a request must arrive, also the first after the connection or the last answer.
const HEAD: Duration = Duration::from_secs(20);
/// The time for which a client may take no byte of an answer.
const STALLED: Duration = Duration::from_secs(30);
/// The largest head of a request, and the size of a connection's buffers, in bytes.
const BUFFER: usize = 16 * 1024;
/// The time after the begin of the end in which requests that are on the way still arrive on open connections.
const ON_THE_WAY: Duration = Duration::from_millis(150);

/// The time after which a connection that still waits for its place lets one more of the oldest connections close. A younger
/// connection is not closed, since its first request may be on the way.
const CROWDED: Duration = Duration::from_millis(50);
/// The pause after a connection that could not be accepted: without free file descriptors, a retry at once would fail, too.
const RETRY: Duration = Duration::from_millis(50);

/// The open connections, the oldest first.
struct Connections {
    free: Arc<Semaphore>,
    most: usize,
    router: axum::Router,
    /// The begin of each connection, and a sender that closes it when it is used or dropped.
    closes: VecDeque<(Instant, oneshot::Sender<()>)>,
}

pub(crate) async fn run(
    state: Arc<State>,
    router: axum::Router,
    listener: TcpListener,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let most = state.settings.connections.min(Semaphore::MAX_PERMITS);
    let free = Arc::new(Semaphore::new(most));
    let mut connections = Connections { free: free.clone(), most, router, closes: VecDeque::new() };
    // A connection that waits for its place is not lost at the end.
    let mut accepted = None;
    let mut end = pin!(end);
    let upkeep = tokio::spawn(upkeep(state.clone()));
    loop {
        tokio::select! {
            () = &mut end => break,
            () = connections.next(&listener, &mut accepted) => {}
        }
    }
    state.ends.store(true, Ordering::Relaxed);
    // Connections that the system has accepted already are answered, too, when they find a place.
    let mut waiting = Vec::from_iter(accepted);
    let more = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => waiting.push(stream),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    };
    let _ = tokio::time::timeout(ON_THE_WAY, more).await;
    drop(listener);
    connections.closes.clear();
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let close = async {
        for stream in waiting {
            if let Ok(permit) = free.clone().acquire_owned().await {
                connections.serve(stream, permit);
            }
        }
        tokio::time::sleep(ON_THE_WAY).await;
        connections.closes.clear();
        drop(free.acquire_many(all).await);
    };
    let closed = tokio::time::timeout(state.settings.grace, close).await.is_ok();
    upkeep.abort();
    match closed {
        true => Ok(()),
        false => Err(io::Error::other("requests were unanswered after the grace time")),
    }
}

impl Connections {
    /// Accepts a connection, waits for its place and serves it; `accepted` keeps it if the wait ends before.
    async fn next(&mut self, listener: &TcpListener, accepted: &mut Option<TcpStream>) {
        if accepted.is_none() {
            match listener.accept().await {
                Ok((stream, _)) => *accepted = Some(stream),
                Err(e) => {
                    tracing::warn!(reason = %e, "a connection was not accepted");
                    tokio::time::sleep(RETRY).await;
                    return;
                }
            }
        }
        let mut permit = self.free.clone().try_acquire_owned().ok();
        while permit.is_none() {
            // The oldest connection closes as soon as it has no request.
            while self.closes.front().is_some_and(|(began, _)| began.elapsed() >= CROWDED)
                && self.closes.pop_front().is_some_and(|(_, close)| close.send(()).is_err())
            {}
            let free = tokio::time::timeout(CROWDED, self.free.clone().acquire_owned()).await;
            permit = free.ok().and_then(Result::ok);
        }
        if let (Some(stream), Some(permit)) = (accepted.take(), permit) {
            self.serve(stream, permit);
        }
    }

    fn serve(&mut self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true); // only a matter of speed
        let (close, closes) = oneshot::channel();
        if self.closes.len() > 2 * self.most {
            self.closes.retain(|(_, close)| !close.is_closed());
        }
        self.closes.push_back((Instant::now(), close));
        let service = TowerToHyperService::new(self.router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(STALLED));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER).max_headers(64);
            let mut connection = pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
            tokio::select! {
                biased; // a request that has arrived is read before the connection closes
                _ = connection.as_mut() => return,
                _ = closes => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await; // errors of a connection are the client's
        });
    }
}

/// Ends old sessions, and reloads models whose files have changed.
async fn upkeep(state: Arc<State>) {
    let each = state.settings.watch.unwrap_or(Duration::from_secs(5));
    loop {
        tokio::time::sleep(each).await;
        let state = state.clone();
        let work = move || match state.settings.watch {
            Some(_) => drop(state.reload(true)),
            None => state.sessions.sweep(&state.models),
        };
        let _ = tokio::task::spawn_blocking(work).await; // a panic is in the log
    }
}
