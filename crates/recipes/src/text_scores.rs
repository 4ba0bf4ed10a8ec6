//! Scores of a model that writes texts: by n-grams, edits and exact matches.

use unpadded::data::Tokenizer;
use unpadded::metrics::{Bleu, ChrF, Metric, Unit, edit_distance, tokens_13a};

use super::by_length::ByLength;
use super::evaluation::{EachOutcome, Evaluation, Examples, NamedFigure, Outcome, ScoreSums};
use super::sample::FigureFn;

/// The columns of a bootstrap sample: for BLEU and chrF; exact and all texts; edits and words of the references; wrong texts.
const BLEU: usize = 0;
const CHRF: usize = 10;
const EXACT: usize = 28;
const EDITS: usize = 30;
const WRONG: usize = 32;
const COLUMNS: usize = 33;

pub(super) struct TextScores {
    /// Whether the written texts are pronunciations: each text is a word, and each token a phoneme.
    spoken: bool,
    /// Whether the tokens of the written texts are separated by white space.
    whitespace: bool,
    several: [usize; 2],
    references: usize,
    /// The number of tokens of the longest reference, by the tokenizer of BLEU.
    longest: usize,
    sums: ScoreSums,
    tokenizer: Tokenizer,
    examples: Examples,
}

impl TextScores {
    pub(super) fn new([source, target]: [&Tokenizer; 2]) -> Self {
        let is = |tokenizer: &Tokenizer, kind: Tokenizer| {
            tokenizer.name() == kind.name() || tokenizer.name() == kind.lowercase().name()
        };
        let whitespace = is(target, Tokenizer::whitespace());
        let spoken = whitespace && is(source, Tokenizer::characters());
        let by_length = if spoken { "phoneme error rate" } else { "chrF" };
        let sums = ScoreSums::new(ByLength::new(by_length, Unit::Share));
        let (tokenizer, examples, several) = (source.clone(), Examples::default(), [usize::MAX, 0]);
        Self { spoken, whitespace, several, references: 0, longest: 0, sums, tokenizer, examples }
    }

    pub(super) fn add(&mut self, source: &str, references: &[&str], found: &str, each: EachOutcome<'_>) {
        self.several = [self.several[0].min(references.len()), self.several[1].max(references.len())];
        self.references += references.len();
        let (mut bleu, mut chrf) = ([0.0; Bleu::SUMS], ChrF::default());
        let words = |text: &'_ str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let tokens = |text: &str| if self.whitespace { words(text) } else { tokens_13a(text) };
        let of_references: Vec<Vec<String>> = references.iter().map(|text| tokens(text)).collect();
        self.longest = of_references.iter().map(Vec::len).fold(self.longest, usize::max);
        let of_references: Vec<&[String]> = of_references.iter().map(Vec::as_slice).collect();
        Bleu::add(&mut bleu, &tokens(found), &of_references);
        chrf.texts_of_several(found, references);
        let own = words(found);
        // The reference with the fewest edits is used; of several such references, the longest.
        let edits = references.iter().map(|reference| {
            let reference = words(reference);
            (edit_distance(&own, &reference), reference.len())
        });
        let (edits, length) =
            edits.min_by_key(|&(edits, length)| (edits, usize::MAX - length)).unwrap_or((0, 0));
        let exact = references.iter().any(|reference| words(reference) == own);
        let counts = (BLEU..).zip(bleu);
        let counts = counts.chain((CHRF..).zip(chrf.sums().iter().copied()));
        let counts = counts.chain([
            (EXACT, f64::from(u8::from(exact))),
            (EXACT + 1, 1.0),
            (EDITS, edits as f64),
            (EDITS + 1, length as f64),
            (WRONG, f64::from(u8::from(!exact))),
        ]);
        let counts: Vec<(usize, f64)> = counts.collect();
        let (tokens, chrf) = (self.tokenizer.tokens(source).count(), chrf.value());
        let by_length = if self.spoken { [edits as f64, length as f64] } else { [chrf, 1.0] };
        self.sums.add(counts, tokens, by_length);
        self.examples.add(source, references, found, chrf);
        each(Outcome { text: source, asked: source, truth: &references.join(" | "), found });
    }

    pub(super) fn end(self) -> Evaluation {
        const BLEU_OF: NamedFigure = ("BLEU", Unit::Share, FigureFn::Of(bleu));
        const CHRF_OF: NamedFigure = ("chrF", Unit::Share, FigureFn::Of(chrf));
        const EXACT_OF: NamedFigure = ("exact match", Unit::Share, FigureFn::Share(EXACT, EXACT + 1));
        let of_edits = |name| (name, Unit::Share, FigureFn::Of(edits));
        let wrong = ("word error rate", Unit::Share, FigureFn::Share(WRONG, EXACT + 1));
        let mut figures: Vec<NamedFigure> = match self.spoken {
            true => vec![of_edits("phoneme error rate"), wrong, EXACT_OF, BLEU_OF, CHRF_OF],
            false => vec![BLEU_OF, CHRF_OF, of_edits("word error rate"), EXACT_OF],
        };
        // Without a pair of words in the references, BLEU is only smoothing.
        let has_bleu = self.longest != 1;
        figures.retain(|(name, ..)| has_bleu || *name != BLEU_OF.0);
        let total = self.sums.sample.total(COLUMNS);
        let mut scored = self.sums.end(COLUMNS, &figures, Vec::new());
        if !has_bleu {
            scored.notes.push("BLEU is left out, since each reference is a single word".to_owned());
        }
        if total[EDITS + 1] == 0.0 {
            let (name, units) = if self.spoken { ("phoneme", "phonemes") } else { ("word", "words") };
            scored.notes.push(format!(
                "{name} error rate: undefined, since the references have no {units}; {} {units} were inserted",
                total[EDITS]
            ));
        }
        scored.examples = self.examples.end();
        let [fewest, most] = self.several;
        scored.notes.push(format!(
            "{} sources are translated and scored, equal sources as one against their targets; loss and perplexity are of all {} pairs",
            scored.sample.texts,
            self.references
        ));
        let references = if fewest == most { most.to_string() } else { "var".to_owned() };
        let (tokenization, version) =
            (if self.whitespace { "none" } else { "13a" }, env!("CARGO_PKG_VERSION"));
        let of_bleu = format!(
            "BLEU|nrefs:{references}|case:mixed|eff:no|tok:{tokenization}|smooth:exp|version:unpadded-{version}"
        );
        scored.signatures = has_bleu.then_some(of_bleu).into_iter().collect();
        scored.signatures.push(format!(
            "chrF2|nrefs:{references}|case:mixed|eff:yes|nc:6|nw:0|space:no|version:unpadded-{version}"
        ));
        scored
    }
}

