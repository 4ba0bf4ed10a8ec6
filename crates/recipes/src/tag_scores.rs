//! Scores of a tagger: by token, by chunk, by label, and by whole text.

use std::collections::{BTreeMap, HashMap};

use unpadded::Result;
use unpadded::data::{TagScheme, Vocabulary};
use unpadded::metrics::{ChunkRule, Unit, counted, ratio};
use unpadded_text::{TaggedText, Tagging};

use super::by_length::ByLength;
use super::evaluation::{
    EachOutcome, Evaluation, NamedFigure, Outcome, ScoreRow, ScoreSums, ScoreTable, Tally, f1_of, macro_f1,
};
use super::labels::trained_id;
use super::sample::FigureFn;

/// The columns of a bootstrap sample: right and all tokens; right, predicted and true chunks, by conlleval's rule and strictly;
/// right and all labels; right and all texts.
const TOKENS: usize = 0;
const CHUNKS: [usize; 2] = [2, 5];
const LABELS: usize = 8;
const FRAMES: usize = 10;
const COLUMNS: usize = 12;

/// A mark of chunks that the model cannot learn: no true chunk has it, so that they are wrong.
const UNTRAINED: char = '\0';

const SPANS: [ChunkRule; 2] = [ChunkRule::Lenient, ChunkRule::Strict];

pub(super) struct TagScores<'a> {
    tags: &'a Vocabulary,
    tagging: Tagging,
    /// The standard spelling of the tags of the vocabulary, by their ids, and of each tag that training never saw.
    standard: Vocabulary,
    others: HashMap<String, String>,
    /// The standard spelling of each predicted tag, by its id. The kind of a tag that training never saw ends with [`UNTRAINED`].
    guesses: Vec<String>,
    of_tags: Tally,
    labels: Option<(&'a Vocabulary, Tally)>,
    types: [BTreeMap<String, [f64; 3]>; 2],
    sums: ScoreSums,
}

/// The predictions for a text: the ids of its tags, and its label (`None` if the model predicts no labels).
pub(super) struct FoundTags<'a> {
    pub(super) tags: &'a [i64],
    pub(super) label: Option<&'a str>,
}

impl<'a> TagScores<'a> {
    pub(super) fn new(
        tags: &'a Vocabulary,
        labels: Option<&'a Vocabulary>,
        tagging: &Tagging,
    ) -> Result<Self> {
        let standard = tagging.standard(tags)?;
        let guess = |(tag, id): (&str, i64)| match tagging.scheme.kind(tag) {
            Ok(Some(_)) if tags.count(id) == 0 => format!("{tag}{UNTRAINED}"),
            _ => tag.to_owned(),
        };
        let guesses = standard.tokens().zip(0..).map(guess).collect();
        let labels = labels.map(|labels| (labels, Tally::new("label", labels.tokens())));
        let sums = ScoreSums::new(ByLength::new("wrong tags", Unit::Share).by("length in words"));
        let (of_tags, tagging) = (Tally::new("tag", tags.tokens()), tagging.clone());
        let (others, types) = Default::default();
        Ok(Self { tags, tagging, standard, others, guesses, of_tags, labels, types, sums })
    }

