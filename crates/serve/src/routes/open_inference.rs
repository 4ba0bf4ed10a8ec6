//! The routes below `/v2`: the Open Inference Protocol, which KServe and Triton speak. A model has one input, `text`.

use std::sync::Arc;

use axum::extract::{Path, Request, State as Of};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use unpadded_recipes::{Answer, AnswerJson};
use utoipa::ToSchema;

use super::super::call::Call;
use super::super::failure::Failure;
use super::super::input::{Text, Texts, lines};
use super::super::json::small;
use super::super::queue::{Output, Work};
use super::super::state::State;

/// Tensors of texts, by the Open Inference Protocol.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InferRequest {
    /// Returned with the answer.
    id: Option<String>,
    inputs: Vec<Tensor>,
}

/// A tensor of texts.
#[derive(Debug, Deserialize, ToSchema)]
struct Tensor {
    /// `text`.
    name: String,
    /// The number of texts, perhaps with a second extent of 1.
    shape: Vec<usize>,
    /// `BYTES`.
    datatype: String,
    data: Vec<Text>,
}

/// Describes the server, by the Open Inference Protocol
#[utoipa::path(get, path = "/v2", responses((status = 200, description = "The server")))]
pub(crate) async fn server() -> Response {
    small(&json!({"name": "unpadded", "version": env!("CARGO_PKG_VERSION"), "extensions": []}))
}

/// Describes a model, by the Open Inference Protocol
#[utoipa::path(
    get, path = "/v2/models/{model}", params(("model" = String, Path)),
    responses((status = 200, description = "The model with its inputs and outputs")),
)]
pub(crate) async fn model(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let model = state.models.find(Some(&name))?;
    let tensor = |name: &str, datatype: &str| json!({"name": name, "datatype": datatype, "shape": [-1]});
    let mut outputs = vec![tensor("answer", "BYTES")];
    if model.model.trained_by().data.target.has_one_label() && model.task() == "classify" {
        outputs.extend([tensor("label", "BYTES"), tensor("probability", "FP32")]);
    }
    let found = json!({
        "name": model.name, "platform": "unpadded",
        "inputs": [tensor("text", "BYTES")],
        "outputs": outputs,
    });
    Ok(small(&found))
}

/// Returns whether a model answers, by the Open Inference Protocol
#[utoipa::path(
    get, path = "/v2/models/{model}/ready", params(("model" = String, Path)),
    responses((status = 200, description = "The model answers")),
)]
pub(crate) async fn ready(Of(state): Of<Arc<State>>, Path(name): Path<String>) -> Result<Response, Failure> {
    state.ready()?;
    // Probes have no token, so the error does not list the models.
    let model = state.models.find(Some(&name)).map_err(|_| Failure::not_found("no such model"))?;
    Ok(small(&json!({"name": model.name, "ready": true})))
}

/// Answers texts, by the Open Inference Protocol
#[utoipa::path(
    post, path = "/v2/models/{model}/infer", params(("model" = String, Path)), request_body = InferRequest,
    responses((status = 200, description = "`answer` has the answer to each text as JSON; a classifier also has `label` and `probability`")),
)]
pub(crate) async fn infer(
    Of(state): Of<Arc<State>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let find = |_: &InferRequest, state: &State| state.models.find(Some(&name));
    let (call, InferRequest { id, inputs }) = Call::read(state, request, find).await?;
    let model = &call.model.model;
    let mut tensors = inputs.into_iter();
    let (Some(tensor), None) = (tensors.next(), tensors.next()) else {
        return Err(Failure::invalid("`inputs`: expected one tensor, `text`"));
    };
    let Tensor { name, shape, datatype, data } = tensor;
    if name != "text" || datatype != "BYTES" {
        let got = format!("got `{name}` of `{datatype}`");
        return Err(Failure::invalid(format!("`inputs[0]`: expected `text` of `BYTES`, {got}")));
    }
    let count = shape.iter().try_fold(1, |count: usize, &extent| count.checked_mul(extent));
    if count != Some(data.len()) {
        let got = format!("got {shape:?} for {} texts", data.len());
        return Err(Failure::invalid(format!("`inputs[0].shape`: expected the number of texts, {got}")));
    }
    let input = call.input(lines(model, None, Some(Texts(data)), None)?, None).await?;
    let answers = Output::answers(call.ask(Work::Predict(model.decoding().clone()), &input).await?);
    let shape = [answers.len()];
    let tensor = |name: &str, datatype: &str, data: Vec<Value>| json!({"name": name, "datatype": datatype, "shape": shape, "data": data});
    let whole = answers.iter().zip(&*input.texts).map(|(answer, text)| {
        serde_json::to_string(&AnswerJson { text, answer, echo: false, offset: 0 }).unwrap_or_default().into()
    });
    let mut outputs = vec![tensor("answer", "BYTES", whole.collect())];
    let labels = |answer: &Answer| match answer {
        Answer::Label { label, probability, .. } => Some((label.clone(), *probability)),
        Answer::Tags { label, .. } => label.clone(),
        Answer::Empty => Some((String::new(), 0.0)),
        _ => None,
    };
    // A text without a word has the label "" and the probability 0.
    if let Some(found) = answers.iter().map(labels).collect::<Option<Vec<_>>>() {
        // As text, an f32 has the digits that it has in the other answers.
        let number = |p: f32| serde_json::from_str(&p.to_string()).unwrap_or_default();
        let (labels, probabilities) =
            found.into_iter().map(|(label, p)| (Value::from(label), number(p))).unzip();
        outputs.extend([tensor("label", "BYTES", labels), tensor("probability", "FP32", probabilities)]);
    }
    let mut found = json!({"model_name": call.model.name, "outputs": outputs});
    if let Some(id) = id {
        found["id"] = id.into();
    }
    call.answer(input.bytes(), move || found).await
}
