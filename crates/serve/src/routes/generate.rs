//! `POST /generate`: texts that a language model writes, whole or token by token, drawn or searched.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State as Of};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use unpadded::predict::{Beam, Sampling};
use utoipa::ToSchema;

use super::super::bound::WIDEST;
use super::super::call::Call;
use super::super::failure::Failure;
use super::super::input::{Texts, Truncate};
use super::super::json::response;
use super::super::queue::{Output, Work};
use super::super::sessions::Text;
use super::super::state::State;
use super::super::streams::{self, Piece, Pieces, Writing};
use super::predict::decoding;

/// A text to continue by a language model, or to translate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateRequest {
    /// The name of the model; the first model without it.
    model: Option<String>,
    /// The beginning of the text.
    #[serde(default)]
    prompt: String,
    /// A session of `POST /sessions`: the text continues all that the session has read and written.
    session: Option<String>,
    /// The maximum number of new tokens (default: 200).
    max_tokens: Option<usize>,
    /// Temperature of sampling; 0 always takes the likeliest token (default: 0.8).
    temperature: Option<f64>,
    /// Top-k sampling: only this many likeliest tokens.
    top_k: Option<usize>,
    /// Top-p (nucleus) sampling: only the likeliest tokens with this total probability.
    top_p: Option<f64>,
    /// Seed of the draws: equal seeds give equal texts (default: drawn).
    seed: Option<u64>,
    /// Texts that end the text; they are not part of it.
    stop: Option<Texts>,
    /// Beam width of a search for the most probable text, in place of draws.
    beam: Option<usize>,
    /// The number of texts of a search; a search without `beam` is at least as wide.
    n_best: Option<usize>,
    /// Length penalty of a search.
    length_penalty: Option<f64>,
    /// Whether the tokens are sent as server-sent events, as they are drawn.
    #[serde(default)]
    stream: bool,
    /// The end that is cut of a prompt over the limit; without it, such a prompt is refused.
    truncate: Option<Truncate>,
}

/// How tokens are drawn.
#[derive(Clone, Default)]
pub(super) struct Draws {
    pub(super) temperature: Option<f64>,
    pub(super) top_k: Option<usize>,
    pub(super) top_p: Option<f64>,
    pub(super) seed: Option<u64>,
    pub(super) stop: Option<Texts>,
}

/// What a request asks to write.
pub(super) struct Order {
    pub(super) prompt: String,
    pub(super) session: Option<String>,
    pub(super) tokens: usize,
    pub(super) truncate: Option<Truncate>,
}

impl Order {
    /// Starts to write; also returns the number of tokens that were cut from the prompt.
    pub(super) async fn start(
        self,
        call: &Call,
        how: &Draws,
        default: f64,
    ) -> Result<(Pieces, usize), Failure> {
        let Self { prompt, session, tokens, truncate } = self;
        let (state, most) = (&call.state, call.state.settings.new_tokens);
        if tokens > most {
            return Err(Failure::invalid(format!("`max_tokens`: expected at most {most}, got {tokens}")));
        }
        if !call.model.writes() {
            let task = call.model.task();
            return Err(Failure::invalid(format!(
                "model: expected a language model (`lm`), got a model of `{task}`: use `POST /predict`"
            )));
        }
        let seed = match how.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|_| Failure::internal())?,
        };
        let sampling = Sampling::default().temperature(how.temperature.unwrap_or(default));
        let sampling = sampling.top_k(how.top_k).top_p(how.top_p.unwrap_or(1.0));
        let sampler = sampling.sampler(seed).map_err(|e| Failure::invalid(format!("{e:#}")))?;
        let stop = how.stop.iter().flat_map(|stop| &stop.0).map(|stop| stop.text.clone());
        let stop: Vec<String> = stop.filter(|stop| !stop.is_empty()).collect();
        if stop.len() > 16 || stop.iter().any(|stop| stop.len() > 1024) {
            return Err(Failure::invalid("`stop`: expected at most 16 texts of at most 1024 bytes"));
        }
        let input = call.input(vec![prompt], truncate).await?;
        let prompt = input.texts.first().cloned().unwrap_or_default();
        let text = match &session {
            Some(name) => state.sessions.take(name)?,
            None => Text::begin(&call.model)?,
        };
        let writing = Writing { text, session, prompt, sampler, tokens, stop };
        Ok((streams::start(call, writing)?, input.truncated.first().copied().unwrap_or(0)))
    }
}

/// A text that was written to its end.
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) read: usize,
    pub(super) written: usize,
    pub(super) stopped: bool,
}

/// Waits for the end of a text.
pub(super) async fn whole(call: &Call, mut pieces: Pieces) -> Result<Completion, Failure> {
    call.in_time(async {
        let mut text = String::new();
        while let Some(piece) = pieces.next().await {
            match piece {
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Done { read, written, stopped } => {
                    return Ok(Completion { text, read, written, stopped });
                }
                Piece::Failed(failure) => return Err(failure),
            }
        }
        Err(Failure::internal())
    })
    .await
}

