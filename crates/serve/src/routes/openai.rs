//! The routes below `/v1`, as clients of OpenAI expect them.

use std::sync::Arc;

use axum::extract::{Path, Request, State as Of};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::call::Call;
use super::super::failure::Failure;
use super::super::input::{Texts, Truncate, lines};
use super::super::json::small;
use super::super::models::ModelVersion;
use super::super::queue::{Output, Work};
use super::super::state::State;
use super::super::streams::Piece;
use super::generate::{Completion, Draws, Order, events, whole};

/// A text to continue, as OpenAI's clients ask for it.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
    model: Option<String>,
    /// The beginning of the text, or a list of them.
    prompt: Texts,
    /// The maximum number of new tokens (default: 16).
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    seed: Option<u64>,
    stop: Option<Texts>,
    /// The number of texts for each prompt (default: 1).
    n: Option<usize>,
    /// Whether the text begins with the prompt.
    #[serde(default)]
    echo: bool,
    #[serde(default)]
    stream: bool,
    truncate: Option<Truncate>,
    /// What the server does not have must be missing, null, 0 or its neutral value.
    best_of: Option<u64>,
    logprobs: Option<u64>,
    suffix: Option<String>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Box<RawValue>>,
}

impl CompletionRequest {
    fn check(&self) -> Result<(), Failure> {
        let unknown = [
            ("best_of", self.best_of.is_some_and(|best| best as usize != self.n.unwrap_or(1))),
            ("logprobs", self.logprobs.is_some()),
            ("suffix", self.suffix.as_deref().is_some_and(|suffix| !suffix.is_empty())),
            ("presence_penalty", self.presence_penalty.is_some_and(|penalty| penalty != 0.0)),
            ("frequency_penalty", self.frequency_penalty.is_some_and(|penalty| penalty != 0.0)),
            (
                "logit_bias",
                self.logit_bias.as_ref().is_some_and(|bias| !["{}", "null"].contains(&bias.get())),
            ),
        ];
        match unknown.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Failure::invalid(format!("`{name}`: expected none, as the server has no such setting")))
            }
            None => Ok(()),
        }
    }
}

fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Continues texts, as OpenAI's completions
#[utoipa::path(
    post, path = "/v1/completions", request_body = CompletionRequest,
    responses((status = 200, description = "The new texts, or their tokens as server-sent events", body = Object, example = json!({"object": "text_completion", "model": "novel", "choices": [{"index": 0, "text": " was a", "logprobs": null, "finish_reason": "length"}], "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}))),
)]
pub(crate) async fn completions(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    let find = |value: &CompletionRequest, state: &State| state.models.find(value.model.as_deref());
    let (call, request) = Call::read(state, request, find).await?;
    request.check()?;
    let CompletionRequest { prompt, max_tokens, n, echo, stream, truncate, .. } = request;
    let CompletionRequest { temperature, top_k, top_p, seed, stop, .. } = request;
    let how = Draws { temperature, top_k, top_p, seed, stop };
    let (prompts, n) = (prompt.0, n.unwrap_or(1));
    let most = call.state.settings.texts;
    if !(1..=most).contains(&prompts.len().saturating_mul(n)) {
        return Err(Failure::invalid(format!("`prompt`, `n`: expected 1 to {most} texts a request")));
    }
    let order = |prompt: &str| Order {
        prompt: prompt.to_owned(),
        session: None,
        tokens: max_tokens.unwrap_or(16),
        truncate,
    };
    let (id, created) = (format!("cmpl-{:x}", getrandom::u64().unwrap_or_default()), seconds());
    let head = json!({"id": id, "object": "text_completion", "created": created, "model": call.model.name});
    let choice = |index: usize, text: &str, reason: Value| json!({"index": index, "text": text, "logprobs": null, "finish_reason": reason});
    let reason = |stopped: bool| Value::from(if stopped { "stop" } else { "length" });
    if stream {
        let [prompt] = &prompts[..] else {
            return Err(Failure::invalid("`stream`: expected one prompt and `n` of 1, got several texts"));
        };
        if n > 1 || echo {
            return Err(Failure::invalid("`stream`: expected `n` of 1 and no `echo`"));
        }
        let (pieces, truncated) = order(&prompt.text).start(&call, &how, 1.0).await?;
        let chunk = move |choice: Value| {
            let mut chunk = head.clone();
            chunk["choices"] = json!([choice]);
            chunk
        };
        let event = move |piece| match piece {
            Piece::Text(text) => chunk(choice(0, &text, Value::Null)).to_string(),
            Piece::Done { read, written, stopped } => {
                let mut last = chunk(choice(0, "", reason(stopped)));
                last["usage"] = usage(read, written);
                if truncated > 0 {
                    last["truncated"] = truncated.into();
                }
                format!("{last}\n\ndata: [DONE]")
            }
            Piece::Failed(failure) => failure.nested().json().to_string(),
        };
        return Ok(events(pieces, event));
    }
    let (mut choices, mut reads, mut writes, mut truncated_tokens) = (Vec::new(), 0, 0, 0);
    for prompt in &prompts {
        for at in 0..n {
            let how = Draws { seed: how.seed.map(|seed| seed.wrapping_add(at as u64)), ..how.clone() };
            let (pieces, truncated) = order(&prompt.text).start(&call, &how, 1.0).await?;
            let Completion { text, read, written, stopped } = whole(&call, pieces).await?;
            let text = if echo { format!("{}{text}", prompt.text) } else { text };
            choices.push(choice(choices.len(), &text, reason(stopped)));
            (reads, writes, truncated_tokens) =
                (reads + read, writes + written, truncated_tokens + truncated);
        }
    }
    let mut found = head;
    (found["choices"], found["usage"]) = (choices.into(), usage(reads, writes));
    if truncated_tokens > 0 {
        found["truncated"] = truncated_tokens.into();
    }
    call.answer(0, move || found).await
}

fn usage(read: usize, written: usize) -> Value {
    json!({"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written})
}

/// Texts whose vectors are wanted, as OpenAI's clients ask for them.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingRequest {
    model: Option<String>,
    /// A text, or a list of texts.
    input: Texts,
    /// `float` (the default) or `base64`.
    encoding_format: Option<Encoding>,
    /// Must be missing or the width of the vectors.
    dimensions: Option<usize>,
    truncate: Option<Truncate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    Float,
    Base64,
}

/// Returns a vector per text, as OpenAI's embeddings
#[utoipa::path(
    post, path = "/v1/embeddings", request_body = EmbeddingRequest,
    responses((status = 200, description = "One vector per text: the input of the last linear layer", body = Object, example = json!({"object": "list", "model": "films", "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}], "usage": {"prompt_tokens": 2, "total_tokens": 2}}))),
)]
pub(crate) async fn embeddings(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    let find = |value: &EmbeddingRequest, state: &State| state.models.find(value.model.as_deref());
    let (call, value) = Call::read(state, request, find).await?;
    let EmbeddingRequest { input, encoding_format, dimensions, truncate, .. } = value;
    let model = &call.model.model;
    if !model.embeds() {
        let task = call.model.task();
        return Err(Failure::invalid(format!(
            "model: expected a model with one vector per text (`classify`), got a model of `{task}`"
        )));
    }
    let texts = lines(model, None, Some(input), None)?;
    if let Some(at) = texts.iter().position(|text| model.is_empty(text)) {
        return Err(Failure::invalid(format!("`input[{at}]`: expected a text with a word, got none")));
    }
    let input = call.input(texts, truncate).await?;
    let found = call.ask(Work::Embed, &input).await?;
    let vectors: Vec<Vec<f32>> = found.into_iter().filter_map(Output::vector).collect();
    let width = vectors.first().map_or(0, Vec::len);
    if let Some(wanted) = dimensions.filter(|&wanted| wanted != width && !vectors.is_empty()) {
        return Err(Failure::invalid(format!(
            "`dimensions`: expected {width}, as the model has, got {wanted}"
        )));
    }
    let bytes = width * vectors.len() * 10;
    let truncated: usize = input.truncated.iter().sum();
    let model = call.model.name.clone();
    let answer = move || EmbeddingAnswer {
        object: "list",
        model,
        data: vectors.into_iter().enumerate().map(|one| Embedding::new(one, encoding_format)).collect(),
        usage: json!({"prompt_tokens": input.tokens, "total_tokens": input.tokens}),
        truncated: (truncated > 0).then_some(truncated),
    };
    call.answer(bytes, answer).await
}

#[derive(Serialize)]
struct EmbeddingAnswer {
    object: &'static str,
    model: String,
    data: Vec<Embedding>,
    usage: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<usize>,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    Coded(String),
}

impl Embedding {
    fn new((index, vector): (usize, Vec<f32>), format: Option<Encoding>) -> Self {
        let embedding = match format {
            Some(Encoding::Base64) => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Vector::Coded(BASE64_STANDARD.encode(bytes))
            }
            _ => Vector::Numbers(vector),
        };
        Self { object: "embedding", index, embedding }
    }
}

fn about(model: &ModelVersion) -> Value {
    json!({"id": model.name, "object": "model", "created": model.since, "owned_by": "unpadded"})
}

/// Lists the models, as OpenAI's clients expect it
#[utoipa::path(get, path = "/v1/models", responses((status = 200, description = "The models")))]
pub(crate) async fn models(Of(state): Of<Arc<State>>) -> Response {
    let data: Vec<Value> = state.models.all().iter().map(|model| about(model)).collect();
    small(&json!({"object": "list", "data": data}))
}

/// Returns a model, as OpenAI's clients expect it
#[utoipa::path(
    get, path = "/v1/models/{model}", params(("model" = String, Path)),
    responses((status = 200, description = "The model")),
)]
pub(crate) async fn model(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<Response, Failure> {
    Ok(small(&about(&*state.models.find(Some(&name))?)))
}
