//! Refusals of a trainer, and their messages.

use unpadded::data::{Sample, SampleStream};

use super::*;

fn refused<T: std::fmt::Debug>(outcome: Result<T>, expected: &str) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}\nexpected: {expected}");
}

fn fitted(mut trainer: Trainer) -> Result<Report> {
    trainer.fit(&train(), &dev(), Until::Epochs(1))
}

#[test]
fn settings_are_checked_before_the_first_batch() {
    refused(fitted(trainer().patience(0)), "patience, in epochs: expected at least 1, got 0");
    refused(
        fitted(trainer().every(Steps(0))),
        "steps from checkpoint to checkpoint: expected at least 1, got 0",
    );
    let select = fitted(trainer().select("f1"));
    refused(select, "selected metric: expected one of `loss`, `accuracy`, `macro F1`, got `f1`");
    let other = Builder::new();
    let foreign = other.feed("foreign", DType::F32, &[2], 0);
    refused(
        fitted(trainer().metric(Loss::new(foreign).named("other"))),
        "metric `other`: expected variables that fit the model",
    );
    refused(
        fitted(trainer().metric(Loss::new(foreign).named("accuracy"))),
        "metrics: expected each name once, got `accuracy` twice",
    );
    refused(fitted(trainer().output("probabilities", foreign)), "a variable of this builder");
    refused(Trainer::new(other, trainer_loss(), &Sgd::new(0.1)), "a variable of this builder");
}

#[test]
fn only_parameters_are_set() {
    let value = |n: usize| Dense::from_vec(&[n], vec![0.5f32; n]).unwrap();
    let mut trainer = trainer();
    refused(
        trainer.set_parameter("bias", value(2)),
        "name of a parameter: expected one of `embedding_0.weight`, ",
    );
    refused(
        trainer.set_parameter("linear_0.bias", value(3)),
        "variable `linear_0.bias`: value: expected f32[2], got f32[3]",
    );
    trainer.set_parameter("linear_0.bias", value(2)).unwrap();
    assert!(trainer.scope().get("linear_0.bias").unwrap().bits_eq(&value(2)));
}

fn trainer_loss() -> unpadded::Var {
    let net = Builder::new();
    net.feed("loss", DType::F32, &[], 0)
}

#[test]
fn later_variables_are_not_of_the_model() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let y = net.linear(x, 1);
    let loss = net.mean(y);
    let trainer = Trainer::new(net.clone(), loss, &Sgd::new(0.1)).unwrap();
    let later = net.exp(y);
    let error = trainer.metric(Loss::new(later).named("exp")).evaluate(&dev()).unwrap_err().to_string();
    assert!(
        error.contains("expected a variable made before the trainer, got `exp`, which was made later"),
        "{error}"
    );
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let mut training = trainer();
    let names = Loader::new(samples(0..9), &["word", "label"]).unwrap();
    refused(
        training.fit(&names, &dev(), Until::Epochs(1)),
        "name of a feed in the data: expected one of `label`, `words`, got `word`",
    );
    let one: Samples = (0..3).map(|i| vec![Field::Ints(vec![i])]).collect();
    let one = Loader::new(one, &["words"]).unwrap();
    refused(training.evaluate(&one), "variable `label`: feeds: expected a value for this variable, got none");
    let nothing = Made(Vec::new());
    refused(
        trainer().fit(&nothing, &dev(), Until::Epochs(1)),
        "batches of an epoch of training data: expected at least one",
    );
    refused(trainer().evaluate(&nothing), "batches of data to evaluate on: expected at least one, got none");
    let out: Samples = (0..3).map(|i| vec![Field::Ints(vec![18 + i]), Field::Int(0)]).collect();
    let out = Loader::new(out, &["words", "label"]).unwrap();
    refused(training.fit(&out, &dev(), Until::Epochs(1)), "got 20");
    assert!(values(&mut training) == values(&mut trainer()) && training.position().step == 0);
}

