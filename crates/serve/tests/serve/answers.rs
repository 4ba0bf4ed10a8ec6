//! Answers of every task, and their bits among other requests.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use unpadded_recipes::AnswerJson;

use super::*;

/// Returns the answers of a model in this process, as JSON.
fn direct(path: &PathBuf, texts: &[&str]) -> Value {
    let answers = Model::load(path).unwrap().predict(texts).unwrap();
    let each =
        texts.iter().zip(&answers).map(|(text, answer)| AnswerJson { text, answer, echo: false, offset: 0 });
    serde_json::from_str(&serde_json::to_string(&each.collect::<Vec<_>>()).unwrap()).unwrap()
}

#[test]
fn a_classifier_answers_as_in_this_process() {
    let (path, server) = (trained(Task::Classify), Running::classifier(Settings::default()));
    let texts = ["What a film!", "", "Dull.", "  ", "\u{10fffd} 𝄞"];
    let (status, found) = server.post("/predict", &json!({"texts": texts}));
    assert_eq!((status, &found["model"]), (200, &json!("films")));
    assert_eq!(found["answers"], direct(&path, &texts));
    assert_eq!(
        (&found["answers"][1], &found["answers"][3]),
        (&json!({"answer": null}), &json!({"answer": null}))
    );
    let (_, one) = server.post("/predict", &json!({"text": texts[0], "model": "films"}));
    assert_eq!(one["answers"][0], found["answers"][0]);
    let (status, none) = server.post("/predict", &json!({"texts": []}));
    assert_eq!((status, &none["answers"]), (200, &json!([])));
    assert!(server.post("/invocations", &json!({"instances": texts})).1["answers"] == found["answers"]);
}

#[test]
fn the_answers_of_256_connections_have_the_bits_of_one() {
    let server =
        Running::classifier(Settings { batch_wait: Duration::from_micros(500), ..Settings::default() });
    let text =
        |i: usize| "a film that nobody would call dull or good ".repeat(1 + i % 13) + &"x ".repeat(i % 5);
    let ask =
        |i: usize| server.send("POST", "/predict", "", &json!({"texts": [text(i), text(i + 1)]}).to_string());
    let alone: Vec<String> = (0..32).map(|i| ask(i).2).collect();
    thread::scope(|scope| {
        let all: Vec<_> = (0..256).map(|i| scope.spawn(move || ask(i % 32))).collect();
        for (i, joined) in all.into_iter().enumerate() {
            let (status, _, body) = joined.join().unwrap();
            assert_eq!((status, &body), (200, &alone[i % 32]), "{i}");
        }
    });
    let batches = metric(&server, "unpadded_batch_sequences_count");
    assert!(batches < 288.0, "{batches} batches for 288 requests: none were joined");
}

#[test]
fn a_tagger_answers_with_spans_in_code_points() {
    let server = Running::new(Settings::default(), &[("tags", trained(Task::Tag))]);
    let text = "  𝄞 naïve\nin Paris";
    let (status, found) = server.post("/predict", &json!({"text": text}));
    assert_eq!(status, 200, "{found}");
    let answer = &found["answers"][0];
    let characters: Vec<char> = text.chars().collect();
    assert_eq!(answer["words"], json!(["𝄞", "naïve", "in", "Paris"]));
    for (word, span) in answer["words"].as_array().unwrap().iter().zip(answer["spans"].as_array().unwrap()) {
        let [start, end] = [0, 1].map(|end| span[end].as_u64().unwrap() as usize);
        assert_eq!(characters[start..end].iter().collect::<String>(), word.as_str().unwrap());
    }
    assert_eq!(answer["tags"].as_array().unwrap().len(), 4);
    // Offsets are of the whole text, also after its beginning was cut.
    let server =
        Running::new(Settings { text_tokens: 2, ..Settings::default() }, &[("tags", trained(Task::Tag))]);
    let (_, truncated) = server.post("/predict", &json!({"text": text, "truncate": "left"}));
    let answer = &truncated["answers"][0];
    assert_eq!(
        (&answer["words"], &answer["spans"]),
        (&json!(["in", "Paris"]), &json!([[10, 12], [13, 18]])),
        "{truncated}"
    );
}