    /// Scores a text; `number` is the position of the text in the file, counted from 1.
    pub(super) fn add(
        &mut self,
        text: &TaggedText,
        number: u64,
        found: &FoundTags<'_>,
        each: EachOutcome<'_>,
    ) -> Result<()> {
        let location = |word| text.location_of(word).unwrap_or_else(|| format!("text {number}"));
        let mut right = 0;
        for (word, (truth, &guess)) in text.tags.iter().zip(found.tags).enumerate() {
            let id = trained_id(self.tags, truth);
            let guessed = usize::try_from(guess).unwrap_or(usize::MAX);
            self.of_tags.add(truth, id, guessed, || location(word));
            right += usize::from(id == Some(guessed));
            if self.tags.id(truth).is_none() && !self.others.contains_key(truth) {
                let standard = self.other(truth)?;
                self.others.insert(truth.clone(), standard);
            }
        }
        let whole = right == text.tags.len();
        let mut counts = vec![(TOKENS, right as f64), (TOKENS + 1, text.tags.len() as f64)];
        if self.tagging.scheme != TagScheme::Plain {
            let guesses = found.tags.iter().map(|&id| self.guesses.get(id as usize));
            let guesses: Vec<&str> = guesses.map(|tag| tag.map_or("O", String::as_str)).collect();
            let truths = text.tags.iter().map(|tag| match self.tags.id(tag) {
                Some(id) => self.standard.token(id),
                None => self.others.get(tag).map(String::as_str),
            });
            let truths: Vec<&str> = truths.map(|tag| tag.unwrap_or("O")).collect();
            for ((spans, column), types) in SPANS.into_iter().zip(CHUNKS).zip(&mut self.types) {
                for (kind, chunk) in counted(self.tagging.scheme, spans, &guesses, &truths)? {
                    let kind = kind.strip_suffix(UNTRAINED).unwrap_or(kind);
                    let sums = match types.get_mut(kind) {
                        Some(sums) => sums,
                        None => types.entry(kind.to_owned()).or_default(),
                    };
                    sums.iter_mut().zip(chunk).for_each(|(sum, one)| *sum += one);
                    counts.extend((column..).zip(chunk));
                }
            }
        }
        if let (Some((labels, tally)), Some(truth)) = (&mut self.labels, &text.label) {
            let label_id = |label: &str| labels.id(label).and_then(|id| usize::try_from(id).ok());
            let guess = found.label.and_then(label_id).unwrap_or(usize::MAX);
            let id = trained_id(labels, truth);
            tally.add(truth, id, guess, || location(0));
            let right = id == Some(guess);
            let share = |is: bool| f64::from(u8::from(is));
            counts.extend([(LABELS, share(right)), (LABELS + 1, 1.0)]);
            counts.extend([(FRAMES, share(right && whole)), (FRAMES + 1, 1.0)]);
        }
        let words = text.tags.len();
        self.sums.add(counts, words, [(words - right) as f64, words as f64]);
        let tags: Vec<&str> = found.tags.iter().map(|&id| self.tags.token(id).unwrap_or_default()).collect();
        let shown = |tags: String, label: Option<&str>| match label {
            Some(label) => format!("{tags}  {label}"),
            None => tags,
        };
        let truth_label = text.label.as_deref().filter(|_| self.labels.is_some());
        each(Outcome {
            text: &text.words.join(" "),
            asked: &text.words.iter().flat_map(|word| [word, "\n"]).collect::<String>(),
            truth: &shown(text.tags.join(" "), truth_label),
            found: &shown(tags.join(" "), found.label),
        });
        Ok(())
    }

    /// Returns the standard spelling of an unseen tag; a tag of another scheme becomes a chunk of one word.
    fn other(&self, tag: &str) -> Result<String> {
        let spelled = Vocabulary::labels([tag]).and_then(|one| self.tagging.standard(&one));
        let spelled = spelled.ok().and_then(|one| one.token(0).map(str::to_owned));
        match spelled.filter(|tag| self.tagging.scheme.kind(tag).is_ok()) {
            Some(standard) => Ok(standard),
            None => Ok(self.tagging.scheme.of_one_word(tag)),
        }
    }

