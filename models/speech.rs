//! Learns to hear phonemes: a convolution and LSTMs from both ends read frames of sound, and connectionist temporal classification
//! learns from the phonemes alone, without a word about when each is said (Graves et al., "Connectionist temporal classification:
//! labelling unsegmented sequence data with recurrent neural networks", 2006).
//!
//! `cargo run --release --example speech` makes up a language and its speakers, and learns from some to understand others; see `--help`.
mod flags;
mod made_up_speech;

use std::process::ExitCode;

use clap::Parser;
use flags::{Flags, Found, Outcome};
use made_up_speech::{BANDS, CLASSES, Utterance, speech, spelled};
use unpadded::data::{Batches, Batching, Data, Field, Loader, Samples};
use unpadded::kernels::edit_distance;
use unpadded::layers::{Conv, Lstm};
use unpadded::metrics::ErrorRate;
use unpadded::optimizer::Adam;
use unpadded::predict::{CtcBeam, Predictor};
use unpadded::tensor::Dense;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Lod, Result, Variable};

const MODEL: &str = "speech";
const FEEDS: [&str; 2] = ["frames", "phonemes"];
/// What frames say beside phonemes: nothing. Phonemes are numbered from 1 on.
const BLANK: usize = 0;
/// Learns the phonemes of generated speech, by other speakers than it is measured on. --predict answers lines of the energies of
/// an utterance, 16 numbers a frame, with its phonemes.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

/// The model: frames -> what is around each -> LSTMs from both ends -> phonemes and the blank.
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

/// The phonemes of a line of energies.
fn predict(predictor: &Predictor, line: &str) -> Result<String> {
    let number = |word: &str| match word.parse::<f32>() {
        Ok(x) if x.is_finite() => Ok(x),
        _ => Err(Error::new("energy", "a number", format!("{word:?}"))),
    };
    let energies = line.split_whitespace().map(number).collect::<Result<Vec<_>>>()?;
    if energies.len() % BANDS != 0 {
        let expected = format!("{BANDS} for each frame");
        return Err(Error::new("energies", expected, format!("{} in all", energies.len())));
    }
    let frames = framed(&Variable::from_sequence(energies)?)?;
    let found = predictor.run(&[(FEEDS[0], &frames)], &["heard"])?;
    found.iter().map(|heard| heard.as_slice::<i64>().map(spelled)).collect()
}

/// Prefix beam search that also asks how often a phoneme stood behind the one before it in what was said in training.
fn beam(spoken: &[Utterance]) -> CtcBeam {
    let mut counts = vec![[1.0f64; CLASSES]; CLASSES]; // one more than there are, so that nothing is impossible
    for (_, phonemes) in spoken {
        let before = std::iter::once(&(BLANK as i64)).chain(phonemes); // the first stands behind nothing
        before.zip(phonemes).for_each(|(&last, &next)| counts[last as usize][next as usize] += 1.0);
    }
    let model = move |prefix: &[i64], next: i64| {
        let counts = &counts[prefix.last().map_or(BLANK, |&last| last as usize)];
        (counts[next as usize] / counts.iter().sum::<f64>()).ln()
    };
    // The best of a few, on the speech of other speakers again. The model takes from the score of each phoneme, the bonus gives some back.
    CtcBeam::new(16).blank(BLANK).language_model(0.3, model).bonus(1.0)
}