#[test]
fn a_translator_takes_the_beam_of_the_request() {
    let server = Running::new(Settings::default(), &[("en-de", trained(Task::Translate))]);
    let (status, found) = server.post("/predict", &json!({"texts": ["one 3 two"]}));
    assert_eq!((status, found["answers"][0]["found"].is_string()), (200, true), "{found}");
    let (_, best) = server.post("/predict", &json!({"text": "one 3 two", "beam": 4, "n_best": 3}));
    assert_eq!(best["answers"][0]["best"].as_array().unwrap().len(), 3, "{best}");
    let (_, generated) = server.post("/generate", &json!({"prompt": "one 3 two", "beam": 4, "n_best": 3}));
    assert_eq!(generated["best"], best["answers"][0]["best"]);
    let (status, error) = server.post("/predict", &json!({"text": "one", "beam": 1000}));
    assert_eq!((status, &error["error_type"]), (422, &json!("validation")));
}

/// Returns the data of server-sent events.
fn events(body: &str) -> Vec<Value> {
    let data = body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or(Value::String(data.to_owned()))).collect()
}

#[test]
fn a_stream_has_the_text_of_the_model() {
    let path = trained(Task::Lm);
    let server = Running::new(Settings::default(), &[("prose", path.clone())]);
    let how = json!({"prompt": "The", "max_tokens": 40, "seed": 7, "temperature": 0.9});
    let (status, whole) = server.post("/generate", &how);
    let sampling = unpadded::predict::Sampling::default().temperature(0.9);
    let text = Model::load(&path).unwrap().write("The", sampling, 7, 40).unwrap();
    assert_eq!((status, &whole["text"], &whole["tokens"]), (200, &json!(text), &json!(40)));
    let mut streamed = how.clone();
    streamed["stream"] = true.into();
    let (_, head, body) = server.send("POST", "/generate", "", &streamed.to_string());
    assert!(head.contains("text/event-stream"), "{head}");
    let events = events(&body);
    let joined: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    assert_eq!((joined, &events.last().unwrap()["done"]), (text.clone(), &json!(true)));
    // A stop ends the text before it, also if it is in two pieces.
    let stop: String = text.chars().skip(10).take(3).collect();
    let before = text.split(&stop).next().unwrap();
    let mut stopped = how.clone();
    stopped["stop"] = stop.clone().into();
    let (_, found) = server.post("/generate", &stopped);
    assert_eq!((&found["text"], &found["stopped"]), (&json!(before), &json!(true)), "{stop:?} of {text:?}");
    let (status, searched) = server.post("/generate", &json!({"prompt": "The", "max_tokens": 5, "beam": 3}));
    assert_eq!((status, searched["text"].is_string()), (200, true), "{searched}");
    let (status, error) = server.post("/predict", &json!({"text": "The", "n_best": 2}));
    assert_eq!(status, 422, "{error}");
    let (_, predicted) = server.post("/predict", &json!({"text": "The"}));
    assert_eq!(predicted["answers"], direct(&path, &["The"]));
}

/// Texts over the limit are never cut in silence, also by searches and streams.
#[test]
fn a_prompt_that_is_cut_says_so() {
    let models = [("prose", trained(Task::Lm)), ("films", trained(Task::Classify))];
    let server = Running::new(Settings { text_tokens: 10, ..Settings::default() }, &models);
    let ask = |how: Value| {
        let mut body = json!({"prompt": "The film is good", "truncate": "right", "max_tokens": 3});
        body.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        body
    };
    for how in [json!({}), json!({"beam": 2})] {
        assert_eq!(server.post("/generate", &ask(how.clone())).1["truncated"], 6, "{how}");
    }
    let (_, _, body) = server.send("POST", "/generate", "", &ask(json!({"stream": true})).to_string());
    assert_eq!(events(&body).last().unwrap()["truncated"], 6, "{body}");
    let (_, _, body) = server.send("POST", "/v1/completions", "", &ask(json!({"stream": true})).to_string());
    assert!(body.contains("\"truncated\":6"), "{body}");
    assert_eq!(server.post("/generate", &json!({"prompt": "The film is good"})).0, 413);
    assert_eq!(server.post("/generate", &json!({"prompt": "The", "max_tokens": 5000})).0, 422);
}