fn bleu(x: &[f64]) -> f64 {
    Bleu::of_texts().value(&x[BLEU..CHRF])
}

fn chrf(x: &[f64]) -> f64 {
    let mut chrf = ChrF::default();
    chrf.sums().iter_mut().zip(&x[CHRF..EXACT]).for_each(|(sum, x)| *sum = *x);
    chrf.value()
}

fn edits(x: &[f64]) -> f64 {
    if x[EDITS + 1] > 0.0 { x[EDITS] / x[EDITS + 1] } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected BLEU of all texts together is from sacreBLEU 2.6; edits and exact matches are counted by hand.
    #[test]
    fn values_are_those_of_sacrebleu_and_of_the_hand() {
        let tokenizer = Tokenizer::pieces();
        let mut scores = TextScores::new([&tokenizer, &tokenizer]);
        let texts: [(&str, &[&str]); 8] = [
            ("The cat sat on the mat.", &["The cat is on the mat."]),
            ("a b c d e", &["a b c d e"]),
            ("hello there", &["hello world my friend"]),
            ("", &["x y"]),
            ("Zwölf Boxkämpfer jagen Viktor quer.", &["Zwölf Boxkämpfer jagen Viktor über den Deich."]),
            ("Il est parti hier soir.", &["Il est parti hier."]),
            ("Va !", &["Pars !"]),
            ("ab", &["abc"]),
        ];
        let mut seen = 0;
        texts.iter().for_each(|(found, references)| scores.add("x", references, found, &mut |_| seen += 1));
        let scored = scores.end();
        assert!((100.0 * scored.get("BLEU").unwrap() - 49.35808034168741).abs() < 1e-9, "{scored:?}");
        // The texts have 1, 0, 3, 2, 3, 2, 1, 1 edits; their references 6, 5, 4, 2, 7, 4, 2, 1 words; one is exact.
        let rates = ["word error rate", "exact match"].map(|name| scored.get(name));
        assert_eq!(rates, [Some(13.0 / 31.0), Some(0.125)]);
        assert_eq!((seen, scored.headline), (8, "BLEU"));
        let signature = "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:";
        assert!(scored.signatures[0].starts_with(signature));
        let interval = scored.headline().unwrap().interval.unwrap();
        assert!(interval[0] < 0.4936 && interval[1] > 0.4936, "{interval:?}");
    }

    #[test]
    fn single_words_have_no_bleu() {
        let tokenizer = Tokenizer::pieces();
        for (reference, has_bleu) in [("katze", false), ("die katze", true)] {
            let mut scores = TextScores::new([&tokenizer, &tokenizer]);
            scores.add("x", &["hund"], "hund", &mut |_| ());
            scores.add("y", &[reference], "katz", &mut |_| ());
            let scored = scores.end();
            let expected = if has_bleu { ("BLEU", 2) } else { ("chrF", 1) };
            assert_eq!((scored.headline, scored.signatures.len()), expected);
            assert_eq!(scored.get("BLEU").is_some(), has_bleu);
            assert_eq!(scored.notes.iter().any(|note| note.contains("BLEU is left out")), !has_bleu);
        }
    }

    #[test]
    fn an_error_rate_without_reference_words_is_undefined() {
        let tokenizer = Tokenizer::pieces();
        let mut scores = TextScores::new([&tokenizer, &tokenizer]);
        for found in ["two words", "one", ""] {
            scores.add("x", &[""], found, &mut |_| ());
        }
        let scored = scores.end();
        let rate = scored.figures.iter().find(|figure| figure.name == "word error rate").unwrap();
        assert!(rate.value.is_nan() && rate.interval.is_none(), "{rate:?}");
        let note = "word error rate: undefined, since the references have no words; 3 words were inserted";
        assert!(scored.notes.iter().any(|known| known == note), "{:?}", scored.notes);
    }

    #[test]
    fn sounds_have_a_phoneme_error_rate() {
        let mut scores = TextScores::new([&Tokenizer::characters(), &Tokenizer::whitespace()]);
        scores.add("cat", &["K AE T"], "K AA T", &mut |_| ());
        scores.add("read", &["R IY D", "R EH D"], "R EH D", &mut |_| ());
        let scored = scores.end();
        assert_eq!(scored.headline, "phoneme error rate");
        assert_eq!(scored.get("phoneme error rate"), Some(1.0 / 6.0));
        assert_eq!((scored.get("word error rate"), scored.get("exact match")), (Some(0.5), Some(0.5)));
        assert!(scored.signatures[0].contains("|nrefs:var|") && scored.signatures[0].contains("|tok:none|"));
    }
}