    pub(super) fn end(self) -> Evaluation {
        let Self { tagging: Tagging { scheme, .. }, of_tags, labels, types, sums, .. } = self;
        let total = sums.sample.total(COLUMNS);
        let tokens = FigureFn::Of(|x| ratio(x[TOKENS], x[TOKENS + 1]));
        let mut figures: Vec<NamedFigure> = Vec::new();
        if scheme != TagScheme::Plain {
            figures.push(("chunk F1", Unit::Share, FigureFn::Of(|x| f1_of(&x[CHUNKS[0]..]))));
            figures.push(("strict chunk F1", Unit::Share, FigureFn::Of(|x| f1_of(&x[CHUNKS[1]..]))));
        }
        figures.push(("token accuracy", Unit::Share, tokens));
        if total[LABELS + 1] > 0.0 {
            figures.push(("label accuracy", Unit::Share, FigureFn::Share(LABELS, LABELS + 1)));
            figures.push(("frame accuracy", Unit::Share, FigureFn::Share(FRAMES, FRAMES + 1)));
        }
        let (rows, confusion) = (of_tags.rows(), of_tags.confusion());
        let mut scored = sums.end(COLUMNS, &figures, of_tags.unseen_ones());
        scored.confusions.push(confusion);
        scored.counts.push(("tokens", total[TOKENS + 1] as u64));
        if scheme == TagScheme::Plain {
            scored = scored.with("macro F1", Unit::Share, macro_f1(&rows));
            scored.tables.push(ScoreTable { of: "tag", rows });
        } else {
            let named = ["chunk type", "chunk type, strict"].into_iter().zip(types);
            let row = |(name, counts): (String, [f64; 3])| ScoreRow::new(name, counts.map(|x| x as u64));
            let table =
                |(what, types)| ScoreTable { of: what, rows: BTreeMap::into_iter(types).map(row).collect() };
            scored.tables.extend(named.map(table));
        }
        if let Some((_, tally)) = labels.filter(|_| total[LABELS + 1] > 0.0) {
            scored.tables.push(ScoreTable { of: "label", rows: tally.rows() });
            scored.confusions.push(tally.confusion());
            scored.unseen.extend(tally.unseen_ones());
        }
        scored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Text = (&'static str, &'static str, &'static str);

    fn scored(tags: &Vocabulary, tagging: &Tagging, texts: &[Text]) -> Evaluation {
        let labels = Vocabulary::labels(["ask", "tell"]).unwrap();
        let mut scores = TagScores::new(tags, Some(&labels), tagging).unwrap();
        for (number, (truth, found, label)) in (1..).zip(texts) {
            let truth: Vec<String> = truth.split(' ').map(str::to_owned).collect();
            let mut text = TaggedText::new(vec!["x".to_owned(); truth.len()], truth);
            text.label = (!label.is_empty()).then(|| (*label).to_owned());
            let ids = tags.ids(found.split(' ')).unwrap();
            scores.add(&text, number, &FoundTags { tags: &ids, label: Some("ask") }, &mut |_| ()).unwrap();
        }
        scores.end()
    }

    fn tagging(scheme: &str) -> Tagging {
        Tagging::of_note(&format!("{scheme} B-kind I-kind E-kind S-kind O")).unwrap()
    }

    /// The true chunks are PER, LOC, PER and (not in training) ORG; predicted are PER, a wrong PER for LOC, and a PER from `I` on.
    const TEXTS: [Text; 3] = [
        ("B-PER I-PER O B-LOC", "B-PER I-PER O B-PER", "ask"),
        ("O B-PER", "O I-PER", "tell"),
        ("B-ORG O", "O O", ""),
    ];

    #[test]
    fn chunks_labels_and_frames_are_counted_by_hand() {
        let tags = Vocabulary::labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]).unwrap();
        let scheme = tagging("IOB2");
        let scored = scored(&tags, &scheme, &TEXTS);
        // By conlleval, 2 of 3 predicted chunks are right, of 4 true ones; strictly, `I-PER` after `O` is none, so 1 of 2.
        assert_eq!((scored.headline, scored.get("chunk F1")), ("chunk F1", Some(4.0 / 7.0)));
        assert_eq!(scored.get("strict chunk F1"), Some(2.0 / 6.0));
        assert_eq!(scored.get("token accuracy"), Some(5.0 / 8.0));
        assert_eq!((scored.get("label accuracy"), scored.get("frame accuracy")), (Some(0.5), Some(0.0)));
        let row = |scheme: &str, name: &str| {
            let table = scored.tables.iter().find(|table| table.of == scheme).unwrap();
            let row = table.rows.iter().find(|row| row.name == name).unwrap();
            (row.right, row.found, row.support)
        };
        assert_eq!((row("chunk type", "PER"), row("chunk type", "LOC")), ((2, 3, 2), (0, 0, 1)));
        assert_eq!((row("chunk type, strict", "PER"), row("chunk type", "ORG")), ((1, 2, 2), (0, 0, 1)));
        assert_eq!((row("label", "ask"), row("label", "tell")), ((1, 2, 1), (0, 0, 1)));
        let [unseen] = &scored.unseen[..] else { panic!("{:?}", scored.unseen) };
        assert_eq!((unseen.what, unseen.name.as_str(), unseen.count), ("tag", "B-ORG", 1));
        assert_eq!(unseen.places, ["text 3"]);
    }

