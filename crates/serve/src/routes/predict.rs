//! `POST /predict`, and the same as `POST /invocations` for SageMaker.

use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::response::Response;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use unpadded_recipes::{Answer, AnswerJson, DecodingConfig};
use utoipa::ToSchema;

use super::super::bound::WIDEST;
use super::super::call::Call;
use super::super::failure::Failure;
use super::super::input::{Input, Row, Text, Texts, Truncate, lines};
use super::super::models::ModelVersion;
use super::super::queue::{Output, Work};
use super::super::state::State;

/// Texts to answer, or rows of numbers for a model that was trained on them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PredictRequest {
    /// The name of the model; the first model without it.
    model: Option<String>,
    /// One text. A model of pairs or of several columns takes a list of texts in place of a text.
    text: Option<Text>,
    /// One or more texts; `inputs` and `instances` are other names of this field.
    #[serde(alias = "inputs", alias = "instances")]
    texts: Option<Texts>,
    /// Rows of numbers: lists, or objects from index to number.
    rows: Option<Vec<Row>>,
    /// The end that is cut of a text over the limit; without it, such a text is refused.
    truncate: Option<Truncate>,
    /// Beam width of a translation.
    beam: Option<usize>,
    /// The number of translations of each text; a search without `beam` is at least as wide.
    n_best: Option<usize>,
    /// Length penalty of a translation.
    length_penalty: Option<f64>,
}

/// The answers of a request with their texts.
struct Answers {
    model: Arc<ModelVersion>,
    input: Input,
    answers: Vec<Answer>,
}

impl Serialize for Answers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { model, input, answers } = self;
        let places = input.truncated.iter().zip(&input.offsets);
        let all = answers.iter().zip(&*input.texts).zip(places);
        let all = all.map(|((answer, text), (&truncated, &offset))| {
            let answer = AnswerJson { text, answer, echo: false, offset };
            One { answer, truncated }
        });
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("model", &model.name)?;
        map.serialize_entry("answers", &all.collect::<Vec<_>>())?;
        map.end()
    }
}

/// The answer to one text.
#[derive(Serialize)]
struct One<'a> {
    #[serde(flatten)]
    answer: AnswerJson<'a>,
    /// The number of tokens that were cut.
    #[serde(skip_serializing_if = "is_zero")]
    truncated: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Answers texts with labels, tags or translations
#[utoipa::path(
    post, path = "/predict", request_body = PredictRequest,
    responses((status = 200, description = "One answer per text", body = Object, example = json!({"model": "films", "answers": [{"label": "positive", "probability": 0.93, "probabilities": {"negative": 0.07, "positive": 0.93}}]}))),
)]
pub(crate) async fn predict(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    let find = |value: &PredictRequest, state: &State| state.models.find(value.model.as_deref());
    let (call, value) = Call::read(state, request, find).await?;
    let PredictRequest { text, texts, rows, truncate, beam, n_best, length_penalty, .. } = value;
    let decoding = decoding(&call.model, beam, n_best, length_penalty)?;
    let input = call.input(lines(&call.model.model, text, texts, rows)?, truncate).await?;
    let answers = Output::answers(call.ask(Work::Predict(decoding), &input).await?);
    let found = Answers { model: call.model.clone(), input, answers };
    call.answer(found.input.bytes(), move || found).await
}

/// Answers texts, as SageMaker calls it
#[utoipa::path(
    post, path = "/invocations", request_body = PredictRequest,
    responses((status = 200, description = "One answer per text", body = Object, example = json!({"model": "films", "answers": [{"label": "positive", "probability": 0.93, "probabilities": {"negative": 0.07, "positive": 0.93}}]}))),
)]
pub(crate) async fn invocations(state: Of<Arc<State>>, request: Request) -> Result<Response, Failure> {
    predict(state, request).await
}

/// Returns the settings of decoding of a model, changed by a request.
pub(super) fn decoding(
    model: &ModelVersion,
    beam: Option<usize>,
    n_best: Option<usize>,
    length_penalty: Option<f64>,
) -> Result<DecodingConfig, Failure> {
    let mut how = model.model.decoding().clone();
    if beam.is_none() && n_best.is_none() && length_penalty.is_none() {
        return Ok(how);
    }
    if model.task() != "translate" {
        let task = model.task();
        return Err(Failure::invalid(format!(
            "`beam`, `n_best`, `length_penalty`: expected a model of `translate`, got a model of `{task}`"
        )));
    }
    how.n_best = n_best.unwrap_or(how.n_best);
    how.beam = beam.unwrap_or(how.beam.max(how.n_best));
    how.length_penalty = length_penalty.unwrap_or(how.length_penalty);
    if !(1..=WIDEST).contains(&how.beam) || !(1..=how.beam).contains(&how.n_best) {
        let (beam, n_best) = (how.beam, how.n_best);
        return Err(Failure::invalid(format!(
            "`beam`: expected 1 to {WIDEST}, and `n_best` of 1 to `beam`, got {beam} and {n_best}"
        )));
    }
    Ok(how)
}
