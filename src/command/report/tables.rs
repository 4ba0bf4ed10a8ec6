//! The scores of the test set as tables.

use super::text::{LABEL, cut, put};
use crate::command::scores::Table;

/// A section of tables; nothing without one.
pub(super) fn section(tables: &[Table]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let mut out =
        String::from("<section aria-labelledby=\"test\">\n<h2 id=\"test\">Scores on the test set</h2>\n");
    for table in tables {
        out.push_str(
            "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Scores\">\n<table>\n<thead><tr>",
        );
        for head in &table.head {
            put(&mut out, format_args!("<th scope=\"col\">{}</th>", cut(head, LABEL)));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            out.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                match at {
                    0 => {
                        put(&mut out, format_args!("<th scope=\"row\"><bdi>{}</bdi></th>", cut(cell, LABEL)))
                    }
                    _ => put(&mut out, format_args!("<td>{}</td>", cut(cell, LABEL))),
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
        for note in &table.notes {
            put(&mut out, format_args!("<p class=\"note\">{}</p>\n", cut(note, 400)));
        }
    }
    out + "</section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_are_escaped() {
        let mut table = Table::new("", &["label", "F1"]);
        table.rows.push(vec!["<b>".into(), "50.00 %".into()]);
        table.notes.push("3 texts".into());
        let said = section(&[table]);
        assert!(
            said.contains("<bdi>&lt;b&gt;</bdi></th><td>50.00 %</td>") && said.contains("3 texts"),
            "{said}"
        );
        assert_eq!(section(&[]), "");
    }
}
