//! The calls that a server makes, without a server: `cargo bench -p unpadded-serve --bench direct -- CHECKPOINT TEXTS`, where TEXTS
//! is a file of one text per line. A language model continues the first text instead.

#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::time::Instant;

use unpadded::predict::Sampling;
use unpadded_recipes::Model;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (path, texts) = (arguments.next().expect("a checkpoint"), arguments.next().expect("a file of texts"));
    let model = Model::load(path).unwrap();
    let texts = std::fs::read_to_string(texts).unwrap();
    let texts: Vec<&str> = texts.lines().filter(|text| !text.trim().is_empty()).collect();
    if model.task().continues_texts() {
        let (mut session, tokens) = (model.begin().unwrap(), 4000);
        let mut sampler = Sampling::default().sampler(1).unwrap();
        model.read(&mut session, texts[0], &mut || ControlFlow::Continue(())).unwrap();
        let started = Instant::now();
        model.write_each(&mut session, &mut sampler, tokens, &mut |_| ControlFlow::Continue(())).unwrap();
        println!("tokens/s of a session: {:.0}", tokens as f64 / started.elapsed().as_secs_f64());
        return;
    }
    let time = |text: &&str| {
        let started = Instant::now();
        model.predict(&[text]).unwrap();
        started.elapsed().as_secs_f64() * 1e6
    };
    let mut times: Vec<f64> = texts.iter().take(5000).map(time).skip(500).collect();
    times.sort_by(f64::total_cmp);
    println!(
        "direct call of one text: p50 {:.0} µs, p99 {:.0} µs",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    // Batches as the queue makes them at its default.
    let (mut batches, mut tokens): (Vec<Vec<&str>>, _) = (vec![Vec::new()], 0);
    for text in texts.iter().cycle().take(200_000) {
        tokens += model.length(text);
        if tokens > 16_384 {
            batches.push(Vec::new());
            tokens = model.length(text);
        }
        batches.last_mut().unwrap().push(text);
    }
    model.predict(&batches[0]).unwrap();
    let (started, mut count) = (Instant::now(), 0);
    for batch in batches.iter().skip(1).take_while(|_| started.elapsed().as_secs() < 8) {
        count += model.predict(batch).unwrap().len();
    }
    println!("answers/s in batches of 16384 tokens: {:.0}", count as f64 / started.elapsed().as_secs_f64());
}