fn run(Cli { flags }: &Cli) -> Outcome<()> {
    if let Some(predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&predictor, line));
    }
    if flags.train.is_some() {
        return Err("--train: expected none, as the program makes its speech up, got a path".into());
    }
    let (spoken, unheard) = (speech(1, 40, 40), speech(2, 10, 20)); // by other speakers, of the same language
    let (train, dev) = (Utterances::new(&spoken)?, Utterances::new(&unheard)?);
    let train = Utterances(train.0.shuffle(flags.seed).prefetch(4));
    let Some((_, report)) = flags.fit(MODEL, network(flags.seed)?, (&train, &dev), 12)? else {
        return Ok(());
    };
    let value = 100.0 * report.best.map_or(f64::NAN, |best| best.value);
    let predictor = flags::load(&flags.save(MODEL), MODEL)?;
    let energies: Vec<_> = unheard.iter().map(|(energies, _)| energies.clone()).collect();
    let frames = framed(&Variable::from_sequences(&energies)?)?;
    let [logits, heard] = ["logits", "heard"].map(|name| predictor.run(&[(FEEDS[0], &frames)], &[name]));
    let (logits, heard) = (&logits?[0], &heard?[0]);
    let (mut edits, mut phonemes) = (0, 0);
    for (number, (found, (_, said))) in beam(&spoken).decode(logits)?.iter().zip(&unheard).enumerate() {
        let found = found.first().map_or(&[][..], |best| &best.labels);
        (edits, phonemes) = (edits + edit_distance(found, said), phonemes + said.len());
        if number % 50 == 0 {
            let greedy = heard.slice_sequences(number..number + 1)?;
            let greedy = spelled(greedy.as_slice()?);
            flags::print(format!(
                "\nsaid    {}\ngreedy  {greedy}\nbeam    {}",
                spelled(said),
                spelled(found)
            ))?;
        }
    }
    let by_beam = 100.0 * edits as f64 / phonemes as f64;
    let of = "phoneme error rate of speakers that it never heard";
    let how = "in the epoch that was chosen by the first";
    flags::print(format!("\n{of}: greedy {value:.1} %, by beam search {by_beam:.1} % ({how})"))?;
    let (dataset, metric) = ("made-up speech", "dev_phoneme_error_rate");
    let more = &[("dev_phoneme_error_rate_beam", by_beam)];
    flags.conclude(&Found { model: MODEL, dataset, metric, value, more }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let spoken = speech(7, 1, 4);
    let data = Utterances::new(&spoken)?;
    let path = std::env::temp_dir().join(format!("unpadded-speech-{}.ckpt", std::process::id()));
    let mut trainer = network(1)?.progress(unpadded::train::Progress::Quiet).checkpoint(&path);
    let before = trainer.evaluate(&data)?.loss();
    trainer.fit(&data, &data, unpadded::train::Until::Epochs(60))?;
    assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
    let predictor = Predictor::load(&path)?;
    std::fs::remove_file(&path)?;
    assert_eq!(predict(&predictor, "")?, "");
    let line = |energies: &[f32]| energies.iter().map(|x| format!("{x} ")).collect::<String>();
    let (energies, phonemes) = &spoken[0];
    let (found, said) = (predict(&predictor, &line(energies))?, spelled(phonemes));
    let wrong = edit_distance(&found.split(' ').collect::<Vec<_>>(), &said.split(' ').collect::<Vec<_>>());
    assert!(4 * wrong < phonemes.len(), "{found} for {said}");
    for (line, expected) in [
        ("1 2 3".to_owned(), "energies: expected 16 for each frame, got 3 in all"),
        (line(energies).replacen(' ', " x ", 1), "energy: expected a number, got \"x\""),
        (line(energies).replacen(' ', " inf ", 1), "energy: expected a number, got \"inf\""),
    ] {
        let refused = predict(&predictor, &line).map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(refused.starts_with(expected), "{refused}");
    }
    Ok(())
}

#[test]
fn what_was_said_in_training_decides_where_sounds_do_not() -> Result<()> {
    let mut logits = ndarray::Array2::<f32>::zeros((2, CLASSES));
    (logits[[0, 1]], logits[[1, 2]], logits[[1, 3]]) = (9.0, 8.9, 9.0);
    let logits = Variable::sequences(logits, Lod::from_lengths1(&[2])?)?;
    for (said, expected) in [(vec![1, 2], [1, 2]), (vec![1, 3], [1, 3]), (vec![], [1, 3])] {
        let found = beam(&vec![(Vec::new(), said); 50]).decode(&logits)?;
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
