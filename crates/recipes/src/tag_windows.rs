//! Tagging of a text that exceeds the memory limit, in overlapping windows of words.

use unpadded::Result;

/// Tags a text in windows of equal size: half of the text, a quarter, and so on, until a window fits the memory limit. Each
/// window is read with `overlap` further words at either end, because a model may read in both directions; the tags of the
/// further words are discarded. `tag` returns the tags of words.
///
/// # Errors
/// The errors of `tag`. If a window exceeds the memory limit, a smaller window is tried first, unless the window has at most
/// `overlap` words without the further words.
pub(super) fn tags<W>(
    words: &[W],
    overlap: usize,
    tag: &mut dyn FnMut(&[W]) -> Result<Vec<i64>>,
) -> Result<Vec<i64>> {
    let mut size = words.len();
    loop {
        size = size.div_ceil(2).max(1);
        match in_windows(words, size, overlap, tag) {
            Err(error) if error.is_over_limit() && size > overlap => (),
            outcome => return outcome,
        }
    }
}

fn in_windows<W>(
    words: &[W],
    size: usize,
    overlap: usize,
    tag: &mut dyn FnMut(&[W]) -> Result<Vec<i64>>,
) -> Result<Vec<i64>> {
    let mut tags = Vec::with_capacity(words.len());
    for start in (0..words.len()).step_by(size) {
        let end = words.len().min(start.saturating_add(size));
        let (from, to) = (start.saturating_sub(overlap), words.len().min(end.saturating_add(overlap)));
        let found = tag(words.get(from..to).unwrap_or_default())?;
        tags.extend_from_slice(found.get(start - from..end - from).unwrap_or_default());
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unpadded::{Error, ErrorKind};

    /// Returns, as the tag of each word, the sum of the word and its two neighbours. Returns an error for more than `most`
    /// words. Sets `seen` to the largest number of words of all calls.
    fn sums(most: usize, seen: &mut usize, words: &[i64]) -> Result<Vec<i64>> {
        if words.len() > most {
            let got = words.len().to_string();
            return Err(Error::of(ErrorKind::Memory, "words", most.to_string(), got).over_limit());
        }
        *seen = (*seen).max(words.len());
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        Ok((0..words.len()).map(|i| at(i.wrapping_sub(1)) + at(i) + at(i + 1)).collect())
    }

    #[test]
    fn windows_that_overlap_enough_give_the_tags_of_the_whole_text() {
        for n in [1, 2, 7, 64, 100] {
            let words: Vec<i64> = (0..n).map(|i| i * i % 13).collect();
            let whole = sums(usize::MAX, &mut 0, &words).unwrap();
            for most in [8, 20, 200] {
                let mut seen = 0;
                let found = tags(&words, 2, &mut |words| sums(most, &mut seen, words)).unwrap();
                assert_eq!(found, whole, "{n} words, at most {most}");
                assert!(seen <= most);
            }
        }
        let words = [1; 100];
        let error = tags(&words, 5, &mut |words| sums(8, &mut 0, words)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
        // Without an overlap, the tags at the ends of the windows are wrong.
        let cut = tags(&words, 0, &mut |words| sums(8, &mut 0, words)).unwrap();
        assert!(cut.iter().filter(|&&sum| sum == 2).count() > 2 && cut.len() == 100);
    }
}
