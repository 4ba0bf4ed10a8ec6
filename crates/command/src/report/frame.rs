//! The start and the end of an HTML page.

use super::page::Page;
use super::text::{LABEL, escape, number, put, shortened};

/// The maximum number of characters of a fact that the page shows.
const FACT: usize = 240;

pub(super) fn foot(out: &mut String) {
    put!(
        out,
        "</main>\n<footer>Written by unpadded {}.</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
}

pub(super) fn head(out: &mut String, page: &Page) {
    let title: String = page.title.chars().take(LABEL).collect();
    put!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n",
        escape(&title),
        include_str!("report.css")
    );
    if !page.task.is_empty() {
        put!(out, "<p class=\"task\">{}</p>\n", shortened(&page.task, LABEL));
    }
    put!(out, "<h1 dir=\"auto\">{}</h1>\n", shortened(&page.title, LABEL));
    if page.headline.is_some() || !page.facts.is_empty() {
        out.push_str("<div class=\"top\">\n");
        if let Some((metric, value, unit)) = &page.headline {
            let (metric, value, unit) = (shortened(metric, LABEL), number(*value), shortened(unit, 20));
            let unit = if unit.is_empty() { unit } else { format!("<small>\u{202f}{unit}</small>") };
            put!(
                out,
                "<p class=\"headline\"><span class=\"metric\">{metric}</span> <b>{value}{unit}</b></p>\n"
            );
        }
        if !page.facts.is_empty() {
            out.push_str("<dl class=\"facts\">\n");
            for (name, value) in &page.facts {
                let (name, value) = (shortened(name, LABEL), shortened(value, FACT));
                put!(out, "<div><dt>{name}</dt><dd dir=\"auto\">{value}</dd></div>\n");
            }
            out.push_str("</dl>\n");
        }
        out.push_str("</div>\n");
    }
    out.push_str("</header>\n");
}
