//! Hugging Face tokenizers (`fixtures/make_tokenizers.py`): the numbers that the package `tokenizers` finds in Python, and
//! recipes that cut by them.

// Most tests and their imports are of the feature.
#![cfg_attr(not(feature = "tokenizers"), allow(unused_imports))]

use std::path::{Path, PathBuf};

use unpadded::Result;
use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Limits, Tokenizer, Vocabulary};
use unpadded::train::{Progress, Until};
use unpadded_recipes::{Answer, Config, Model, Task, Value, prepare, test_data};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recipes/fixtures").join(name)
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn without_the_feature_an_error_names_it() {
    let expected = "expected a build with the feature `tokenizers` (`--features tokenizers`), got a build without this feature";
    let text = Tokenizer::hugging_face(fixture("tokenizer_bpe.json")).unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
    // The name as in a checkpoint.
    let text = Tokenizer::from_name("tokenizer.json {}").unwrap_err().to_string();
    assert!(text.starts_with(&format!("Hugging Face tokenizer `tokenizer.json`: {expected}")), "{text}");
}

#[cfg(feature = "tokenizers")]
const ALL: [&str; 3] = ["bpe", "wordpiece", "unigram"];

#[cfg(feature = "tokenizers")]
fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::hugging_face(fixture(&format!("tokenizer_{name}.json"))).unwrap()
}

#[cfg(feature = "tokenizers")]
#[test]
fn numbers_and_texts_are_those_of_the_package() -> Result<()> {
    let json = std::fs::read_to_string(fixture("tokenizers.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let list = |name: &str| found[name].as_array().unwrap();
    for name in ALL {
        let tokenizer = tokenizer(name);
        assert_eq!(Tokenizer::from_name(&tokenizer.name())?, tokenizer);
        // The package finds special tokens in texts; here they are text.
        let special = |text: &&str| text.contains("[SEP]");
        let all = || list("texts").iter().map(|text| text.as_str().unwrap());
        let texts = all().filter(|text| !special(text));
        let spelled: Vec<_> = all().filter(special).flat_map(|text| tokenizer.tokens(text)).collect();
        assert!(!spelled.is_empty() && !spelled.iter().any(|token| ["<s>", "[SEP]"].contains(&&**token)));
        let vocabulary = tokenizer.vocabulary(texts, &Limits::default().min_count(1000))?;
        let file = std::fs::read_to_string(fixture(&format!("tokenizer_{name}.json"))).unwrap();
        let file: serde_json::Value = serde_json::from_str(&file).unwrap();
        if let Some(tokens) = file["model"]["vocab"].as_object() {
            assert_eq!(vocabulary.len(), tokens.len());
            assert!(tokens.iter().all(|(token, id)| vocabulary.id(token) == id.as_i64()));
        }
        let mut counted = vec![0u64; vocabulary.len()];
        let expected = all().zip(list(name)).zip(list(&format!("{name} decoded")));
        for ((text, ids), decoded) in expected.filter(|((text, _), _)| !special(text)) {
            let expected: Vec<i64> = ids.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
            assert_eq!(vocabulary.ids(tokenizer.tokens(text))?, expected, "{name}: {text:?}");
            let tokens = expected.iter().filter_map(|&id| vocabulary.token(id));
            assert_eq!(tokenizer.join(tokens), decoded.as_str().unwrap(), "{name}: {text:?}");
            expected.iter().for_each(|&id| counted[id as usize] += 1);
        }
        assert!((0..).zip(counted).all(|(id, count)| vocabulary.count(id) == count));
    }
    Ok(())
}

#[cfg(feature = "tokenizers")]
#[test]
fn specials_that_a_file_lacks_come_behind() -> Result<()> {
    let limits = Limits::default().specials(["<s>", "</s>", Vocabulary::UNKNOWN].map(String::from).to_vec());
    let vocabulary = |name: &str| tokenizer(name).vocabulary([""; 0], &limits);
    let (bpe, piece) = (vocabulary("bpe")?, vocabulary("wordpiece")?);
    assert_eq!((bpe.special("<s>")?, bpe.special("</s>")?, bpe.unknown()), (0, 1, None));
    let last = tokenizer("wordpiece").vocabulary([""; 0], &Limits::default())?.len() as i64;
    assert_eq!((piece.special("<s>")?, piece.special("</s>")?), (last, last + 1));
    assert_eq!((piece.unknown(), piece.id(Vocabulary::UNKNOWN)), (piece.id("[UNK]"), None));
    Ok(())
}

#[cfg(feature = "tokenizers")]
#[test]
fn what_is_no_tokenizer_is_refused() {
    let path = std::env::temp_dir().join(format!("unpadded-tokenizer-{}.json", std::process::id()));
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let message = Tokenizer::hugging_face(&path).unwrap_err().to_string();
        message.replace(&path.display().to_string(), "x.json")
    };
    let expected = "tokenizer `x.json`: expected a `tokenizer.json` of Hugging Face's, got ";
    for (text, got) in
        [("words", "no JSON ("), ("{\"a\": 1}", "JSON without a `model`"), ("[]", "JSON without")]
    {
        assert!(message(text).starts_with(&format!("{expected}{got}")), "{}", message(text));
    }
    let other = message("{\"model\": {\"type\": \"Trie\", \"vocab\": {}}}");
    let types =
        "expected a model of type `BPE`, `Unigram`, `WordLevel`, `WordPiece`, got a model of type \"Trie\"";
    assert!(other.contains(types), "{other}");
    let tokenizer_file = |vocab: &str| {
        message(&format!(
            "{{\"model\": {{\"type\": \"WordLevel\", \"unk_token\": \"?\", \"vocab\": {vocab}}}}}"
        ))
    };
    assert!(
        tokenizer_file("{\"a\": 0, \"?\": 0}").contains("expected one token per id"),
        "{}",
        tokenizer_file("{\"a\": 0, \"?\": 0}")
    );
    assert!(tokenizer_file("{\"a\": 0, \"?\": 4000000000}").contains("expected tokens numbered from 0 on"));
    assert!(
        tokenizer_file("{\"a\": 0}").contains("expected a token for unknown text"),
        "{}",
        tokenizer_file("{\"a\": 0}")
    );
    std::fs::remove_file(&path).ok();
    let missing = Tokenizer::hugging_face("no/tokenizer.json").unwrap_err().to_string();
    assert!(missing.contains("tokenizer `no/tokenizer.json`"), "{missing}");

    // Any damage is an error, or another tokenizer.
    let mut random = crate::models::Random(1);
    for name in ALL {
        let json = std::fs::read(fixture(&format!("tokenizer_{name}.json"))).unwrap();
        for _ in 0..crate::thorough::times(60) {
            let mut json = json.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(json.len());
                match random.below(3) {
                    0 => json.truncate(at.max(1)),
                    1 => drop(json.drain(at..(at + 1 + random.below(9)).min(json.len()))),
                    _ => json[at] = b"0123456789\"{}[],:ax"[random.below(19)],
                }
                if json.is_empty() {
                    json.push(b'{');
                }
            }
            std::fs::write(&path, &json).unwrap();
            if let Ok(tokenizer) = Tokenizer::hugging_face(&path) {
                let tokens: Vec<_> = tokenizer.tokens("A fine film 한!").collect();
                tokenizer.join(&tokens);
            }
        }
    }
    std::fs::remove_file(path).ok();
}

