//! Words and how they are spoken, for `translate`: a pronouncing dictionary in the form of CMUdict.
use std::collections::HashSet;
use std::path::Path;

use sha2::{Digest, Sha256};
use unpadded::data::{Pair, Pairs, TextFile};
use unpadded::{Error, Result};

/// The words to train on, to choose by and to test on, with the phonemes of each, without stress. A word is in the test if its
/// SHA-256, taken as one number with the first byte in front, is divisible by 20; if the rest is 1, it is held out.
///
/// Lines are a word, at times with a number in brackets behind it for another way to speak it, and its phonemes, after which a
/// comment may stand behind a `#`. Lines that begin with `;;;` are comments.
pub(crate) fn pronunciations(path: &Path) -> Result<[Pairs; 3]> {
    let file = TextFile::open(path)?;
    let (mut parts, mut known) = ([Vec::new(), Vec::new(), Vec::new()], HashSet::new());
    for (line, number) in file.lines()?.read_all()?.iter().zip(1..) {
        let said = line.split('#').next().unwrap_or_default();
        if said.trim().is_empty() || line.starts_with(";;;") {
            continue;
        }
        let mut cells = said.split_whitespace();
        let word = cells.next().unwrap_or_default();
        let phonemes: Vec<&str> =
            cells.map(|phoneme| phoneme.trim_end_matches(|c: char| c.is_ascii_digit())).collect();
        if phonemes.is_empty() || phonemes.contains(&"") {
            let what = format!("{}:{number}", file.name());
            return Err(Error::new(what, "a word and its phonemes", format!("{line:?}")));
        }
        // Without stress some ways to speak a word are the same.
        let pair = Pair { source: spelling(word).to_owned(), target: phonemes.join(" ") };
        if known.insert(pair.clone()) {
            parts[part(&pair.source)].push(pair);
        }
    }
    let [train, dev, test] = parts;
    let name = file.name();
    let of = |part: &str| format!("{name}, {part}");
    Ok([Pairs::new(&name, train), Pairs::new(&of("held out"), dev), Pairs::new(&of("test"), test)])
}

/// A word without the number of the way to speak it.
fn spelling(word: &str) -> &str {
    let numbered = |(word, number): (&'_ str, &str)| {
        (!word.is_empty() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
            .then_some(word.len())
    };
    let end = word.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).and_then(numbered);
    end.map_or(word, |end| &word[..end])
}

/// The number of the part that a word is in.
fn part(word: &str) -> usize {
    let rest = Sha256::digest(word).iter().fold(0, |rest, &byte| (rest * 256 + u32::from(byte)) % 20);
    match rest {
        0 => 2,
        1 => 1,
        _ => 0,
    }
}

#[test]
fn a_dictionary_is_read_and_divided() -> Result<()> {
    let path = std::env::temp_dir().join(format!("unpadded-spoken-{}.dict", std::process::id()));
    let write =
        |text: &str| std::fs::write(&path, text).map_err(|e| Error::new("file", "room", e.to_string()));
    write(";;; spoken\na AH0\na(2) EY1\na(3) EY2\naalborg AO1 L B AO0 R G # place, danish\n\n(paren) P\n")?;
    let found = pronunciations(&path)?;
    let mut all: Vec<&Pair> = found.iter().flat_map(|part| part.pairs()).collect();
    all.sort_by_key(|pair| (&pair.source, &pair.target));
    let of = |pair: &Pair| format!("{}={}", pair.source, pair.target);
    assert_eq!(
        all.into_iter().map(of).collect::<Vec<_>>(),
        ["(paren)=P", "a=AH", "a=EY", "aalborg=AO L B AO R G"]
    );
    write("a AH0\nb\n")?;
    let refused = pronunciations(&path).map(drop).map_err(|e| e.to_string()).err().unwrap_or_default();
    assert!(refused.contains(".dict:2: expected a word and its phonemes, got \"b\""), "{refused}");
    assert_eq!(std::fs::remove_file(&path).ok(), Some(()));
    Ok(())
}

/// By sums that were computed elsewhere.
#[test]
fn parts_are_by_the_sum_as_one_number() {
    for (of, words) in [
        (0, ["aaberg", "aachen", "aachener"]),
        (1, ["aancor", "abbreviates", "abeyta"]),
        (2, ["abadie", "abdicated", "abhorred"]),
    ] {
        assert!(words.iter().all(|word| part(word) == of), "{words:?}");
    }
}
