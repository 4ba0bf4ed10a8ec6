//! The protocols of other servers: OpenAI, the Open Inference Protocol, and what HTTP itself allows.

use serde_json::json;

use super::*;

#[test]
fn clients_of_openai_find_what_they_expect() {
    let models = [("prose", trained(Task::Lm)), ("films", trained(Task::Classify))];
    let server = Running::new(Settings::default(), &models);
    let (_, list) = server.get("/v1/models");
    assert_eq!((&list["object"], &list["data"][1]["id"]), (&json!("list"), &json!("films")));
    assert_eq!((server.get("/v1/models/films").0, server.get("/v1/models/no").0), (200, 404));
    let ask =
        json!({"model": "prose", "prompt": ["The", "A"], "max_tokens": 5, "seed": 1, "n": 2, "user": "me"});
    let (status, found) = server.post("/v1/completions", &ask);
    assert_eq!((status, &found["object"]), (200, &json!("text_completion")), "{found}");
    assert_eq!(found["choices"].as_array().unwrap().len(), 4);
    assert_eq!(
        (&found["choices"][3]["index"], &found["usage"]["completion_tokens"]),
        (&json!(3), &json!(20))
    );
    assert_eq!(found["choices"][0]["finish_reason"], "length");
    let streamed = json!({"model": "prose", "prompt": "The", "max_tokens": 5, "seed": 1, "stream": true});
    let (_, _, body) = server.send("POST", "/v1/completions", "", &streamed.to_string());
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    let text = |event: &str| {
        serde_json::from_str::<Value>(event).ok()?["choices"][0]["text"].as_str().map(str::to_owned)
    };
    let joined: String = body.split("\n\n").filter_map(|event| text(event.strip_prefix("data: ")?)).collect();
    assert_eq!(found["choices"][0]["text"], joined);
    let (status, error) = server.post("/v1/completions", &json!({"prompt": "a", "logprobs": 3}));
    assert_eq!((status, &error["error"]["type"]), (422, &json!("validation")), "{error}");
    let unknown = server.post("/v1/chat/completions", &json!({})).1;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no such path"), "{unknown}");

    let ask = json!({"model": "films", "input": ["What a film!", "Dull."]});
    let (status, floats) = server.post("/v1/embeddings", &ask);
    assert_eq!(status, 200, "{floats}");
    let vector: Vec<f32> = floats["data"][1]["embedding"]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap() as f32)
        .collect();
    let model = Model::load(trained(Task::Classify)).unwrap();
    assert_eq!(vector, model.embed(&["Dull."]).unwrap()[0]);
    let mut coded = ask.clone();
    coded["encoding_format"] = "base64".into();
    let (_, coded) = server.post("/v1/embeddings", &coded);
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    use base64::Engine;
    assert_eq!(coded["data"][1]["embedding"], base64::prelude::BASE64_STANDARD.encode(bytes));
    let (status, error) = server.post("/v1/embeddings", &json!({"model": "prose", "input": "a"}));
    assert_eq!((status, &error["error_type"]), (422, &json!("validation")));
    assert_eq!(server.post("/v1/embeddings", &json!({"model": "films", "input": ["a", " "]})).0, 422);
}