/// A tag a word, in sentences of documents or not, and one sample whose tags are too few.
#[test]
fn feeds_that_are_alike_have_the_same_lengths_in_every_sample() {
    let tagger = |levels| {
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], levels);
        let tags = net.feed_like("tags", DType::I64, &[], words);
        let topic = net.feed("topic", DType::I64, &[], 1); // of other lengths
        let x = net.embedding(words, Embedding::new(20, 4));
        let pooled = net.sequence_pool(net.embedding(topic, Embedding::new(20, 4)), Pool::Sum);
        let loss = net.mean(net.cross_entropy(x, tags));
        let loss = net.add(loss, net.mean(pooled));
        Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet)
    };
    let names = ["tags", "topic", "words"];
    let sample = |n: usize, tags: usize| {
        vec![Field::Ints(vec![1; tags]), Field::Ints(vec![2; n + 1]), Field::Ints(vec![3; n])]
    };
    let data = move |short: usize| -> Vec<Vec<Field>> {
        (0..9).map(|i| sample(i % 4, if i == short { 2 } else { i % 4 })).collect()
    };
    let loader = |short| Loader::new(data(short).into_iter().collect::<Samples>(), &names).unwrap();
    tagger(1).fit(&loader(99).shuffle(1), &loader(99), Until::Epochs(1)).unwrap();
    let expected = "length of field `tags` of sample 7: expected 3, as in field `words`, got 2 (at ";
    let mut training = tagger(1);
    for (train, dev) in [(7, 99), (99, 7)] {
        refused(training.fit(&loader(train).shuffle(1), &loader(dev), Until::Epochs(1)), expected);
        assert_eq!(training.position().step, 0); // known before the first batch
    }
    refused(training.evaluate(&loader(7)), expected);

    let parts = |lengths: &[usize]| Field::Nested(lengths.iter().map(|&n| vec![1; n]).collect());
    let nested = |tags: &[usize]| {
        let fields = [parts(tags), Field::Ints(vec![1]), parts(&[2, 0, 3])];
        Loader::new(Samples::from(vec![Sample::new(40, fields)]), &names).unwrap()
    };
    tagger(2).evaluate(&nested(&[2, 0, 3])).unwrap();
    let more = "length of field `tags` of sample 40: expected 3, as in field `words`, got 2";
    refused(tagger(2).evaluate(&nested(&[2, 0])), more);
    let longer = "length of part 1 of field `tags` of sample 40: expected 0, as in field `words`, got 1";
    refused(tagger(2).evaluate(&nested(&[2, 1, 3])), longer);

    // Streamed samples are checked on arrival; then the batch's message names the sample.
    let streamed = SampleStream::new(1, move || {
        let samples = (0..).zip(data(7)).map(|(number, fields)| Ok(Sample::new(number, fields)));
        Ok(Box::new(samples.skip(1)))
    });
    let streamed = Loader::new(streamed, &names).unwrap().batching(Batching::Sequences(4));
    let batch = "variable `words`: length of sequence 2 of the batch, number 7 in the data: expected 2, as in \
                 `tags`, got 3";
    refused(training.evaluate(&streamed), batch);
}

#[test]
fn carried_states_go_on_in_as_many_streams_or_fewer() {
    let text = |streams| {
        Continuous::new((0..40).map(|i| i % 5).collect::<Vec<i64>>(), streams, 4, ["x", "y"]).unwrap()
    };
    let both = |first, second| {
        let [first, second] = [first, second].map(|streams| text(streams).batches(None, 0).unwrap());
        Made(first.take(1).chain(second).map(|batch| batch.unwrap().values).collect())
    };
    language_model().evaluate(&both(3, 2)).unwrap();
    refused(
        language_model().evaluate(&both(2, 3)),
        "variable `before`: sequences of a batch: expected at most 2, as in the batch before, whose state is carried, got 3",
    );
}

#[test]
fn resuming_needs_the_same_model_vocabularies_and_data() {
    let file = path("same");
    let vocabulary = |words: &[&str]| Vocabulary::of(words, &Limits::default()).unwrap();
    let mut first = trainer().vocabulary("words", vocabulary(&["a", "b"]));
    fit(&mut first, Until::Steps(12));
    first.save(&file).unwrap();

    let resume = |mut trainer: Trainer| {
        let before = bytes(&mut trainer);
        let error = trainer.resume(&file).unwrap_err().to_string();
        assert!(bytes(&mut trainer) == before, "changed by a resumption that was refused: {error}");
        assert!(error.ends_with(&format!("; in checkpoint `{}`", file.display())), "{error}");
        error
    };
    let none = resume(trainer());
    assert!(
        none.contains("vocabulary `words`: expected 3 entries, as the checkpoint has, got none (at "),
        "{none}"
    );
    let other = resume(trainer().vocabulary("words", vocabulary(&["a", "c"])));
    let text = "vocabulary `words`: expected the checkpoint's (3 entries, entry 2 is \"b\"), got 3 entries, entry 2 is \"c\" (at ";
    assert!(other.contains(text), "{other}");
    assert!(
        other.contains("; make the vocabulary from the same data, or remove it from the checkpoint"),
        "{other}"
    );
    let longer = resume(trainer().vocabulary("words", vocabulary(&["a", "b", "c"])));
    assert!(longer.contains("(3 entries), got 4 entries, entry 3 is \"c\""), "{longer}");
    let seed = resume(language_model().vocabulary("words", vocabulary(&["a", "b"])));
    let text = "seed of the model: expected 3, as in the checkpoint, got 1";
    assert!(seed.starts_with(text) && seed.contains("; `Builder::seed` sets the seed"), "{seed}");

    let mut second = trainer().vocabulary("words", vocabulary(&["a", "b"]));
    second.resume(&file).unwrap();
    let others = loader(samples(0..77)).shuffle(6);
    let error = second.fit(&others, &dev(), Until::Epochs(3)).unwrap_err().to_string();
    assert!(
        error.contains("training data: expected the data of the training so far (fingerprint "),
        "{error}"
    );
    assert!(
        error.contains("which is at epoch 2, batch 3 (step 12), got other samples, batches or another order"),
        "{error}"
    );
    fit(&mut second, Until::Epochs(2));
    // A training that has finished its epoch, and was not loaded, may continue with other data.
    second.fit(&others, &dev(), Until::Epochs(3)).unwrap();
    std::fs::remove_file(file).unwrap();
}
