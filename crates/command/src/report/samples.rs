//! Sections of texts with the model's answers: errors with word weights, tags, attention, translations and generated text.

use unpadded_recipes::Alignment;

use super::page::{Example, Mistake};
use super::text::{END, LABEL, TEXT, WORD, WORDS, boxed, brief, count, label, percent, put, shortened};
use crate::scores::distinct;

/// The maximum number of errors, or of examples, in a section.
const SAMPLES: usize = 50;
/// The maximum number of rows, and of columns, in a table of attention weights.
const TOKENS: usize = 40;

/// Returns the section with the worst errors, whose words are shaded by weight; `what` is a sentence on their choice.
pub(super) fn mistakes(mistakes: &[Mistake], what: &str) -> String {
    if mistakes.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"mistakes\">\n<h2 id=\"mistakes\">Worst errors</h2>\n<p class=\"note\">",
    );
    out.push_str(&shortened(what, TEXT));
    let weights = |mistake: &Mistake| largest(mistake.texts.iter().flat_map(|(_, words)| words));
    if mistakes.iter().any(|mistake| weights(mistake) > 0.0) {
        out.push_str(
            " Words shaded <span class=\"w for\" style=\"--v:.8\">red and underlined</span> support the prediction, words shaded \
             <span class=\"w against\" style=\"--v:.8\">blue and dotted</span> oppose it: gradient × input, divided by the largest of \
             the record. A pointer over a word shows its number.",
        );
    }
    out.push_str("</p>\n<ol class=\"samples\">\n");
    for mistake in mistakes.iter().take(SAMPLES) {
        let [found, truth] = [&mistake.predicted, &mistake.truth].map(|what| label(what));
        let size = shortened(&mistake.size, LABEL);
        put!(
            out,
            "<li class=\"card\">\n<p class=\"verdict\"><span class=\"bad\">{found}</span> {size}, <span class=\"soft\">in truth</span> <b>{truth}</b></p>\n"
        );
        let most = weights(mistake);
        for (name, words) in &mistake.texts {
            if !name.is_empty() {
                put!(out, "<p class=\"column\">{}</p>\n", shortened(name, LABEL));
            }
            shaded(&mut out, words, Some(most));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    left_out(&mut out, mistakes.len());
    out + "</section>\n"
}

/// Returns the largest absolute weight; a weight that is not finite counts as 0.
fn largest<'a>(words: impl Iterator<Item = &'a (String, f32)>) -> f32 {
    words.map(|&(_, weight)| weight.abs()).filter(|weight| weight.is_finite()).fold(0.0, f32::max)
}

/// Writes a text whose words are shaded by weight, for or against, relative to `most`, or by attention without it.
fn shaded(out: &mut String, words: &[(String, f32)], most: Option<f32>) {
    let shown = words.get(..WORDS).unwrap_or(words);
    let by = most.unwrap_or_else(|| largest(words.iter()).max(1.0));
    out.push_str("<p class=\"words\" dir=\"auto\">");
    for (word, weight) in shown {
        if by == 0.0 {
            put!(out, "{} ", shortened(word, TEXT));
            continue;
        }
        let finite = if weight.is_finite() { *weight } else { 0.0 };
        let share = (finite / by.max(f32::MIN_POSITIVE)).clamp(-1.0, 1.0);
        let kind = match most {
            None => "heat",
            Some(_) if share < 0.0 => "against",
            Some(_) => "for",
        };
        let (word, number) = (shortened(word, WORD), super::text::number(f64::from(*weight)));
        if share.abs() < 0.04 {
            put!(out, "<span class=\"w\" title=\"{number}\">{word}</span> ");
        } else {
            let shade = share.abs();
            put!(out, "<span class=\"w {kind}\" style=\"--v:{shade:.2}\" title=\"{number}\">{word}</span> ");
        }
    }
    more(out, words.len());
    out.push_str("</p>\n");
    if words.is_empty() {
        out.push_str("<p class=\"note\">An empty text.</p>\n");
    }
}

fn more(out: &mut String, words: usize) {
    if words > WORDS {
        put!(out, "<span class=\"cut\">… {} more words</span>", count((words - WORDS) as u64));
    }
}

fn left_out(out: &mut String, samples: usize) {
    if samples > SAMPLES {
        put!(out, "<p class=\"note\">{} more are not shown.</p>\n", count((samples - SAMPLES) as u64));
    }
}

