//! The report of a training: one HTML file that loads nothing and runs nothing, readable on a phone, on a desk, in the dark
//! and on paper.
//!
//! [`Page`] is what it shows; [`html`] writes it. Pictures are SVG, shaded tables are tables; what a pointer shows over a
//! picture is done by the style sheet, so that there is no script, and the page's own policy forbids any. All text from
//! outside goes through [`text::escape`], or through [`text::cut`], which also shortens it and says by how much.

mod bars;
mod chart;
mod classes;
mod curves;
mod page;
mod samples;
mod several;
mod tables;
mod tested;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use page::{Bin, Confusion, Epoch, Example, Lengths, Mistake, OperatorTime, Page};
pub(crate) use several::{Run, Several, several};
pub(crate) use tested::Tested;

pub(super) use text::escape;
use text::{LABEL, cut, number, put};

/// The most characters of a configuration that are shown.
const CONFIG: usize = 100_000;

/// The same of a fact.
const FACT: usize = 240;

/// The report as an HTML document.
pub(crate) fn html(page: &Page) -> String {
    let mut out = String::with_capacity(1 << 16);
    head(&mut out, page);
    out.push_str("<main>\n");
    out.push_str(&curves::section(&page.epochs));
    out.push_str(&page.tested.as_ref().map(tables::section).unwrap_or_default());
    let confusion = page.confusion.as_ref().map(classes::confusion).unwrap_or_default();
    if !confusion.is_empty() {
        put(
            &mut out,
            format_args!(
                "<section aria-labelledby=\"confusion\">\n<h2 id=\"confusion\">Held-out texts</h2>\n{confusion}</section>\n"
            ),
        );
    }
    let cards = [
        page.calibration.as_deref().map(classes::calibration).unwrap_or_default(),
        page.errors.as_ref().map(|errors| bars::errors(errors, "Held-out texts")).unwrap_or_default(),
        page.lengths.as_ref().map(bars::lengths).unwrap_or_default(),
        bars::operators(&page.operators),
    ];
    if cards.iter().any(|card| !card.is_empty()) {
        put(
            &mut out,
            format_args!(
                "<section aria-labelledby=\"more\">\n<h2 id=\"more\">Probabilities, lengths, time</h2>\n<div class=\"cards\">\n{}</div>\n</section>\n",
                cards.concat()
            ),
        );
    }
    out.push_str(&samples::mistakes(&page.mistakes));
    out.push_str(&samples::examples(&page.examples, &page.examples_of));
    if !page.config.is_empty() {
        put(
            &mut out,
            format_args!(
                "<section aria-labelledby=\"config\">\n<h2 id=\"config\">Configuration</h2>\n<details>\n<summary>All settings, those that \
             were left out included</summary>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n</section>\n",
                cut(&page.config, CONFIG)
            ),
        );
    }
    foot(&mut out);
    out
}

fn foot(out: &mut String) {
    put(
        out,
        format_args!(
            "</main>\n<footer>Written by unpadded {}.</footer>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        ),
    );
}

fn head(out: &mut String, page: &Page) {
    let title: String = page.title.chars().take(LABEL).collect();
    put(
        out,
        format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n",
            escape(&title),
            include_str!("report.css")
        ),
    );
    if !page.task.is_empty() {
        put(out, format_args!("<p class=\"task\">{}</p>\n", cut(&page.task, LABEL)));
    }
    put(out, format_args!("<h1 dir=\"auto\">{}</h1>\n", cut(&page.title, LABEL)));
    if page.headline.is_some() || !page.facts.is_empty() {
        out.push_str("<div class=\"top\">\n");
        if let Some((metric, value, unit)) = &page.headline {
            let unit = if unit.is_empty() {
                String::new()
            } else {
                format!("<small>\u{202f}{}</small>", cut(unit, 20))
            };
            put(
                out,
                format_args!(
                    "<p class=\"headline\"><span class=\"metric\">{}</span> <b>{}{unit}</b></p>\n",
                    cut(metric, LABEL),
                    number(*value)
                ),
            );
        }
        if !page.facts.is_empty() {
            out.push_str("<dl class=\"facts\">\n");
            for (name, value) in &page.facts {
                put(
                    out,
                    format_args!(
                        "<div><dt>{}</dt><dd dir=\"auto\">{}</dd></div>\n",
                        cut(name, LABEL),
                        cut(value, FACT)
                    ),
                );
            }
            out.push_str("</dl>\n");
        }
        out.push_str("</div>\n");
    }
    out.push_str("</header>\n");
}
