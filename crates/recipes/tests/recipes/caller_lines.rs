//! An error names the line of the user's code, in this crate too; `tests/it/caller_lines.rs` of the engine checks the sources.

use std::ops::ControlFlow;
use std::path::Path;

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Field, Loader, Samples, Vocabulary};
use unpadded::predict::{Beam, Sampling};
use unpadded_recipes::{Aligner, Config, Model, Space, Task, Value, Weigher};

use crate::calls::Calls;

#[test]
fn the_error_of_a_call_names_its_line() {
    let calls = &mut Calls::default();
    let mut config = Config::new(Task::Classify);
    calls.at("Config::from_toml", || Config::from_toml("seed = 1.5"));
    calls.at("Config::load", || Config::load("no such file.toml"));
    calls.at("Config::set", || config.set("nothing", &Value::Int(1)));
    config.data.train = Some("no such file".into());
    calls.at("lib::prepare", || unpadded_recipes::prepare(&config).map(drop));
    calls.at("lib::check_data", || unpadded_recipes::check_data(&config).map(drop));
    let path = "no such file";
    calls.at("lib::prepare_resumed", || unpadded_recipes::prepare_resumed(&config, path).map(drop));
    calls
        .at("lib::memory_limit", || unpadded_recipes::memory_limit(&config, Some(Path::new(path))).map(drop));
    calls.at("lib::prepare_within", || unpadded_recipes::prepare_within(&config, None, 1).map(drop));
    calls.at("Config::starting_from", || Config::starting_from(path, None));
    calls.at("lib::preview", || unpadded_recipes::preview(&config).map(drop));
    config.model.layers = 0;
    calls.at("Config::check", || config.check());
    calls.at("Space::of", || Space::of(&config).map(drop));
    calls.at("Space::load", || Space::load("no such file.toml").map(drop));
    let space = Space::of(&Config::new(Task::Classify)).unwrap();
    // Its words are given, and there is no pooling.
    calls.at("Space::draw", || space.draw(&Config::new(Task::Tag), 1, 1).map(drop));
    calls.at("Model::load", || Model::load("no such file").map(drop));
    calls.at("Model::new", || Model::new(Checkpoint::default()).map(drop));
    calls.at("Aligner::new", || Aligner::new(&config, Checkpoint::default(), 1).map(drop));
    calls.at("Weigher::new", || Weigher::new(Checkpoint::default(), 1).map(drop));

    // Not trained: its parameters are as they start.
    let config = Config::new(Task::Classify);
    let mut trainer = unpadded_recipes::prepare(&config).unwrap().trainer;
    let checkpoint = trainer.for_inference().unwrap();
    let mut other = config.clone();
    other.data.test = Some("no such file".into());
    let model = Model::new(checkpoint.clone()).unwrap();
    let mut odd = checkpoint.clone();
    odd.notes.insert("threshold rule".to_owned(), "none".to_owned());
    let samples: Samples = [vec![Field::Int(1)]].into_iter().collect();
    let none = Loader::new(samples, &["words"]).unwrap();
    calls.at("lib::finished", || unpadded_recipes::finished(odd, &none).map(drop));
    calls.at("lib::test_data", || unpadded_recipes::test_data(&other, &model).map(drop));
    calls.at("lib::scores", || unpadded_recipes::scores(&other, &model).map(drop));
    calls.at("lib::scores_with", || unpadded_recipes::scores_with(&other, &model, &[]).map(drop));
    calls.at("lib::compare", || unpadded_recipes::compare(&[(&other, &model)]).map(drop));
    calls.at("Model::write", || model.write("a", Sampling::default(), 1, 1).map(drop));
    let mut writer = unpadded_recipes::prepare(&Config::new(Task::Lm)).unwrap().trainer;
    let writer = Model::new(writer.for_inference().unwrap()).unwrap();
    let mut session = writer.begin().unwrap();
    calls.at("Model::search_memory", || writer.search_memory(0).map(drop));
    let mut sampler = Sampling::default().sampler(1).unwrap();
    calls.at("Model::begin", || model.begin().map(drop));
    calls.at("Model::read", || model.read(&mut session, "a", &mut || ControlFlow::Continue(())).map(drop));
    calls.at("Model::write_each", || {
        model.write_each(&mut session, &mut sampler, 1, &mut |_| ControlFlow::Break(())).map(drop)
    });
    calls.at("Model::search", || model.search("a", 1, &Beam::new(1)).map(drop));
    calls.at("Weigher::weigh", || Weigher::new(checkpoint.clone(), 1)?.weigh("a", "nothing").map(drop));
    let mut other_task = checkpoint.clone();
    other_task.notes.insert("task".to_owned(), "lm".to_owned());
    let load = |checkpoint: &Checkpoint| Model::new(checkpoint.clone()).unwrap();
    calls.at("Model::join", || load(&checkpoint).join(load(&other_task)).map(drop));
    let config = Config::new(Task::Tag);
    let mut without = unpadded_recipes::prepare(&config).unwrap().trainer.for_inference().unwrap();
    without.vocabularies.clear();
    let model = Model::new(without).unwrap();
    calls.at("Model::questions", || model.questions(&config, "no such file").map(drop));
    calls.at("Model::predict", || model.predict(&["a"]).map(drop));
    calls.at("Model::predict_by", || model.predict_by(&["a"], model.decoding()).map(drop));
    calls.at("Model::embed", || model.embed(&["a"]).map(drop));

    let text = std::env::temp_dir().join(format!("unpadded-caller-lines-{}.ckpt", std::process::id()));
    std::fs::write(&text, "a text that is no checkpoint, and long enough to be one\n").unwrap();
    calls.at("Model::load", || Model::load(&text).map(drop));
    std::fs::remove_file(text).unwrap();
    let path = std::env::temp_dir().join(format!("unpadded-caller-lines-{}.tsv", std::process::id()));
    std::fs::write(&path, "eins\tone\nzwei\ttwo\ndrei\tthree\nvier\tfour\n".repeat(9)).unwrap();
    let mut config = Config::new(Task::Translate);
    (config.model.embedding, config.model.hidden) = (4, 4);
    config.data.train = Some(path.to_string_lossy().into_owned());
    config.data.dev = config.data.train.clone();
    let mut checkpoint = unpadded_recipes::prepare(&config).unwrap().trainer.for_inference().unwrap();
    let known = checkpoint.vocabularies.get_mut("sources").unwrap();
    // Without a token for those that are not known.
    let names: Vec<String> = (0..known.len()).map(|number| format!("name{number}")).collect();
    *known = Vocabulary::labels(names.iter().map(String::as_str)).unwrap();
    calls.at("Aligner::align", || {
        Aligner::new(&config, checkpoint.clone(), 1)?.align("eins", "one").map(drop)
    });
    std::fs::remove_file(path).unwrap();
    insta::assert_snapshot!("messages", std::mem::take(calls).messages());
}
