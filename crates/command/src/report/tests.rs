//! Tests of whole pages: no text of data or models is parsed as HTML, every tag is closed, and unusual pages are well-formed.

use unpadded::metrics::Unit;
use unpadded_recipes::Alignment;

use super::page::{ClassRow, ClassTable, Confusion, Errors, LengthErrors, Score};
use super::*;

const EVIL: &str = "<script>alert('x')</script>\"><img src=x onerror=\"y\">&\u{202e}\0\n😀 שלום";
/// HTML elements without an end tag.
const VOID: [&str; 5] = ["meta", "link", "br", "img", "wbr"];

/// Parses a page as strictly as XML: tags are nested and closed, attributes quoted, `<` and `&` always escaped in text. Returns
/// the names of the elements.
fn elements(page: &str) -> Vec<String> {
    let (mut open, mut names) = (Vec::<String>::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(at) = rest.find('<') {
        references(&rest[..at], open.last().is_some_and(|o| o == "style"));
        let mut quoted = false;
        let end = rest[at..].find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let tag = &rest[at + 1..at + end.unwrap_or_else(|| panic!("not closed: {}", &rest[at..]))];
        rest = &rest[at + tag.len() + 2..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop().as_deref(),
                Some(name),
                "before {}",
                rest.chars().take(200).collect::<String>()
            );
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
        let parts: Vec<&str> = attributes.split('"').collect();
        assert!(parts.len() % 2 == 1 && parts.last() == Some(&""), "<{tag}>");
        for pair in parts.chunks_exact(2) {
            let attribute = pair[0].trim_start().strip_suffix('=').unwrap_or_else(|| panic!("<{tag}>"));
            assert!(
                attribute.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
                    && !attribute.starts_with("on"),
                "<{tag}>"
            );
            assert!(!pair[1].contains('<'), "<{tag}>");
            references(pair[1], false);
        }
        names.push(name.to_owned());
        if !closed && !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    names
}

fn references(text: &str, style: bool) {
    let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
    for (at, _) in text.match_indices('&') {
        assert!(style || known.iter().any(|k| text[at..].starts_with(k)), "{}", &text[at..]);
    }
}

fn evil_pair() -> Example {
    let evil = || EVIL.to_owned();
    let mut attention = Alignment::default();
    (attention.source, attention.written) = (vec![evil(), " ".to_owned()], vec![evil(); 50]);
    attention.weights = vec![vec![0.5, f32::NAN]; 50];
    Example::Pair {
        source: evil(),
        target: evil(),
        truths: vec![String::new()],
        exact: false,
        chrf: f64::NAN,
        attention: Some(attention),
    }
}

fn evil_scores() -> TestScores {
    let evil = || EVIL.to_owned();
    let mut confusion = Confusion::new(EVIL);
    for (truth, predicted, times) in [(EVIL, EVIL, 1), (EVIL, "", 2), ("", EVIL, 3)] {
        confusion.add(truth, predicted, times);
    }
    let range = |from, value| LengthErrors { from, to: usize::MAX, texts: u64::MAX, value };
    TestScores {
        dataset: evil(),
        metric: evil(),
        figures: vec![
            Score {
                name: evil(),
                value: f64::NAN,
                unit: Unit::Share,
                interval: Some([f64::NAN, f64::INFINITY]),
            },
            Score { name: "loss".into(), value: f64::INFINITY, ..Score::default() },
        ],
        counts: vec![(evil(), u64::MAX)],
        tables: vec![ClassTable {
            of: evil(),
            rows: (0..150).map(|_| ClassRow { name: evil(), scores: [f64::NAN; 3], support: 1 }).collect(),
        }],
        confusions: vec![confusion],
        errors: Some(Errors {
            of: evil(),
            by: evil(),
            unit: Unit::Share,
            ranges: vec![range(0, f64::INFINITY), range(3, 1e300), range(usize::MAX, 0.0)],
        }),
        examples: vec![evil_pair()],
        notes: vec![evil()],
    }
}

fn evil_runs() -> SeveralRuns {
    let evil = || EVIL.to_owned();
    let run = |at: usize| Run {
        name: evil(),
        task: evil(),
        data: evil(),
        epochs: evil_page().epochs.into_iter().skip(at % 3).collect(),
        units: vec![(evil(), Unit::Share)],
        tested: at.is_multiple_of(2).then(evil_scores),
    };
    SeveralRuns { runs: (0..12).map(run).collect(), settings: vec![(evil(), vec![evil(); 12])] }
}

fn evil_page() -> Page {
    let evil = || EVIL.to_owned();
    let scores = |v| vec![("loss".to_owned(), v), (EVIL.to_owned(), f64::INFINITY)];
    let epoch = |epoch, v, best| Epoch {
        epoch,
        step: 9,
        rate: Some(v),
        train: scores(v),
        dev: scores(v / 2.0),
        best,
    };
    let words =
        || vec![(evil(), 0.5), (evil(), -1.0), (evil(), f32::NAN), ("w".repeat(100_000), f32::INFINITY)];
    Page {
        tested: Some(evil_scores()),
        errors: evil_scores().errors,
        examples_of: evil(),
        title: evil(),
        task: evil(),
        facts: vec![(evil(), evil())],
        headline: Some((evil(), f64::NAN, evil())),
        epochs: vec![epoch(1, f64::NAN, false), epoch(2, 1.0, true), epoch(3, f64::NEG_INFINITY, false)],
        held: Some(evil_scores()),
        calibration: Some(vec![Bin { confidence: f64::NAN, accuracy: 2.0, count: 3 }]),
        numbers: vec![[f64::NAN, 1.0], [1e300, -1e300], [0.0, f64::INFINITY], [1.0, 2.0]],
        thresholds: (0..150).map(|_| (evil(), f64::NAN)).collect(),
        mistakes_of: evil(),
        lengths: Some(Lengths {
            of: ["texts", "words"],
            lengths: vec![0, 3, usize::MAX],
            tokens: u64::MAX,
            padded: 0,
        }),
        operators: vec![
            OperatorTime { name: evil(), calls: u64::MAX, seconds: f64::INFINITY },
            OperatorTime { name: evil(), calls: 1, seconds: 1e-9 },
        ],
        mistakes: vec![
            Mistake {
                texts: vec![(evil(), words()), (evil(), vec![(evil(), 0.0)])],
                truth: evil(),
                predicted: evil(),
                size: evil(),
            },
            Mistake { texts: vec![(String::new(), vec![(evil(), 0.0)])], ..Mistake::default() },
            Mistake::default(),
        ],
        examples: vec![
            Example::Tagged {
                words: vec![evil(), evil()],
                truth: vec![evil()],
                found: vec!["O".into(), evil(), evil()],
            },
            Example::Attention { words: words(), answer: evil() },
            evil_pair(),
            Example::Written { beginning: evil(), text: evil().repeat(10_000) },
        ],
        config: evil(),
    }
}

#[test]
fn several_runs_are_a_page_that_holds_no_html_from_outside() {
    let page = several(&evil_runs());
    let names = elements(&page);
    assert!(!names.iter().any(|n| n == "script" || n == "img"), "{names:?}");
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)") && !page.contains(" href=\"h"));
    assert!(page.len() < 400_000, "{}", page.len());
    elements(&several(&SeveralRuns::default()));
}

