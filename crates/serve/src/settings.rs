//! The limits of a server.

use std::time::Duration;

/// The limits of a server; [`Default`] has the values that the command shows.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The maximum number of requests in work at once; a further request is refused with 429.
    pub requests: usize,
    /// The maximum number of open connections; a further connection takes the place of the oldest one.
    pub connections: usize,
    /// The number of tokens from which a batch takes no further request.
    pub batch_tokens: usize,
    /// The time for which a batch below this number waits for further requests.
    pub batch_wait: Duration,
    /// The maximum number of texts of a request.
    pub texts: usize,
    /// The maximum size of a body in bytes.
    pub body: usize,
    /// The maximum number of tokens of a text.
    pub text_tokens: usize,
    /// The maximum number of tokens that a request lets a model write.
    pub new_tokens: usize,
    /// The maximum number of texts that are written at once.
    pub streams: usize,
    /// The time after which a request without an answer ends with 504, or with 408 if its body is missing.
    pub deadline: Duration,
    /// The time for which the server waits for accepted requests when it ends.
    pub grace: Duration,
    /// The maximum number of sessions.
    pub sessions: usize,
    /// The time after its last use for which a session lives.
    pub session_time: Duration,
    /// The bound on the memory of the process, in bytes; `None` gives each batch [`Self::batch_memory`].
    pub memory: Option<u64>,
    /// The memory of a batch in bytes, if [`Self::memory`] is not set.
    pub batch_memory: u64,
    /// The memory of all bodies, parsed texts and answers in bytes.
    pub request_memory: u64,
    /// The token that requests must send in the header `Authorization`.
    pub token: Option<String>,
    /// The origins whose pages may call the server (CORS); `*` means any.
    pub origins: Vec<String>,
    /// The time between two looks at the files of the models; `None` never looks.
    pub watch: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            requests: 512,
            connections: 1024,
            batch_tokens: 16_384,
            batch_wait: Duration::ZERO,
            texts: 32,
            body: 2_000_000,
            text_tokens: 100_000,
            new_tokens: 4096,
            streams: 16,
            deadline: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            sessions: 256,
            session_time: Duration::from_secs(600),
            memory: None,
            batch_memory: 400_000_000,
            request_memory: 128_000_000,
            token: None,
            origins: Vec::new(),
            watch: Some(Duration::from_secs(2)),
        }
    }
}