/// Texts of other models do not wait for a search. Its prompt is long, because a model may end its own text at once.
#[test]
fn a_search_keeps_no_other_model_waiting() {
    let models = [("prose", trained(Task::Lm)), ("films", trained(Task::Classify))];
    let deadline = Duration::from_secs(300); // the model is slow without optimisation
    let settings = Settings { text_tokens: 1_000_000, deadline, ..Settings::default() };
    let server = Running::new(settings, &models);
    let prompt = "The film is good. ".repeat(10_000);
    let slow = json!({"model": "prose", "prompt": prompt, "beam": 2, "max_tokens": 1});
    thread::scope(|scope| {
        let search = scope.spawn(|| server.post("/generate", &slow).0);
        while metric(&server, "unpadded_batch_sequences_count") == 0.0 && !search.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(server.post("/predict", &json!({"model": "films", "text": "good"})).0, 200);
        assert!(!search.is_finished(), "the search ended before the answer");
        assert_eq!(search.join().unwrap(), 200);
    });
}

#[test]
fn a_model_of_several_columns_reads_lists() {
    let row = |i: usize| format!("title {0},body {0},{1}\n", i % 5, ["good", "bad"][i % 2]);
    let rows = format!("title,body,label\n{}", (0..80).map(row).collect::<String>());
    std::fs::write(file("columns.csv"), rows).unwrap();
    let mut config = Config::new(Task::Classify);
    config.data.train = Some(file("columns.csv").to_string_lossy().into_owned());
    (config.data.text, config.training.epochs) = (vec!["title".into(), "body".into()], 1);
    let path = file("columns.ckpt");
    save(&config, &path);
    let server = Running::new(Settings::default(), &[("columns", path.clone())]);
    let (status, found) = server.post("/predict", &json!({"texts": [["title 1", "body 1"], ["", ""]]}));
    assert_eq!((status, &found["answers"]), (200, &direct(&path, &["title 1\tbody 1", "\t"])), "{found}");
    let (status, error) = server.post("/predict", &json!({"texts": ["title 1"]}));
    assert!(status == 422 && error["error"].as_str().unwrap().contains("a list of 2 texts"), "{error}");
}

#[test]
fn a_session_continues_where_it_was() {
    let path = trained(Task::Lm);
    let settings = Settings { sessions: 2, session_time: Duration::from_secs(3), ..Settings::default() };
    let server = Running::new(settings, &[("prose", path)]);
    let begin = || server.send("POST", "/sessions", "", "");
    let (status, _, body) = begin();
    let begun: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &begun["expires_in"]), (201, &json!(3)));
    let name = begun["session"].as_str().unwrap();
    let greedy = |session: Option<&str>, prompt: &str, tokens: usize| {
        let body = json!({"prompt": prompt, "session": session, "max_tokens": tokens, "temperature": 0});
        server.post("/generate", &body).1["text"].as_str().unwrap().to_owned()
    };
    let whole = greedy(None, "The film", 20);
    let parts =
        [("The", 0), (" film", 8), ("", 12)].map(|(prompt, tokens)| greedy(Some(name), prompt, tokens));
    assert_eq!(parts.concat(), whole);
    assert_eq!(server.get(&format!("/sessions/{name}")).1["tokens"], json!("The film".len() + 20));
    assert_eq!(begin().0, 201);
    let (status, head, _) = begin();
    assert!(status == 429 && head.contains("retry-after: 1"), "{head}");
    assert_eq!(server.send("DELETE", &format!("/sessions/{name}"), "", "").0, 204);
    assert_eq!(server.send("DELETE", &format!("/sessions/{name}"), "", "").0, 404);
    assert_eq!(server.post("/generate", &json!({"session": name, "prompt": "a"})).0, 404);
    thread::sleep(Duration::from_secs(4));
    assert!(begin().0 == 201 && begin().0 == 201, "old sessions have not ended");
}