#[test]
fn the_open_inference_protocol_answers_texts() {
    let server = Running::classifier(Settings::default());
    assert_eq!(server.get("/v2").1["name"], "unpadded");
    assert_eq!(server.get("/v2/models/films").1["inputs"][0]["name"], "text");
    assert_eq!((server.get("/v2/models/films/ready").0, server.get("/v2/health/ready").0), (200, 200));
    let tensor = json!({"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["Dull.", ""]});
    let (status, found) = server.post("/v2/models/films/infer", &json!({"id": "7", "inputs": [tensor]}));
    assert_eq!(
        (status, &found["id"], &found["model_name"], &found["outputs"][1]["shape"]),
        (200, &json!("7"), &json!("films"), &json!([2])),
        "{found}"
    );
    let (_, plain) = server.post("/predict", &json!({"text": "Dull."}));
    assert_eq!(found["outputs"][1]["data"][0], plain["answers"][0]["label"]);
    assert_eq!(found["outputs"][2]["data"][0], plain["answers"][0]["probability"]);
    let answer: Value = serde_json::from_str(found["outputs"][0]["data"][0].as_str().unwrap()).unwrap();
    assert_eq!(answer, plain["answers"][0]);
    let wrong = json!({"inputs": [{"name": "text", "shape": [3], "datatype": "BYTES", "data": ["a"]}]});
    assert_eq!(server.post("/v2/models/films/infer", &wrong).0, 422);
    assert_eq!(server.post("/v2/models/none/infer", &json!({"inputs": []})).0, 404);
}

#[test]
fn rows_of_numbers_are_answered_as_lines_of_their_file() {
    let rows: String = (0..80).map(|i| format!("{} 1:{} {}:1\n", i % 2, i % 3, 2 + i % 2)).collect();
    std::fs::write(file("rows.svm"), rows).unwrap();
    let mut config = Config::new(Task::Classify);
    config.data.train = Some(file("rows.svm").to_string_lossy().into_owned());
    config.training.epochs = 1;
    let path = file("rows.ckpt");
    save(&config, &path);
    let server = Running::new(Settings::default(), &[("rows", path.clone())]);
    let (status, found) = server.post("/predict", &json!({"rows": [[2, 0, 1], {"3": 1, "1": 2}, [0, 0, 0]]}));
    assert_eq!(status, 200, "{found}");
    let direct = Model::load(&path).unwrap().predict(&["1:2 3:1", "1:0"]).unwrap();
    let probability = |answer: &unpadded_recipes::Answer| match answer {
        unpadded_recipes::Answer::Label { probability, .. } => {
            serde_json::from_str::<Value>(&probability.to_string()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let answers = &found["answers"];
    assert_eq!(answers[0]["probability"], probability(&direct[0]));
    assert_eq!((&answers[0], &answers[2]["probability"]), (&answers[1], &probability(&direct[1])));
    for wrong in [json!({"x": 1}), json!({"0": 1}), json!([1e39])] {
        let (status, error) = server.post("/predict", &json!({"rows": [[1], wrong]}));
        let message = error["error"].as_str().unwrap();
        assert!(status == 422 && message.starts_with("`rows[1]"), "{message}");
    }
}

#[test]
fn http_is_answered_as_it_is_spoken() {
    let server = Running::classifier(Settings::default());
    let body = "{\"text\": \"good\"}";
    let old = format!("POST /predict HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(parted(&server.raw(old.as_bytes())).0, 200);
    let one = format!("POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let last = one.replace("host: x", "host: x\r\nconnection: close");
    let answers = server.raw(format!("{}{last}", one.repeat(9)).as_bytes());
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 10, "{answers}");
    assert_eq!(parted(&server.raw(b"nonsense\r\n\r\n")).0, 400);
    let (_, head, _) = server.send("GET", "/health/live", "x-request-id: mine\r\n", "");
    assert!(head.contains("x-request-id: mine"), "{head}");
}

#[test]
fn the_description_names_every_path_and_the_page_needs_no_other_address() {
    let server = Running::classifier(Settings::default());
    let (_, description) = server.get("/openapi.json");
    for path in ["/predict", "/generate", "/v1/embeddings", "/v2/models/{model}/infer", "/sessions/{session}"]
        .into_iter()
        .chain(["/ping", "/v2/health/live", "/v2/health/ready"])
    {
        assert!(description["paths"][path].is_object(), "{path}");
    }
    let operations = description["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|path| path.as_object().unwrap().values());
    let names: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{names:?}");
    let error = &description["paths"]["/predict"]["post"]["responses"]["default"]["content"];
    assert!(error["application/json"]["schema"]["properties"]["error_type"].is_object(), "{error}");
    let texts = &description["components"]["schemas"]["Texts"]["oneOf"];
    assert_eq!((&texts[0]["type"], &texts[1]["type"]), (&json!("string"), &json!("array")), "{description}");
    let (status, head, page) = server.send("GET", "/", "", "");
    assert!(status == 200 && head.contains("content-security-policy"), "{head}");
    let page = page.replace("http://www.w3.org/2000/svg", ""); // a name, and no address
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("src=\"/"),
        "an asset from elsewhere"
    );
    let (_, _, metrics) = server.send("GET", "/metrics", "", "");
    for name in
        ["unpadded_requests_total{", "unpadded_request_duration_seconds_bucket{", "unpadded_resident_bytes "]
    {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    let (_, info) = server.get("/info");
    assert_eq!((&info["models"][0]["task"], &info["limits"]["texts"]), (&json!("classify"), &json!(32)));
}