/// Returns pieces as server-sent events; `event` writes the data of each.
pub(super) fn events(pieces: Pieces, event: impl Fn(Piece) -> String + Send + 'static) -> Response {
    let next = move |(mut pieces, event, mut got): (Pieces, _, Vec<Piece>)| async move {
        // All pieces that wait are one write.
        let some = pieces.next_all(&mut got).await;
        let lines = |event: &dyn Fn(Piece) -> String, got: &mut Vec<Piece>| -> String {
            got.drain(..).map(|piece| format!("data: {}\n\n", event(piece))).collect()
        };
        let text = lines(&event, &mut got);
        some.then_some((Ok::<_, std::convert::Infallible>(text), (pieces, event, got)))
    };
    let stream = futures_util::stream::unfold((pieces, event, Vec::new()), next);
    let mut response = response(StatusCode::OK, Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would otherwise collect the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Continues a text by a language model, or translates it
#[utoipa::path(
    post, path = "/generate", request_body = GenerateRequest,
    responses((status = 200, description = "The new text, or its tokens as server-sent events", body = Object, example = json!({"done": true, "tokens": 3, "prompt_tokens": 2, "stopped": false, "text": " was a"}))),
)]
pub(crate) async fn generate(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    let find = |value: &GenerateRequest, state: &State| {
        let Some(name) = &value.session else { return state.models.find(value.model.as_deref()) };
        let model = state.sessions.model(name)?;
        match value.model.as_ref().filter(|other| **other != model.name) {
            Some(other) => {
                let own = &model.name;
                let expected = format!("`model`: expected `{own}`, as the session has, got `{other}`");
                Err(Failure::invalid(expected))
            }
            None => Ok(model),
        }
    };
    let (call, value) = Call::read(state, request, find).await?;
    let GenerateRequest {
        prompt, session, max_tokens, stream, truncate, beam, n_best, length_penalty, ..
    } = value;
    let GenerateRequest { temperature, top_k, top_p, seed, stop, .. } = value;
    let tokens = max_tokens.unwrap_or(200);
    let searches = beam.is_some() || n_best.is_some() || length_penalty.is_some();
    let draws =
        temperature.is_some() || top_k.is_some() || top_p.is_some() || seed.is_some() || stop.is_some();
    if searches || call.model.task() == "translate" {
        if stream || session.is_some() || draws {
            return Err(Failure::invalid(
                "`stream`, `session`, `temperature`, `top_k`, `top_p`, `seed`, `stop`: expected draws of a language model, got a search",
            ));
        }
        let search = (beam, n_best, length_penalty);
        let found = search_texts(&call, prompt, (tokens, truncate), search).await?;
        return call.answer(0, move || found).await;
    }
    let order = Order { prompt, session, tokens, truncate };
    let how = Draws { temperature, top_k, top_p, seed, stop };
    let (pieces, truncated) = order.start(&call, &how, 0.8).await?;
    let done = move |read: usize, written: usize, stopped: bool| {
        let mut done = json!({"done": true, "tokens": written, "prompt_tokens": read, "stopped": stopped});
        if truncated > 0 {
            done["truncated"] = truncated.into();
        }
        done
    };
    if stream {
        let event = move |piece| match piece {
            Piece::Text(text) => json!({"text": text}).to_string(),
            Piece::Done { read, written, stopped } => done(read, written, stopped).to_string(),
            Piece::Failed(failure) => failure.json().to_string(),
        };
        return Ok(events(pieces, event));
    }
    let Completion { text, read, written, stopped } = whole(&call, pieces).await?;
    let mut found = done(read, written, stopped);
    found["text"] = text.into();
    call.answer(0, move || found).await
}

/// Searches the most probable texts: continuations of a language model, or translations.
async fn search_texts(
    call: &Call,
    prompt: String,
    (tokens, truncate): (usize, Option<Truncate>),
    (beam, n_best, length_penalty): (Option<usize>, Option<usize>, Option<f64>),
) -> Result<serde_json::Value, Failure> {
    let input = call.input(vec![prompt], truncate).await?;
    let how = if call.model.writes() {
        let n_best = n_best.unwrap_or(1);
        let (beam, most) = (beam.unwrap_or(n_best.max(4)), call.state.settings.new_tokens);
        if !(1..=WIDEST).contains(&beam) || tokens > most {
            return Err(Failure::invalid(format!(
                "`beam`, `n_best`: expected 1 to {WIDEST}, and `max_tokens` of at most {most}, got {beam} and {tokens}"
            )));
        }
        let beam = Beam::new(beam).n_best(n_best);
        Work::Search(length_penalty.map_or(beam, |penalty| beam.length(penalty)), tokens)
    } else {
        Work::Predict(decoding(&call.model, beam, n_best, length_penalty)?)
    };
    let answers = Output::answers(call.ask(how, &input).await?);
    let answer = answers.first().ok_or_else(Failure::internal)?;
    let text = input.texts.first().map(String::as_str).unwrap_or_default();
    let found = unpadded_recipes::AnswerJson { text, answer, echo: false, offset: 0 };
    let mut found = serde_json::to_value(found).map_err(|_| Failure::internal())?;
    found["text"] = found["found"].take();
    if let Some(object) = found.as_object_mut() {
        object.remove("found");
    }
    if let Some(&truncated) = input.truncated.first().filter(|&&truncated| truncated > 0) {
        found["truncated"] = truncated.into();
    }
    Ok(found)
}