/// Trains, takes the tokenizer's file away, and loads the model.
#[cfg(feature = "tokenizers")]
fn trained(name: &str, mut config: Config) -> Result<(Model, PathBuf)> {
    let own = std::env::temp_dir().join(format!("unpadded-tokenizer-{}-{name}.json", std::process::id()));
    std::fs::copy(fixture(&format!("tokenizer_{name}.json")), &own).unwrap();
    config.set("text.tokenizer", &Value::Text(own.display().to_string()))?;
    let prepared = prepare(&config)?;
    let path = own.with_extension("ckpt");
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(config.training.epochs))?;
    trainer.for_inference()?.save(&path)?;
    std::fs::remove_file(own).unwrap();
    Ok((Model::load(&path)?, path))
}

#[cfg(feature = "tokenizers")]
#[test]
fn recipes_cut_by_the_file_and_need_it_no_more() -> Result<()> {
    let mut config = Config::new(Task::Classify);
    (config.model.hidden, config.model.embedding, config.training.epochs) = (16, 8, 1);
    config.model.pool = unpadded_recipes::Pooling::Attention; // its answers have the tokens
    let (model, path) = trained("wordpiece", config.clone())?;
    assert_eq!(model.tokenizer(), Some(&tokenizer("wordpiece")));
    let text = "Nobody would call it dull.";
    let answers = model.predict(&[text, "", "\u{10fffd}"])?;
    let Answer::Label { words, .. } = &answers[0] else { panic!("{answers:?}") };
    assert!(words.iter().map(|(word, _)| word.as_str()).eq(tokenizer("wordpiece").tokens(text)));
    config.data.test = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/reviews/dev.tsv").into());
    assert!(model.predictor().evaluate(&*test_data(&config, &model)?.data)?.get("accuracy").is_some());
    assert!(Checkpoint::load(&path)?.notes["tokens"].starts_with("tokenizer.json {"));
    std::fs::remove_file(path).ok();

    let text = std::env::temp_dir().join(format!("unpadded-tokenizer-{}.txt", std::process::id()));
    std::fs::write(&text, "A film that sings.\n".repeat(100)).unwrap();
    let mut config = Config::new(Task::Lm);
    config.data.train = Some(text.display().to_string());
    (config.model.hidden, config.model.dropout, config.training.epochs) = (32, 0.0, 15);
    config.training.rate = 2e-2;
    let (model, path) = trained("bpe", config)?;
    let answer = model.predict(&["A film that"])?.remove(0).to_string();
    assert!(answer.starts_with(" sings.\nA film that sings.\n"), "{answer:?}");
    std::fs::remove_file(path).ok();

    let lines: String =
        (0..40).map(|i| format!("a film {i}\tthe picture {}\n", ["is dull", "was fine"][i % 2])).collect();
    std::fs::write(&text, lines).unwrap();
    let mut config = Config::new(Task::Translate);
    config.data.train = Some(text.display().to_string());
    (config.model.hidden, config.model.embedding, config.model.dropout) = (24, 16, 0.0);
    (config.training.epochs, config.training.rate, config.training.batch) = (20, 1e-2, 8);
    for name in ["unigram", "wordpiece", "bpe"] {
        let (model, path) = trained(name, config.clone())?;
        let answer = model.predict(&["a film 3"])?.remove(0).to_string();
        assert!(answer.starts_with("the picture"), "{name}: {answer:?}");
        std::fs::remove_file(path).ok();
    }
    std::fs::remove_file(text).ok();
    Ok(())
}

#[cfg(feature = "tokenizers")]
#[test]
fn tagged_words_are_not_cut() {
    let mut config = Config::new(Task::Tag);
    let text = config.set("text.tokenizer", &Value::Text("x.json".into())).unwrap_err().to_string();
    let expected =
        "settings of `tag`: expected a setting of this task, not of `classify`, got `text.tokenizer`";
    assert!(text.starts_with(expected), "{text}");
    config.text.tokenizer = Some("x.json".into());
    let text = prepare(&config).err().unwrap().to_string();
    assert!(text.starts_with("text.tokenizer: expected none for `tag`, whose words are given"), "{text}");
}
