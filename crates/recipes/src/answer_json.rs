//! Answers as JSON: the one form that the command and servers write.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::answer::{Answer, Entity};

/// An answer as a JSON object.
///
/// | task | fields |
/// |---|---|
/// | a label | `label`, `probability`, `probabilities` (an object: label to probability) |
/// | several labels | `labels`, `probabilities` |
/// | a number | `number` |
/// | tags | `words`, `tags`, `spans` (start and end of each word), `entities` (label, start, end, text), and `label` with `probability` if the model predicts labels |
/// | a translation or a continuation | `found`; several translations are in `best`, each with its `score` |
/// | a text without a word | `answer`, which is `null` |
///
/// Starts and ends are offsets in code points (`str` in Python has the same), from the beginning of the text.
#[derive(Debug, Clone, Copy)]
pub struct AnswerJson<'a> {
    /// The text that the model answered.
    pub text: &'a str,
    /// The answer.
    pub answer: &'a Answer,
    /// Whether the object has the text, in the field `text`.
    pub echo: bool,
    /// The number of code points that were cut from the beginning of the text; offsets count them.
    pub offset: usize,
}

impl Serialize for AnswerJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.echo {
            map.serialize_entry("text", self.text)?;
        }
        match self.answer {
            Answer::Label { label, probability, all, .. } => {
                map.serialize_entry("label", label)?;
                map.serialize_entry("probability", probability)?;
                map.serialize_entry("probabilities", &Probabilities(all))?;
            }
            Answer::Labels { labels, all, .. } => {
                map.serialize_entry("labels", labels)?;
                map.serialize_entry("probabilities", &Probabilities(all))?;
            }
            Answer::Number(number) => map.serialize_entry("number", number)?,
            Answer::Empty => map.serialize_entry("answer", &())?,
            Answer::Tags { words, tags, entities, label } => {
                let spans = spans(self.text, words, self.offset);
                map.serialize_entry("words", words)?;
                map.serialize_entry("tags", tags)?;
                map.serialize_entry("spans", &spans)?;
                map.serialize_entry(
                    "entities",
                    &Entities { text: self.text, entities, spans: &spans, offset: self.offset },
                )?;
                if let Some((label, probability)) = label {
                    map.serialize_entry("label", label)?;
                    map.serialize_entry("probability", probability)?;
                }
            }
            Answer::Text(found) => map.serialize_entry("found", found)?,
            Answer::Ranked(texts) => {
                map.serialize_entry("found", texts.first().map_or("", |(found, _)| found))?;
                map.serialize_entry("best", &Ranked(texts))?;
            }
        }
        map.end()
    }
}

/// Returns the start and the end of each word in code points; the words are in the text, in this order.
fn spans(text: &str, words: &[String], offset: usize) -> Vec<[usize; 2]> {
    let (mut rest, mut at) = (text, offset);
    let span = |word: &String| {
        let before = rest.find(word.as_str()).unwrap_or(0);
        at += rest[..before].chars().count();
        let start = at;
        at += word.chars().count();
        rest = rest.get(before + word.len()..).unwrap_or_default();
        [start, at]
    };
    words.iter().map(span).collect()
}

struct Probabilities<'a>(&'a [(String, f32)]);

impl Serialize for Probabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(label, p)| (label, p)))
    }
}

struct Ranked<'a>(&'a [(String, f64)]);

impl Serialize for Ranked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (found, score) in self.0 {
            list.serialize_element(&serde_json::json!({"found": found, "score": score}))?;
        }
        list.end()
    }
}

struct Entities<'a> {
    text: &'a str,
    entities: &'a [Entity],
    spans: &'a [[usize; 2]],
    offset: usize,
}

impl Serialize for Entities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.entities.len()))?;
        // The entities are in the order of the text, so the text is read only once.
        let (mut rest, mut at) = (self.text.chars(), self.offset);
        for Entity { label, words } in self.entities {
            let span = |word: usize| self.spans.get(word).copied().unwrap_or_default();
            let ([start, _], [_, end]) = (span(words.start), span(words.end.saturating_sub(1)));
            let text: String =
                rest.by_ref().skip(start.saturating_sub(at)).take(end.saturating_sub(start)).collect();
            at = end;
            let object = serde_json::json!({"label": label, "start": start, "end": end, "text": text});
            list.serialize_element(&object)?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_code_points_of_the_text() {
        let words = ["naïve", "née", "née", "𝄞x"].map(str::to_owned);
        let text = "  naïve née\tnée 𝄞x ";
        let found = spans(text, &words, 0);
        let characters: Vec<char> = text.chars().collect();
        for ([start, end], word) in found.iter().zip(&words) {
            assert_eq!(characters[*start..*end].iter().collect::<String>(), *word);
        }
        let entities =
            vec![Entity { label: "A".into(), words: 0..2 }, Entity { label: "B".into(), words: 3..4 }];
        let answer = Answer::Tags { words: words.into(), tags: vec![], entities, label: None };
        let json =
            serde_json::to_value(AnswerJson { text, answer: &answer, echo: false, offset: 0 }).unwrap();
        assert_eq!(json["entities"][0]["text"], "naïve née");
        assert_eq!((&json["entities"][1]["text"], &json["entities"][1]["start"]), (&"𝄞x".into(), &16.into()));
    }
}