    #[test]
    fn the_order_of_texts_changes_nothing() {
        let tags = Vocabulary::labels(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]).unwrap();
        let what = tagging("IOB2");
        let (one, two) =
            (scored(&tags, &what, &TEXTS), scored(&tags, &what, &[TEXTS[2], TEXTS[0], TEXTS[1]]));
        assert_eq!((one.figures, one.tables, one.confusions), (two.figures, two.tables, two.confusions));
    }

    /// Checks that a tag that is not of the scheme counts as a chunk of one word, which the model cannot predict.
    #[test]
    fn a_tag_of_no_scheme_is_wrong() {
        let tags = Vocabulary::labels(["O", "B-PER", "I-PER"]).unwrap();
        let scored = scored(&tags, &tagging("IOB2"), &[("PERSON O B-PER", "O O B-PER", "")]);
        assert_eq!(["chunk F1", "token accuracy"].map(|name| scored.get(name)), [Some(2.0 / 3.0); 2]);
        assert_eq!(scored.get("label accuracy"), None);
    }

    /// Checks that the figures and the table agree about a tag that the vocabulary has only from the held-out texts.
    #[test]
    fn a_predicted_tag_that_training_never_saw_is_wrong() {
        let tags = Vocabulary::counted([("DET", 5), ("NOUN", 0)]).unwrap();
        let scored = scored(&tags, &tagging("plain"), &[("DET NOUN", "DET NOUN", "")]);
        assert_eq!((scored.get("token accuracy"), scored.unseen[0].count), (Some(0.5), 1));
        assert_eq!(scored.tables[0].rows.iter().map(|row| row.right).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_predicted_chunk_that_training_never_saw_is_wrong() {
        let tags = Vocabulary::counted([("B-ORG", 0), ("B-PER", 5), ("O", 5)]).unwrap();
        let scored = scored(&tags, &tagging("IOB2"), &[("B-ORG O B-PER", "B-ORG O B-PER", "")]);
        assert_eq!((scored.get("chunk F1"), scored.get("strict chunk F1")), (Some(0.5), Some(0.5)));
        let counts = scored.tables[0].rows.iter().map(|row| (&*row.name, row.right, row.found, row.support));
        assert_eq!(counts.collect::<Vec<_>>(), [("ORG", 0, 1, 1), ("PER", 1, 1, 1)]);
    }

    #[test]
    fn plain_tags_are_scored_token_by_token() {
        let tags = Vocabulary::labels(["DET", "NOUN", "VERB"]).unwrap();
        let what = tagging("plain");
        let scored = scored(&tags, &what, &[("DET NOUN VERB", "DET NOUN NOUN", ""), ("NOUN", "NOUN", "")]);
        assert_eq!((scored.headline, scored.get("token accuracy")), ("token accuracy", Some(0.75)));
        assert_eq!(scored.get("chunk F1"), None);
        // F1 is 1 for DET, 2 · 2 / (3 + 2) for NOUN, and 0 for VERB.
        assert!((scored.get("macro F1").unwrap() - 1.8 / 3.0).abs() < 1e-12);
        let table = scored.tables.first().unwrap();
        assert_eq!((table.of, table.rows.iter().map(|row| row.support).sum::<u64>()), ("tag", 4));
    }
}
