//! Pairs of texts, and their batches for translation models.

use std::collections::HashMap;

use unpadded::data::{Fingerprint, Limits, Loader, Tokenizer, Vocabulary};
use unpadded::{AtCaller, Error, Result};

use super::data_set::RecordStorage;
use crate::source::records::shown;
use crate::{DataSet, Pair, TextFile};

/// A data set of pairs of a source and a target text, such as sentences and their translations, in memory. A source
/// text may occur in several pairs with different targets.
///
/// [`DataSet::open`] reads these paths:
/// - a file with columns between tabs or commas;
/// - a file of JSON Lines or Parquet;
/// - a pronouncing dictionary in the format of CMUdict; stress marks are removed;
/// - several files, by a pattern such as `data/*.tsv`;
/// - two parallel files, as in `train.{de,en}`, where the file of the sources comes first;
/// - a file in a zip, as in `some.zip!file`.
///
/// If columns between tabs have no header, the source is the first column and the target is the second column, as in
/// [`Pairs::of_lines`]. A zip with several files is read if the names of all files but one begin with `_`. Files with
/// such names are notes.
///
/// ```
/// use unpadded::data::{Data, Limits, Tokenizer, Vocabulary};
/// use unpadded_text::{Pairs, TextFile};
/// let file = TextFile::embedded("some.tsv", "Go.\tVa !\nGo.\tAllez !\nRun!\tCours !\tCC-BY 2.0\n");
/// let pairs = Pairs::of_lines(&file)?;
/// assert_eq!(pairs.by_source(), [("Go.", vec!["Va !", "Allez !"]), ("Run!", vec!["Cours !"])]);
///
/// let tokenizer = Tokenizer::pieces();
/// let ends = ["<s>", "</s>"].map(String::from);
/// let limits = Limits::default().specials([&ends[..], &[Vocabulary::UNKNOWN.to_owned()]].concat());
/// let (from, to) = (pairs.sources(&tokenizer, &Limits::default())?, pairs.targets(&tokenizer, &limits)?);
/// let train = pairs.loader(["source", "given", "next"], [&tokenizer, &tokenizer], [&from, &to], ["<s>", "</s>"])?;
/// let batch = train.batches(None, 0)?.next().unwrap()?;
/// let read = |feed: usize| batch.values[feed].1.as_slice::<i64>().unwrap().iter().map(|&id| to.token(id).unwrap());
/// assert_eq!(read(1).collect::<Vec<_>>(), ["<s>", "Va", "!", "<s>", "Allez", "!", "<s>", "Cours", "!"]);
/// assert_eq!(read(2).collect::<Vec<_>>(), ["Va", "!", "</s>", "Allez", "!", "</s>", "Cours", "!", "</s>"]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type Pairs = DataSet<Pair>;

impl Pairs {
    /// Reads lines of `source<TAB>target`; a third column is allowed, as in [`TextFile::translations`].
    ///
    /// # Errors
    /// Fails if the file cannot be read, has no pair, or has a malformed line.
    #[track_caller]
    pub fn of_lines(file: &TextFile) -> Result<Self> {
        Ok(Self::new(&file.name(), file.translations()?.read_all().at_caller()?))
    }

    /// Groups the targets, the reference translations, by source, in the order in which the sources first occur.
    pub fn by_source(&self) -> Vec<(&str, Vec<&str>)> {
        let (mut places, mut found) = (HashMap::new(), Vec::<(&str, Vec<&str>)>::new());
        for Pair { source, target, .. } in &self.records {
            let position = *places.entry(source.as_str()).or_insert(found.len());
            match found.get_mut(position) {
                Some((_, targets)) => targets.push(target),
                None => found.push((source, vec![target])),
            }
        }
        found
    }
}

impl<S: RecordStorage<Pair>> DataSet<Pair, S> {
    /// Returns the vocabulary of the source texts, built by [`Tokenizer::vocabulary`].
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn sources(&self, tokenizer: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        self.vocabulary_of(|pair| &pair.source, tokenizer, limits).at_caller()
    }

    /// Returns the vocabulary of the target texts, built by [`Tokenizer::vocabulary`].
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn targets(&self, tokenizer: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        self.vocabulary_of(|pair| &pair.target, tokenizer, limits).at_caller()
    }