/// Returns the section with examples of texts and the model's answers; `what` is a sentence on the origin of the texts.
pub(super) fn examples(examples: &[Example], what: &str) -> String {
    if examples.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section aria-labelledby=\"examples\">\n<h2 id=\"examples\">Examples</h2>\n");
    if !what.is_empty() {
        put!(out, "<p class=\"note\">{}</p>\n", shortened(what, TEXT));
    }
    let shown = || examples.iter().take(SAMPLES);
    if shown().any(|e| matches!(e, Example::Pair { attention: Some(_), .. })) {
        out.push_str(
            "<p class=\"note\">Attention: a row for each written token, a column for each source token; the darker, the more of its \
             weight. A pointer over a cell shows it.</p>\n",
        );
    }
    if shown().any(|e| matches!(e, Example::Tagged { .. })) {
        out.push_str("<p class=\"note\">Each word with its predicted tag; a wrong tag is marked ✗, and the right tag follows.</p>\n");
    }
    if shown().any(|e| matches!(e, Example::Attention { .. })) {
        out.push_str("<p class=\"note\">The darker a word, the more it counted; a pointer over it shows its weight.</p>\n");
    }
    out.push_str("<ol class=\"samples\">\n");
    for example in shown() {
        out.push_str("<li class=\"card\">\n");
        match example {
            Example::Tagged { words, truth, found } => tagged(&mut out, words, truth, found),
            Example::Attention { words, answer } => {
                put!(out, "<p class=\"verdict\"><b>{}</b></p>\n", label(answer));
                shaded(&mut out, words, None);
            }
            Example::Pair { source, target, truths, exact, chrf, attention } => {
                pair(&mut out, source, target, truths, *exact, *chrf);
                attention.iter().for_each(|what| attended(&mut out, what));
            }
            Example::Written { beginning, text } => {
                let [beginning, text] = [beginning, text].map(|text| shortened(text, TEXT));
                put!(out, "<p class=\"written\" dir=\"auto\"><b>{beginning}</b>{text}</p>\n");
            }
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    left_out(&mut out, examples.len());
    out + "</section>\n"
}

/// Writes the words of a text with the tag below each word. The tag `O`, which marks words outside of chunks, is not shown.
fn tagged(out: &mut String, words: &[String], truth: &[String], found: &[String]) {
    let tag = |tags: &[String], i: usize| tags.get(i).cloned().unwrap_or_default();
    let shown = |tag: &str| if tag.is_empty() { "–".into() } else { shortened(tag, 24) };
    out.push_str("<p class=\"words tagged\" dir=\"auto\">");
    for (i, word) in words.iter().enumerate().take(WORDS) {
        let (right, found) = (tag(truth, i), tag(found, i));
        let class = if right != found {
            "bad"
        } else if found == "O" {
            "outside"
        } else {
            "good"
        };
        put!(out, "<span class=\"t\"><span>{}</span><small class=\"{class}\">", shortened(word, WORD));
        match class {
            "bad" => put!(out, "✗ {} → {}", shown(&found), shown(&right)),
            "outside" => out.push('\u{a0}'),
            _ => out.push_str(&shown(&found)),
        }
        out.push_str("</small></span> ");
    }
    more(out, words.len());
    out.push_str("</p>\n");
}

fn pair(out: &mut String, source: &str, target: &str, truths: &[String], exact: bool, chrf: f64) {
    let (mark, class, is) = if exact { ("✓", "good", "exact") } else { ("✗", "bad", "not exact") };
    let row = |out: &mut String, name: &str, class: &str, text: &str| {
        let text = if text.is_empty() { "<i>(empty)</i>".into() } else { shortened(text, TEXT) };
        put!(out, "<div><dt>{name}</dt><dd class=\"{class}\" dir=\"auto\">{text}</dd></div>");
    };
    out.push_str("<dl class=\"pair\">");
    row(out, "source", "", source);
    distinct(truths.iter()).into_iter().for_each(|truth| row(out, "reference", "", truth));
    row(out, &format!("written <span class=\"{class}\">{mark}</span>"), "made", target);
    let chrf = percent(chrf);
    put!(out, "<div><dt>score</dt><dd><span class=\"{class}\">{is}</span>, chrF {chrf}</dd></div></dl>\n");
}

fn attended(out: &mut String, Alignment { source, written, weights, .. }: &Alignment) {
    if weights.is_empty() {
        return;
    }
    let tokens = source.iter().take(TOKENS).map(|token| format!("<span><bdi>{}</bdi></span>", piece(token)));
    boxed(out, "Attention", "attention", ["written / source".to_owned()].into_iter().chain(tokens));
    for (token, row) in written.iter().zip(weights).take(TOKENS) {
        put!(out, "<tr><th scope=\"row\"><bdi>{}</bdi></th>", piece(token));
        for (source_token, weight) in source.iter().zip(row).take(TOKENS) {
            let (share, token, source_token) = (f64::from(*weight), piece(token), piece(source_token));
            let shade = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
            let share = percent(share);
            put!(out, "<td style=\"--v:{shade:.2}\" title=\"{token} → {source_token}: {share}\"></td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str(END);
    let more = source.len().max(written.len()).saturating_sub(TOKENS);
    if more > 0 {
        let more = count(more as u64);
        put!(out, "<p class=\"note\">The first {TOKENS} tokens; up to {more} more are not shown.</p>\n");
    }
}

/// Returns a token for a table, with its spaces made visible.
fn piece(token: &str) -> String {
    if token.trim().is_empty() { "␣".repeat(token.chars().count().min(3)) } else { brief(token, 14) }
}
