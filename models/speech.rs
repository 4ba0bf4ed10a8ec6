//! Recognises phonemes: a convolution and LSTMs in both directions read frames of sound, and connectionist temporal
//! classification (CTC) learns from the phonemes alone, without their times (Graves et al., "Connectionist temporal
//! classification: labelling unsegmented sequence data with recurrent neural networks", 2006).
//!
//! `cargo run --release --example speech` makes up a language and its speakers, and learns from some to understand others.
mod made_up_speech;

use made_up_speech::{BANDS, CLASSES, Utterance, speech, spelled};
use unpadded::data::{Batches, Batching, Data, Field, Loader, Samples};
use unpadded::layers::{Conv, Lstm};
use unpadded::metrics::{ErrorRate, edit_distance};
use unpadded::optimizer::Adam;
use unpadded::predict::{CtcBeam, Predictor};
use unpadded::tensor::Dense;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Error, Lod, Result, Variable, ops};

const FEEDS: [&str; 2] = ["frames", "phonemes"];
/// The blank: the class of frames without a phoneme. Phonemes are numbered from 1 on.
const BLANK: usize = 0;

/// The model: frames -> convolution over the neighbours of each -> LSTMs in both directions -> phonemes and the blank.
fn network(seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let frames = net.feed(FEEDS[0], DType::F32, &[BANDS], 1); // one a row, in sequences of any length
    let phonemes = net.feed(FEEDS[1], DType::I64, &[], 1); // of the same utterances, in sequences of other lengths
    let x = frames.conv(Conv::new(5, 64)).relu().dropout(0.1);
    let logits = x.bidirectional(Lstm::new(64)).dropout(0.2).linear(CLASSES);
    let loss = logits.ctc_loss(phonemes, BLANK, true).mean(); // 0 for what is spoken too fast to be said
    let heard = logits.ctc_greedy(BLANK);
    let trainer = Trainer::new(net, loss, &Adam::new(3e-3).clip_global_norm(1.0))?;
    let trainer = trainer.metric(ErrorRate::new(heard, phonemes).named("phoneme error rate"));
    Ok(trainer.output("logits", logits).output("heard", heard))
}

/// Batches of utterances. The loader has the numbers of an utterance in one list, the model reads a frame a row.
struct Utterances(Loader);

impl Utterances {
    fn new(speech: &[Utterance]) -> Result<Self> {
        let fields =
            |(frames, phonemes): &Utterance| vec![Field::from(frames.clone()), Field::from(phonemes.clone())];
        let samples: Samples = speech.iter().map(fields).collect();
        Ok(Self(Loader::new(samples, &FEEDS)?.batching(Batching::Sequences(16))))
    }
}

