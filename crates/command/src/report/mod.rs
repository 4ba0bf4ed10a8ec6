//! The report of a training: one HTML file without scripts or external files, for screens, dark mode and paper.
//!
//! [`html`] writes a [`Page`]. Charts are SVG, shaded tables are HTML, and the style sheet shows values under the pointer.
//! The content security policy forbids scripts. All text from data, configs and models passes through [`text::escape`]
//! or [`text::shortened`]; the latter shortens long text and adds the number of omitted characters.

mod bars;
mod chart;
mod classes;
mod curves;
mod frame;
mod page;
mod samples;
mod several;
mod tables;
mod tested;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use page::{Bin, Epoch, Errors, Example, Lengths, Mistake, OperatorTime, Page, TestScores};
pub(crate) use several::{Run, SeveralRuns, several};

use frame::{foot, head};
pub(super) use text::{escape, number};
use text::{section, shortened};

/// The maximum number of characters of the configuration that the report shows.
const CONFIG: usize = 100_000;

/// Returns the report as an HTML document.
pub(crate) fn html(page: &Page) -> String {
    let mut out = String::with_capacity(1 << 16);
    head(&mut out, page);
    out.push_str("<main>\n");
    out.push_str(&curves::section(&page.epochs));
    let tested = page.tested.as_ref().map(|scores| tables::section(scores, ["test", "test set"], &[]));
    let held = page.held.as_ref();
    let held = held.map(|scores| tables::section(scores, ["held", "held-out texts"], &page.thresholds));
    out.extend(tested.into_iter().chain(held));
    let cards = [
        ("probabilities", page.calibration.as_deref().map(classes::calibration).unwrap_or_default()),
        ("numbers", classes::numbers(&page.numbers)),
        (
            "errors",
            page.errors.as_ref().map(|errors| bars::errors(errors, "Held-out texts")).unwrap_or_default(),
        ),
        ("lengths", page.lengths.as_ref().map(bars::lengths).unwrap_or_default()),
        ("time", bars::operators(&page.operators)),
    ];
    let cards: Vec<_> = cards.into_iter().filter(|(_, card)| !card.is_empty()).collect();
    if !cards.is_empty() {
        let (names, cards): (Vec<&str>, Vec<String>) = cards.into_iter().unzip();
        let names = text::begun(&names.join(", "));
        out += &section("more", &names, &format!("<div class=\"cards\">\n{}</div>\n", cards.concat()));
    }
    out.push_str(&samples::mistakes(&page.mistakes, &page.mistakes_of));
    out.push_str(&samples::examples(&page.examples, &page.examples_of));
    if !page.config.is_empty() {
        let body = format!(
            "<details>\n<summary>All settings, those that were left out included</summary>\n\
             <pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n",
            shortened(&page.config, CONFIG)
        );
        out += &section("config", "Configuration", &body);
    }
    foot(&mut out);
    out
}
