//! Speech of a made-up language, for `speech`: from a seed, the energies of frames and their phonemes.
#[path = "draws.rs"]
mod draws;

use std::ops::Range;

use draws::Draws;

/// The energies of its frames one after another, and its phonemes, numbered from 1.
pub(crate) type Utterance = (Vec<f32>, Vec<i64>);

/// The number of frequency bands, whose energies form a frame.
pub(crate) const BANDS: usize = 16;

/// For each phoneme: three formants in Hz, the loudness of its voice and of its noise, and its length in frames. Vowels come
/// first.
const PHONEMES: [(&str, [f64; 5], f64); 20] = [
    ("a", [750.0, 1250.0, 2600.0, 1.0, 0.0], 7.0),
    ("e", [500.0, 1850.0, 2550.0, 0.9, 0.0], 7.0),
    ("i", [300.0, 2250.0, 3000.0, 0.8, 0.0], 6.0),
    ("o", [500.0, 900.0, 2500.0, 0.9, 0.0], 7.0),
    ("u", [320.0, 750.0, 2300.0, 0.8, 0.0], 6.0),
    ("y", [300.0, 1750.0, 2200.0, 0.8, 0.0], 6.0),
    ("m", [250.0, 1050.0, 2150.0, 0.4, 0.0], 4.0),
    ("n", [250.0, 1500.0, 2500.0, 0.4, 0.0], 4.0),
    ("l", [380.0, 1150.0, 2900.0, 0.5, 0.0], 4.0),
    ("r", [430.0, 1300.0, 1650.0, 0.5, 0.0], 4.0),
    ("s", [2000.0, 3900.0, 4800.0, 0.0, 0.5], 6.0),
    ("z", [250.0, 3700.0, 4700.0, 0.2, 0.3], 5.0),
    ("f", [1100.0, 2200.0, 4000.0, 0.0, 0.2], 5.0),
    ("v", [250.0, 2100.0, 4000.0, 0.2, 0.1], 4.0),
    ("p", [350.0, 800.0, 2300.0, 0.0, 0.06], 3.0),
    ("t", [400.0, 1800.0, 3600.0, 0.0, 0.1], 3.0),
    ("k", [350.0, 1400.0, 2100.0, 0.0, 0.08], 3.0),
    ("b", [250.0, 800.0, 2300.0, 0.2, 0.04], 3.0),
    ("d", [250.0, 1800.0, 3000.0, 0.2, 0.06], 3.0),
    ("g", [250.0, 1400.0, 2100.0, 0.2, 0.05], 3.0),
];
/// The number of classes: the phonemes, and the blank.
pub(crate) const CLASSES: usize = 1 + PHONEMES.len();
const VOWELS: usize = 6;
/// The phonemes that may end a syllable: from m to s.
const ENDS: Range<usize> = VOWELS..VOWELS + 5;

/// Draws a number from the normal distribution.
fn normal(draws: &mut Draws) -> f64 {
    (-2.0 * (1.0 - draws.between(0.0, 1.0)).ln()).sqrt() * draws.between(0.0, std::f64::consts::TAU).cos()
}

/// The words of the language, of one or two syllables: consonant, vowel, and at times another consonant.
fn lexicon() -> Vec<Vec<usize>> {
    let mut draws = Draws::new(1906);
    let mut word = || {
        let mut word = Vec::new();
        for _ in 0..draws.one_of(1..3) {
            word.extend([draws.one_of(VOWELS..PHONEMES.len()), draws.one_of(0..VOWELS)]);
            if draws.between(0.0, 1.0) < 0.4 {
                word.push(draws.one_of(ENDS));
            }
        }
        word
    };
    (0..100).map(|_| word()).collect()
}

/// Returns the utterances of `speakers` speakers: `each` utterances per speaker, of 20 to about 150 frames.
pub(crate) fn speech(seed: u64, speakers: usize, each: usize) -> Vec<Utterance> {
    let (words, mut draws) = (lexicon(), Draws::new(seed));
    let mut utterances = Vec::new();
    for _ in 0..speakers {
        // A short throat has high formants. Some speakers are fast.
        let (throat, pace) = (draws.between(0.85, 1.2), draws.between(0.8, 1.2));
        for _ in 0..each {
            let (mut frames, mut phonemes, mut mouth) = (Vec::new(), Vec::new(), None);
            let enough = draws.one_of(20..95) * BANDS;
            while frames.len() < enough {
                // The first words are the most frequent.
                let word = &words[(words.len() as f64 * draws.between(0.0, 1.0).powi(2)) as usize];
                for &phoneme in word {
                    phonemes.push(1 + phoneme as i64);
                    let (_, target, lasts) = PHONEMES[phoneme];
                    for _ in 0..(lasts * pace * draws.between(0.7, 1.3)).round().max(2.0) as usize {
                        // The mouth is still moving from the previous phoneme.
                        let mouth = mouth.get_or_insert(target);
                        mouth.iter_mut().zip(target).for_each(|(now, target)| *now += 0.5 * (target - *now));
                        frames
                            .extend(energies(*mouth, throat).map(|x| (x + 0.5 * normal(&mut draws)) as f32));
                    }
                }
            }
            utterances.push((frames, phonemes));
        }
    }
    utterances
}

/// The logarithm of the energy in each band, of 200 to 5,500 Hz: peaks at the formants, narrow ones of the voice, broad ones of
/// noise.
fn energies([first, second, third, voice, noise]: [f64; 5], throat: f64) -> impl Iterator<Item = f64> {
    let places = [first, second, third]
        .map(|formant| (formant * throat / 200.0).ln() / 27.5f64.ln() * (BANDS - 1) as f64);
    (0..BANDS).map(move |band| {
        let peaks = places.map(|peak| {
            let far = (band as f64 - peak).powi(2);
            voice * (-far).exp() + noise * (-far / 6.0).exp()
        });
        (peaks.iter().sum::<f64>() + 0.02).ln() / 2.0 + 1.0
    })
}

/// The names of phonemes.
pub(crate) fn spelled(phonemes: &[i64]) -> String {
    let name = |&id: &i64| PHONEMES.get(id as usize - 1).map_or("?", |phoneme| phoneme.0);
    phonemes.iter().map(name).collect::<Vec<_>>().join(" ")
}