impl Data for Utterances {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        let batches = self.0.batches(epoch, from)?;
        Ok(Box::new(batches.map(|batch| {
            let mut batch = batch?;
            batch.values[0].1 = framed(&batch.values[0].1)?;
            (batch.tokens, batch.padded) = (batch.tokens / BANDS, batch.padded / BANDS);
            Ok(batch)
        })))
    }

    fn batch_count(&self) -> Option<u64> {
        self.0.batch_count()
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

/// The energies of utterances, a frame a row.
fn framed(energies: &Variable) -> Result<Variable> {
    let offsets = energies.lod().map_or(&[0, 0][..], |lod| lod.offsets());
    let lengths: Vec<usize> = offsets.windows(2).map(|pair| (pair[1] - pair[0]) / BANDS).collect();
    let rows = Dense::from_vec(&[lengths.iter().sum(), BANDS], energies.as_slice::<f32>()?.to_vec())?;
    Variable::sequences(rows, Lod::from_lengths1(&lengths)?)
}

/// Builds a prefix beam search with a bigram language model, which counts pairs of phonemes in the training utterances.
fn beam(spoken: &[Utterance]) -> CtcBeam {
    let mut counts = vec![[1.0f64; CLASSES]; CLASSES]; // one more than counted, so that no pair is impossible
    for (_, phonemes) in spoken {
        let before = std::iter::once(&(BLANK as i64)).chain(phonemes); // the first phoneme has no predecessor
        before.zip(phonemes).for_each(|(&last, &next)| counts[last as usize][next as usize] += 1.0);
    }
    let model = move |prefix: &[i64], next: i64| {
        let counts = &counts[prefix.last().map_or(BLANK, |&last| last as usize)];
        (counts[next as usize] / counts.iter().sum::<f64>()).ln()
    };
    // The best of a few settings, on the other speakers. The language model lowers the score of each phoneme, the bonus
    // compensates for it.
    CtcBeam::new(16).blank(BLANK).language_model(0.3, model).bonus(1.0)
}

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        return Err(Error::new("arguments", "none", argument));
    }
    let (spoken, unheard) = (speech(1, 40, 40), speech(2, 10, 20)); // by other speakers, of the same language
    let (train, dev) = (Utterances::new(&spoken)?, Utterances::new(&unheard)?);
    let train = Utterances(train.0.shuffle(1).prefetch(4));
    let mut trainer = network(1)?;
    trainer.fit(&train, &dev, Until::Epochs(12))?;
    trainer.use_best()?;
    let greedy = trainer.evaluate(&dev)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    let energies: Vec<_> = unheard.iter().map(|(energies, _)| energies.clone()).collect();
    let frames = framed(&Variable::from_sequences(&energies)?)?;
    let found = predictor.run(&[(FEEDS[0], &frames)], &["logits", "heard"])?;
    let (logits, heard) = (&found[0], &found[1]);
    let (mut edits, mut phonemes) = (0, 0);
    for (number, (found, (_, truth))) in beam(&spoken).decode(logits)?.iter().zip(&unheard).enumerate() {
        let found = found.first().map_or(&[][..], |best| &best.labels);
        (edits, phonemes) = (edits + edit_distance(found, truth), phonemes + truth.len());
        if number % 50 == 0 {
            let greedy = heard.slice_sequences(number..number + 1)?;
            let greedy = spelled(greedy.as_slice()?);
            println!("\nsaid    {}\ngreedy  {greedy}\nbeam    {}", spelled(truth), spelled(found));
        }
    }
    let by_beam = 100.0 * edits as f64 / phonemes as f64;
    println!(
        "\nspeakers that it never heard: {greedy}; by beam search {by_beam:.1} % of the phonemes are wrong"
    );
    Ok(())
}

#[test]
fn it_learns_to_hear() -> Result<()> {
    let data = Utterances::new(&speech(7, 1, 4))?;
    let mut trainer = network(1)?.progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    trainer.fit(&data, &data, Until::Epochs(60))?;
    let scores = trainer.evaluate(&data)?;
    assert!(scores.loss() < before / 2.0 && scores.get("phoneme error rate").unwrap() < 0.25, "{scores}");
    Ok(())
}

#[test]
fn what_was_said_in_training_decides_where_sounds_do_not() -> Result<()> {
    let mut logits = ndarray::Array2::<f32>::zeros((2, CLASSES));
    (logits[[0, 1]], logits[[1, 2]], logits[[1, 3]]) = (9.0, 8.9, 9.0);
    let logits = Variable::sequences(logits, Lod::from_lengths1(&[2])?)?;
    for (history, expected) in [(vec![1, 2], [1, 2]), (vec![1, 3], [1, 3]), (vec![], [1, 3])] {
        let found = beam(&vec![(Vec::new(), history); 50]).decode(&logits)?;
        assert_eq!(found[0][0].labels, expected);
    }
    Ok(())
}

#[test]
fn speech_is_the_same_for_the_same_seed() {
    let spoken = speech(3, 5, 20);
    assert!(spoken == speech(3, 5, 20) && spoken != speech(4, 5, 20));
    for (energies, phonemes) in spoken {
        assert!(energies.len() % BANDS == 0 && (20..=150).contains(&(energies.len() / BANDS)));
        assert!(!phonemes.is_empty() && phonemes.iter().all(|&id| (1..CLASSES as i64).contains(&id)));
    }
}
