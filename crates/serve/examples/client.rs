//! Asks `unpadded serve` for labels, and for a text that is streamed.

use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdout};

use serde_json::{Value, json};

fn post(url: &str, body: &Value) -> Result<ureq::Body, Box<dyn Error>> {
    let request = ureq::post(url).config().http_status_as_error(false).build();
    // .header("Authorization", "Bearer TOKEN")
    let mut answer = request.send_json(body)?;
    if !answer.status().is_success() {
        let error: Value = answer.body_mut().read_json()?;
        return Err(error["error"].to_string().into());
    }
    Ok(answer.into_body())
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let body = json!({"texts": ["What a film!", "Dull."]});
    let answer: Value = post(&format!("{server}/predict"), &body)?.read_json()?;
    for each in answer["answers"].as_array().into_iter().flatten() {
        println!("{} {}", each["label"], each["probability"]);
    }
    let body = json!({"model": "novel", "prompt": "It was a", "max_tokens": 20, "stream": true});
    let events = post(&format!("{server}/generate"), &body)?;
    for line in BufReader::new(events.into_reader()).lines() {
        if let Some(event) = line?.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(event)?;
            if let Some(error) = event["error"].as_str() {
                return Err(error.into());
            }
            print!("{}", event["text"].as_str().unwrap_or("\n"));
            stdout().flush()?;
        }
    }
    Ok(())
}