    /// Returns a loader of batches for three feeds:
    /// - the token ids of the source;
    /// - the input of the decoder: the id of `ends[0]`, then the token ids of the target;
    /// - the target of the decoder: the token ids of the target, then the id of `ends[1]`.
    ///
    /// The first tokenizer and vocabulary are for source texts; the second tokenizer and vocabulary are for target
    /// texts. Files are read once, so that errors are reported before the first epoch; each epoch reads them again. In
    /// files, [`Loader::shuffle`] shuffles within a window of [`Loader::buffer`] pairs.
    ///
    /// # Errors
    /// Fails as [`Loader::new`] does, or if there is no pair, if a vocabulary lacks a token or one of the `ends`, or if a
    /// file has an error.
    #[track_caller]
    pub fn loader(
        &self,
        feeds: [&str; 3],
        cuts: [&Tokenizer; 2],
        known: [&Vocabulary; 2],
        ends: [&str; 2],
    ) -> Result<Loader> {
        let start = known[1].special(ends[0]).at_caller()?;
        let stop = known[1].special(ends[1]).at_caller()?;
        let (name, own) = (self.name.clone(), (cuts.map(Tokenizer::clone), known.map(Vocabulary::clone)));
        let sample = move |Pair { source, target, .. }: &Pair| {
            let ([source_tokenizer, target_tokenizer], [from, to]) = &own;
            let noted = |e: Error, text: &str| e.noted(format!("a token of {} in `{name}`", shown(text)));
            let source = from.ids(source_tokenizer.tokens(source)).map_err(|e| noted(e, source))?;
            let mut next = to.ids(target_tokenizer.tokens(target)).map_err(|e| noted(e, target))?;
            let given = [&[start], &next[..]].concat();
            next.push(stop);
            Ok(vec![source.into(), given.into(), next.into()])
        };
        let salt = |f| {
            let f = known.iter().fold(f, |f: Fingerprint, known| f.number(known.fingerprint()));
            cuts.iter().fold(f, |f, tokenizer| f.text(&tokenizer.name())).text(ends[0]).text(ends[1])
        };
        Loader::new(S::samples(self, salt, sample).at_caller()?, &feeds)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn pairs(lines: &'static str) -> Pairs {
        Pairs::of_lines(&TextFile::embedded("some.tsv", lines)).unwrap()
    }

    #[track_caller]
    fn refused<T>(outcome: Result<T>, expected: &str) {
        let error = format!("{:#}", outcome.err().unwrap());
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn lines_have_two_or_three_columns() {
        let found = pairs("Hi.\tSalut.\tCC-BY 2.0 (France) #1\n \n\nRun!\tCours\u{202f}!\r\nGo.\tVa.\t\n");
        let targets: Vec<&str> = found.records().iter().map(|pair| pair.target.as_str()).collect();
        assert_eq!((targets, found.name()), (vec!["Salut.", "Cours\u{202f}!", "Va."], "some.tsv"));
        let read = |lines: &'static str| Pairs::of_lines(&TextFile::embedded("some.tsv", lines));
        let expected =
            "expected text, one tab and text, optionally followed by a tab and a third column, got";
        for (lines, got) in [
            ("a\tb\nno tab\n", "some.tsv:2: {} no tab in \"no tab\""),
            ("a\tb\n\n\tb\n", "some.tsv:3: {} nothing before the tab in \"\\tb\""),
            ("a\t \tc\n", "some.tsv:1: {} nothing behind the tab in \"a\\t \""),
            ("a\tb\tc\td\n", "some.tsv:1: {} 3 tabs in \"a\\tb\\tc\\td\""),
        ] {
            refused(read(lines), &got.replace("{}", expected));
        }
        refused(read("\n"), "records of file `some.tsv`: expected at least one, got none");
    }

    #[test]
    fn sources_are_held_out_whole() {
        let lines: Vec<Pair> =
            (0..300).map(|i| Pair::new(format!("s{}", i % 100 * (i % 3)), format!("t{i}"))).collect();
        let all = Pairs::new("some", lines);
        let ((rest, held), (_, other)) = (all.clone().hold_out(4, 1), all.clone().hold_out(4, 2));
        assert!(held != other && held == all.clone().hold_out(4, 1).1 && !held.records().is_empty());
        let sources: HashSet<&str> = held.records().iter().map(|pair| pair.source.as_str()).collect();
        assert!(rest.records().iter().all(|pair| !sources.contains(pair.source.as_str())));
        assert_eq!(rest.by_source().len() + held.by_source().len(), all.by_source().len());
        assert_eq!(all.clone().hold_out(0, 1), (all.clone(), Pairs::new("some, held out", [])));
    }

    #[test]
    fn errors_name_the_file() {
        let tokenizer = Tokenizer::whitespace();
        let (some, other) = (pairs("a b\tc\n"), pairs("a z\tc\n"));
        let own = |tokens: &[&str]| Vocabulary::labels(tokens).unwrap();
        let (from, to) = (own(&["a", "b"]), own(&["c", "(", ")"]));
        let load = |pairs: &Pairs, to: &Vocabulary| {
            pairs
                .loader(["source", "given", "next"], [&tokenizer, &tokenizer], [&from, to], ["(", ")"])
                .map(drop)
        };
        assert!(load(&some, &to).is_ok());
        let expected = "token: expected one of `a`, `b`, got `z`; a token of \"a z\" in `some.tsv`";
        refused(load(&other, &to), expected);
        let expected = "special token of a vocabulary: expected a special token of this vocabulary, got `)`";
        refused(load(&some, &own(&["c", "("])), expected);
        let expected = "pairs of `some.tsv, held out`: expected at least one, got none";
        refused(load(&some.clone().hold_out(0, 1).1, &to), expected);
        let expected = "tokens of a vocabulary: expected at least one token that occurs 2 times";
        refused(some.targets(&tokenizer, &Limits::default().min_count(2)), expected);
    }
}
