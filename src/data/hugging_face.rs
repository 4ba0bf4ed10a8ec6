//! Tokenizers from `tokenizer.json` files of Hugging Face, which the crate `tokenizers` reads.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::catch_unwind;

use serde_json::Value;

use super::vocabulary::TokenCounts;
use super::{Limits, Vocabulary};
use crate::error::{Error, ErrorKind, Result};

/// The kinds of tokenizer models that are accepted.
const MODELS: [&str; 4] = ["BPE", "Unigram", "WordLevel", "WordPiece"];
/// Maximum number of unused ids below the largest id of a token; a file with more unused ids is refused.
const GAPS: usize = 1 << 16;

/// A Hugging Face tokenizer, and the text of its `tokenizer.json` file.
pub(super) struct HuggingFace {
    json: String,
    cutter: tokenizers::Tokenizer,
    /// The token of each id; an unused id has a placeholder.
    tokens: Vec<String>,
    unknown: Option<i64>,
    /// The ids of the special tokens, which never result from tokenizing a text.
    specials: HashSet<u32>,
}

impl PartialEq for HuggingFace {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for HuggingFace {}

impl Hash for HuggingFace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.json.hash(state);
    }
}

impl fmt::Debug for HuggingFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HuggingFace").field("tokens", &self.tokens.len()).finish_non_exhaustive()
    }
}

impl HuggingFace {
    /// Makes a tokenizer of `json`, the text of a `tokenizer.json` file; messages show `name` as the name of the file.
    pub(super) fn new(name: &str, json: String) -> Result<Self> {
        let wrong = |expected: &str, got: String| {
            Error::of(ErrorKind::Format, format!("tokenizer `{name}`"), expected, got)
        };
        let expected = "a `tokenizer.json` of Hugging Face's";
        let parsed: Value =
            serde_json::from_str(&json).map_err(|e| wrong(expected, format!("no JSON ({e})")))?;
        let Some(model) = parsed.get("model").and_then(Value::as_object) else {
            return Err(wrong(expected, "JSON without a `model`".to_owned()));
        };
        if let Some(kind) = model.get("type").filter(|kind| !MODELS.iter().any(|known| *kind == known)) {
            let known = format!("a model of type `{}`", MODELS.join("`, `"));
            return Err(wrong(&known, format!("a model of type {kind}")));
        }
        // The crate `tokenizers` panics on some invalid merges; the panic becomes an error here.
        let read = catch_unwind(|| tokenizers::Tokenizer::from_bytes(&json).map_err(|e| e.to_string()));
        let mut cutter = read
            .unwrap_or_else(|_| Err("its reader stopped".to_owned()))
            .map_err(|reason| wrong(expected, format!("a tokenizer that cannot be read ({reason})")))?;
        // Padding and truncation, which the file may set, are switched off.
        cutter.with_padding(None);
        cutter.with_truncation(None).map_err(|e| wrong(expected, e.to_string()))?;
        // The spelling of a special token within a text is tokenized as ordinary text.
        cutter.set_encode_special_tokens(true);

        let known = cutter.get_vocab(true);
        let count = known.values().max().map_or(0, |&last| last as usize + 1);
        if known.is_empty() || count - known.len().min(count) > GAPS {
            return Err(wrong(
                "tokens numbered from 0 on",
                format!("{} tokens with ids below {count}", known.len()),
            ));
        }
        let mut tokens = vec![String::new(); count];
        for (token, id) in known {
            if let Some(slot) = tokens.get_mut(id as usize) {
                if !slot.is_empty() {
                    return Err(wrong("one token per id", format!("`{slot}` and `{token}` with id {id}")));
                }
                *slot = token;
            }
        }
        let gaps = tokens.iter_mut().enumerate().filter(|(_, token)| token.is_empty());
        gaps.for_each(|(id, token)| *token = format!("<no token {id}>"));

        let of_name = |key: &str| Some(cutter.token_to_id(model.get(key)?.as_str()?)?.into());
        let unknown = of_name("unk_token").or_else(|| model.get("unk_id")?.as_i64());
        let added = cutter.get_added_tokens_decoder();
        let specials = added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        let found = Self { json, cutter, tokens, unknown, specials };
        // A character that occurs in no text is tokenized, as a test: an error shows that the file has no token for
        // unknown text.
        match found.cutter.encode("\u{10fffd}", false) {
            Ok(_) => Ok(found),
            Err(e) => Err(wrong("a token for unknown text", format!("none ({e})"))),
        }
    }

