//! Texts with what the model made of them: errors with the weight of each word, tags, attention, pairs, what it wrote.

use super::page::{Example, Mistake};
use super::text::{TEXT, WORD, WORDS, count, cut, label, percent, put};

/// So many errors are shown, and so many examples.
const SAMPLES: usize = 50;

/// The worst errors, with words shaded by how much they spoke for the prediction or against it.
pub(super) fn mistakes(mistakes: &[Mistake]) -> String {
    if mistakes.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"mistakes\">\n<h2 id=\"mistakes\">Worst errors</h2>\n<p class=\"note\">Words shaded \
         <span class=\"w for\" style=\"--v:.8\">red and underlined</span> spoke for what was predicted, words shaded \
         <span class=\"w against\" style=\"--v:.8\">blue and dotted</span> against it: gradient × input, divided by the largest of \
         the text. A pointer over a word shows its number.</p>\n<ol class=\"samples\">\n",
    );
    for mistake in mistakes.iter().take(SAMPLES) {
        put(
            &mut out,
            format_args!(
                "<li class=\"card\">\n<p class=\"verdict\"><span class=\"bad\">{}</span> at {}, <span class=\"soft\">in truth</span> <b>{}</b></p>\n",
                label(&mistake.predicted),
                percent(mistake.probability),
                label(&mistake.truth)
            ),
        );
        shaded(&mut out, &mistake.words, true);
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    left_out(&mut out, mistakes.len());
    out + "</section>\n"
}

/// A text whose words are shaded by their weight: of its largest if they are signed, else as it is.
fn shaded(out: &mut String, words: &[(String, f32)], signed: bool) {
    let shown = words.get(..WORDS).unwrap_or(words);
    let finite = |w: f32| if w.is_finite() { w } else { 0.0 };
    let most = words.iter().map(|&(_, w)| finite(w).abs()).fold(0.0, f32::max);
    let most = if signed { most.max(f32::MIN_POSITIVE) } else { most.max(1.0) };
    out.push_str("<p class=\"words\" dir=\"auto\">");
    for (word, weight) in shown {
        let share = (finite(*weight) / most).clamp(-1.0, 1.0);
        let kind = if !signed {
            "heat"
        } else if share < 0.0 {
            "against"
        } else {
            "for"
        };
        let (word, told) = (cut(word, WORD), super::text::number(f64::from(*weight)));
        if share.abs() < 0.04 {
            put(out, format_args!("<span class=\"w\" title=\"{told}\">{word}</span> "));
        } else {
            put(
                out,
                format_args!(
                    "<span class=\"w {kind}\" style=\"--v:{:.2}\" title=\"{told}\">{word}</span> ",
                    share.abs()
                ),
            );
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
        put(out, format_args!("<span class=\"cut\">… {} more words</span>", count((words - WORDS) as u64)));
    }
}

fn left_out(out: &mut String, samples: usize) {
    if samples > SAMPLES {
        put(
            out,
            format_args!("<p class=\"note\">{} more are not shown.</p>\n", count((samples - SAMPLES) as u64)),
        );
    }
}

/// What the model makes of some texts.
pub(super) fn examples(examples: &[Example]) -> String {
    if examples.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section aria-labelledby=\"examples\">\n<h2 id=\"examples\">Examples</h2>\n");
    let shown = || examples.iter().take(SAMPLES);
    if shown().any(|e| matches!(e, Example::Tagged { .. })) {
        out.push_str("<p class=\"note\">Each word with the tag that was found; where it is wrong, it is marked ✗ and the right one follows.</p>\n");
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
                put(&mut out, format_args!("<p class=\"verdict\"><b>{}</b></p>\n", label(answer)));
                shaded(&mut out, words, false);
            }
            Example::Pair { source, target, truths } => pair(&mut out, source, target, truths),
            Example::Written { beginning, text } => {
                put(
                    &mut out,
                    format_args!(
                        "<p class=\"written\" dir=\"auto\"><b>{}</b>{}</p>\n",
                        cut(beginning, TEXT),
                        cut(text, TEXT)
                    ),
                );
            }
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    left_out(&mut out, examples.len());
    out + "</section>\n"
}

/// Words with their tags below; `O`, outside of all, is not said.
fn tagged(out: &mut String, words: &[String], truth: &[String], found: &[String]) {
    let tag = |tags: &[String], i: usize| tags.get(i).cloned().unwrap_or_default();
    let shown = |tag: &str| if tag.is_empty() { "–".into() } else { cut(tag, 24) };
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
        put(out, format_args!("<span class=\"t\"><span>{}</span><small class=\"{class}\">", cut(word, WORD)));
        match class {
            "bad" => put(out, format_args!("✗ {} → {}", shown(&found), shown(&right))),
            "outside" => out.push('\u{a0}'),
            _ => out.push_str(&shown(&found)),
        }
        out.push_str("</small></span> ");
    }
    more(out, words.len());
    out.push_str("</p>\n");
}

fn pair(out: &mut String, source: &str, target: &str, truths: &[String]) {
    let right = truths.iter().any(|truth| truth == target);
    let (mark, class) = if right { ("✓", "good") } else { ("✗", "bad") };
    let row = |out: &mut String, name: &str, class: &str, text: &str| {
        let text = if text.is_empty() { "<i>(empty)</i>".into() } else { cut(text, TEXT) };
        put(out, format_args!("<div><dt>{name}</dt><dd class=\"{class}\" dir=\"auto\">{text}</dd></div>"));
    };
    out.push_str("<dl class=\"pair\">");
    row(out, "source", "", source);
    row(out, &format!("made <span class=\"{class}\">{mark}</span>"), "made", target);
    let mut told: Vec<&str> = Vec::new();
    for truth in truths.iter().filter(|_| !right) {
        if !told.contains(&truth.as_str()) {
            told.push(truth);
            row(out, "right", "", truth);
        }
    }
    out.push_str("</dl>\n");
}
