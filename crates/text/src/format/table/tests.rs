//! Tests of the cells, quotation marks and columns of small tables.

use super::*;
use crate::detect::column::LABEL;

fn rows(text: &str) -> Result<Vec<Vec<String>>> {
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let rows =
        Rows { cells: Cells::new(',', Quotes::Cells), width: None, header: false, make: |row, _| Ok(row) };
    TextFile::embedded("some.csv", text).records(rows)?.collect()
}

#[test]
fn cells_are_as_in_rfc_4180() {
    let found = rows("a,b\r\n\"x,y\",\"say \"\"hi\"\"\"\n\n\"two\nlines\n\",\n5\" disk,é\n\"\",z").unwrap();
    let expected = [["a", "b"], ["x,y", "say \"hi\""], ["two\nlines\n", ""], ["5\" disk", "é"], ["", "z"]];
    assert_eq!(found, expected);
    for (text, expected) in [
        (
            "a,b\n\"x\" y,z\n",
            "some.csv:2: expected nothing behind a closing quotation mark but the next cell, got ' '",
        ),
        (
            "a,b\nc,\"d\ne\n",
            "some.csv:4: expected the end of the cell whose quotation mark is in line 2, got the end of",
        ),
    ] {
        let error = rows(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Reads a table: returns the two columns, and the decisions.
fn read(name: &str, text: &str) -> (Vec<[String; 2]>, String) {
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let (file, format) = (TextFile::embedded(name, text), FileFormat::of_name(name).unwrap());
    let wanted = [("text", TEXT), ("label", LABEL)].map(|(what, known)| Column { what, given: None, known });
    let table = Table::of(&file, format, &ReadOptions::new(), &wanted).unwrap();
    let records = table.records(&file, Box::new(|mut row, _| Ok([row.text(0)?, row.text(1)?]))).unwrap();
    (records.collect::<Result<_>>().unwrap(), table.picked.notes.join("; "))
}

#[test]
fn cells_between_tabs_are_quoted_as_in_csv_or_not_at_all() {
    let marks = "cells are in quotation marks, as in CSV";
    for text in [
        // All cells are quoted, with a header and without.
        "\"text\"\t\"label\"\n\"so \"\"what\"\"\"\t\"a\"\n\"no\"\t\"b\"\n",
        "text\tlabel\n\"so \"\"what\"\"\"\t\"a\"\n\"no\"\t\"b\"\n",
        // Cells are quoted only if necessary.
        "\"so \"\"what\"\"\"\ta\nno\tb\n",
    ] {
        let (found, notes) = read("t.tsv", text);
        assert_eq!(found, [["so \"what\"", "a"], ["no", "b"]].map(|r| r.map(str::to_owned)), "{text}");
        assert!(notes.contains(marks), "{notes}");
    }
    let (found, _) = read("t.tsv", "\"one\ttwo\nthree\tfour\"\ta\nno\tb\nyes\ta\n");
    assert_eq!(found[0], ["one\ttwo\nthree\tfour", "a"]);
    // These texts begin with a quotation mark that is part of the text.
    for text in ["\"So\" he said\ta\nno\tb\n", "\"So what\ta\nno\"\tb\n", "\"So\"\ta\n\"no\"\tb\n"] {
        let (found, notes) = read("t.tsv", text);
        assert!(found[0][0].starts_with("\"So") && !notes.contains(marks), "{found:?} {notes}");
    }
    // The text consists of two quotation marks.
    assert_eq!(read("t.tsv", "\"\"\ta\nno\tb\n").0[0], ["\"\"", "a"]);
}

#[test]
fn spaces_before_quoted_cells_are_left_out() {
    for (text, separator) in [
        ("text, label\n\"so, what\", \"a\"\n\"no\", \"b\"\n", ","),
        ("text,label\n\"so, what\" , \"a\"\n\"no\", \"b\"\n", ","),
        ("\"so, what\"; \"a\"\n\"no\"; \"b\"\n", ";"),
    ] {
        let (found, notes) = read("t.csv", text);
        assert_eq!(found, [["so, what", "a"], ["no", "b"]].map(|r| r.map(str::to_owned)), "{text}");
        assert!(notes.contains(&format!("spaces behind `{separator}` are left out")), "{notes}");
    }
    // A text is unchanged if other cells have no space before them.
    let (found, _) = read("t.csv", "label,text\na, \"so\" he said\nb,no\na,so\n");
    assert_eq!(found[0], [" \"so\" he said", "a"]);
}