    /// The text of the `tokenizer.json` file.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// Tokenizes a text. A text that cannot be tokenized, for example because a regular expression takes too long,
    /// becomes one unknown token.
    pub(super) fn pieces(&self, text: &str) -> Vec<String> {
        match self.ids(text) {
            Some(ids) => ids.iter().filter_map(|&id| self.tokens.get(id as usize).cloned()).collect(),
            None => vec![text.to_owned()],
        }
    }

    /// Returns the ids of the tokens of a text; `None` if the text cannot be tokenized. A model without merges may
    /// produce a special token, which is replaced by the unknown token. If the file has no unknown token, the special
    /// token is left out.
    fn ids(&self, text: &str) -> Option<Vec<u32>> {
        let encoded = self.cutter.encode_fast(text, false).ok()?;
        let unknown = self.unknown.and_then(|id| u32::try_from(id).ok());
        let of_text = |&id: &u32| if self.specials.contains(&id) { unknown } else { Some(id) };
        Some(encoded.get_ids().iter().filter_map(of_text).collect())
    }

    /// Decodes tokens to text; special tokens are left out.
    pub(super) fn join<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> String {
        let ids = tokens.into_iter().filter_map(|token| self.cutter.token_to_id(token.as_ref()));
        let ids: Vec<u32> = ids.collect();
        self.cutter.decode(&ids, true).unwrap_or_else(|_| {
            ids.iter().filter_map(|&id| self.tokens.get(id as usize)).map(String::as_str).collect()
        })
    }

    /// Returns a vocabulary of all tokens of the file with their ids, and their counts in `counted`. Special tokens of
    /// `limits` that the file lacks are added at the end.
    pub(super) fn vocabulary(&self, counted: &TokenCounts, limits: &Limits) -> Result<Vocabulary> {
        // The special token for unknown text is never added: the file has such a token, or can tokenize every text.
        let more = limits
            .specials
            .iter()
            .filter(|special| *special != Vocabulary::UNKNOWN && self.cutter.token_to_id(special).is_none());
        let own = self.tokens.iter().map(|token| (token.clone(), counted.count(token)));
        let more: Vec<(String, u64)> = more.map(|special| (special.clone(), 0)).collect();
        let specials = self.tokens.len()..self.tokens.len() + more.len();
        Vocabulary::new(own.chain(more), specials, self.unknown)
            .map_err(|token| Error::new("tokens of a vocabulary", "each once", format!("`{token}` twice")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_spells_a_special_token_is_text() {
        let added = |id: u32, token: &str| {
            format!(
                "{{\"id\": {id}, \"content\": \"{token}\", \"special\": true, \"single_word\": false, \"lstrip\": false, \
                 \"rstrip\": false, \"normalized\": false}}"
            )
        };
        let tokenizer = |vocabulary: &str, split: &str| {
            let json = format!(
                "{{\"version\": \"1.0\", \"added_tokens\": [{}, {}], \"pre_tokenizer\": {{\"type\": \"{split}\"}}, \
                 \"model\": {{\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", \"vocab\": {vocabulary}}}}}",
                added(0, "<unk>"),
                added(1, "</s>")
            );
            HuggingFace::new("x.json", json).unwrap()
        };
        let own = "{\"<unk>\": 0, \"</s>\": 1, \"end\": 2, \"</\": 3, \"s\": 4, \">\": 5}";
        let pieces = tokenizer(own, "Whitespace");
        assert_eq!(pieces.pieces("end </s> end"), ["end", "</", "s", ">", "end"]);
        let words = tokenizer(own, "WhitespaceSplit");
        assert_eq!(words.pieces("end </s> end"), ["end", "<unk>", "end"]);
        let limits = Limits { specials: vec!["</s>".to_owned()], ..Limits::default() };
        let counted = words.vocabulary(["end </s>"], &limits).unwrap();
        assert_eq!((counted.special("</s>").unwrap(), counted.count(1), counted.count(0)), (1, 0, 1));
    }
}