#[test]
fn text_from_outside_is_never_read_as_html() {
    let page = html(&evil_page());
    let names = elements(&page);
    assert!(!names.iter().any(|n| n == "script" || n == "img"), "{names:?}");
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&gt;&lt;img src=x"));
    assert!(!page.contains('\0') && page.contains("😀 שלום"));
    assert!(page.contains("99,940 more characters"));
    assert!(page.len() < 150_000, "{}", page.len());
}

#[test]
fn a_page_loads_nothing() {
    let page = html(&evil_page());
    for outside in ["http:", "https:", "url(", "@import", " src=\"", "<script", "javascript:"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'"));
    let links = page.matches("href=\"").count();
    assert_eq!((links, page.matches("href=\"data:,\"").count()), (1, 1));
}

#[test]
fn an_empty_page_is_a_page() {
    let page = html(&Page::default());
    let names = elements(&page);
    assert!(page.contains("No epoch was trained.") && !names.iter().any(|n| n == "svg" || n == "table"));
    assert_eq!(page.matches("<section").count(), 1);
}

#[test]
fn one_epoch_is_a_point() {
    let epoch =
        Epoch { epoch: 1, step: 5, dev: vec![("accuracy".into(), 0.5)], best: true, ..Epoch::default() };
    let page = html(&Page { epochs: vec![epoch], ..Page::default() });
    elements(&page);
    assert!(page.contains("<circle class=\"dot dev\"") && page.contains("epoch 1, the best · dev 0.5"));
    assert!(page.contains("accuracy by epoch. dev: 0.5. The best epoch is 1."));
    assert!(!page.contains("NaN"));
}

#[test]
fn long_trainings_and_long_texts_make_no_long_page() {
    let scores = |e: u64| vec![("loss".to_owned(), 1.0 / (e + 1) as f64), ("accuracy".to_owned(), 0.5)];
    let epoch = |e| Epoch {
        epoch: e,
        step: 100 * e,
        rate: Some(0.1),
        train: scores(e),
        dev: scores(e),
        best: e == 5_000,
    };
    let mistake = |_| Mistake {
        texts: vec![(String::new(), (0..5_000).map(|i| (format!("word{i}"), i as f32)).collect())],
        ..Mistake::default()
    };
    let page = html(&Page {
        epochs: (1..=10_000).map(epoch).collect(),
        mistakes: (0..200).map(mistake).collect(),
        ..Page::default()
    });
    elements(&page);
    assert!(page.len() < 2_500_000, "{}", page.len());
    assert!(page.contains("4,750 more words") && page.contains("150 more are not shown"));
    assert!(
        page.contains(">5000 <small>best</small>"),
        "the table of a long training has no row of the best epoch"
    );
}

#[test]
fn what_is_wide_scrolls_in_a_box_and_what_is_said_is_outside_of_it() {
    for page in [html(&evil_page()), several(&evil_runs())] {
        let boxes = page.matches("<div class=\"wide\" role=\"region\" tabindex=\"0\"").count();
        assert_eq!((boxes, page.matches("<caption").count()), (page.matches("<table").count(), 0));
        for table in page.split("<table").skip(1) {
            let outside = table.split("</table>").next().unwrap_or_default();
            assert!(!outside.contains("class=\"note\"") && table.contains("</table>\n</div>"));
        }
        assert!(page.contains("overflow-x: auto; max-width: 100%;"));
        assert!(page.contains("content=\"width=device-width, initial-scale=1\""));
    }
}

#[test]
fn every_cell_has_a_heading_and_every_picture_a_name() {
    let page = html(&evil_page());
    assert_eq!(page.matches("<svg ").count(), page.matches("role=\"img\" aria-label=\"").count());
    assert!(
        page.matches("<th").count() - page.matches("<thead").count() == page.matches("<th scope=\"").count()
    );
    for section in page.split("aria-labelledby=\"").skip(1) {
        let name = section.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
    }
}
