//! Tests of records that are texts: texts to tag, and records without a text.

use super::*;

#[test]
fn texts_of_tables_get_tags_and_other_columns_none() {
    let trained = |set: ReadOptions| {
        set.or_note(
            r#"{"format":"columns","columns":{"separator":"tabs","count":2,"words":0,"tags":1,"numbered":false,"comments":false,"universal":false}}"#,
        )
        .unwrap()
    };
    let new = ReadOptions::new;
    // The answers are between `~`.
    for (name, set, how, answered) in [
        (
            "a.csv",
            new(),
            "in `text`; line 1 is a header",
            "id,text~,tags~\n1,\"fog, an ox\"~,T T T~\n2,\"\"~,T~\n",
        ),
        ("b.csv", new(), "by `;`", "tags;text~;predicted_tags~\n1;\"no\nin \"\"it\"\"\"~;T T T~\n"),
        ("c.csv", new(), "text in `text`", "text~,tags~\nno fog~,T T~\n"),
        ("d.tsv", new(), "text in `text`", "id\ttext~\ttags~\n1\tno fog~\tT T~\n2\tfog~\tT~\n"),
        ("e.tsv", new(), "text in column 2", "1\tno fog~\tT T~\n2\tfog~\tT~\n3\ta day~\tT T~\n"),
        ("f.txt", new(), "text in `text`", "id\ttext~\ttags~\n1\tfog~\tT~\n2\train~\tT~\n"),
        ("g.tsv", new(), "text in `text`", "text\tner~\ttags~\nno fog\tX~\tT T~\nan ox\tY~\tT T~\n"),
        ("h.csv", new().tokens("2"), "text in column 2", "1,fog,a~,T~\n2,sun,b~,T~\n"),
        ("i.txt", new().tokens("2").format(FileFormat::Tsv), "in column 2", "1\tfog~\tT~\n"),
        ("j.txt", new().tokens("2").separator('|'), "in column 2", "1|no fog~|T T~\n"),
        ("k.csv", new().format(FileFormat::Plain), "`plain`", "id,text~\tT~\n"),
        ("l.jsonl", new(), "in `text`", "{\"id\":1,\"text\":\"no fog\"~,\"tags\":[\"T\",\"T\"]~}\n"),
        ("m.jsonl", new().tokens("t"), "`t`", "{\"text\":1,\"t\":\"no fog\"~,\"tags\":[\"T\",\"T\"]~}\n"),
        ("n.jsonl", new(), "`tokens`", "{\"text\":\"a b\",\"tokens\":[\"a b\"]~,\"tags\":[\"T\"]~}\n"),
        // One word per line, beside its tag; one text per line.
        ("o.tsv", new(), "a header", "text\tner~\ttags~\nfog\tO~\tT~\nOslo\tB-X~\tT~\n"),
        ("p.tsv", new(), "words in column 1", "Title\tO~\tT~\nOslo\tB-X~\tT~\nis\tO~\tT~\n"),
        ("q.txt", new(), "one text per line", "fog, a text~\tT T T~\n\nrain, it~\tT T~\n"),
        ("r.txt", new(), "one text per line", "a fog,is it~\tT T T~\nan ox,is it~\tT T T~\n"),
    ] {
        let text: String = answered.split('~').step_by(2).collect();
        let [shown, found] = read_as(text.as_bytes(), name, QuestionKind::Words, &trained(set), &["tags"]);
        assert!(shown.contains(how) && found == answered.replace('~', ""), "{name}: {shown}\n{found}");
    }
    for (name, text) in [("a.csv", "1,fog,rain\n2,sun,ice\n"), ("b.tsv", "a b\tc d\ne f\tg h\n")] {
        let files = Files::new(&format!("to-tag-{name}"), &[(name, text.as_bytes())]);
        let shown = files.error(Questions::open(files.at(name), &trained(new()), QuestionKind::Words));
        let expected = format!("column of the texts in file `{name}`: expected a header with a known name");
        says(&shown, &[&expected, "set `data.text` to the name or the number"]);
    }
    // Neither words nor texts: the first reason is given.
    let files = Files::new("no-words", &[("a.jsonl", b"{\"id\":1,\"note\":\"fog\"}\n".as_slice())]);
    let shown = files.error(Questions::open(files.at("a.jsonl"), &new(), QuestionKind::Words));
    let note = "a field with a known name, such as `text`, may also have texts to tag";
    assert!(shown.contains("of the tokens") && shown.contains(note), "{shown}");
    // Words that are numbers in JSON may be ids.
    let (text, asked) = read("[1,\"fog\"]\n", "a.jsonl", QuestionKind::Words, &new());
    assert_eq!(text, "[1,\"fog\",null]\n");
    says(&asked[0], &["a list of strings in the field"]);
}

#[test]
fn records_without_a_text_are_asked_and_are_blank() {
    let asked =
        |text: &str, name: &str, options: &ReadOptions| read(text, name, QuestionKind::Text, options).1;
    assert_eq!(asked("id,text\n1,\n2, \n3,a\n", "a.csv", &ReadOptions::new()), ["2: ", "3:  ", "4: a"]);
    let json = "{\"text\":null}\n{\"text\":\" \"}\n{\"text\":\"a\"}\n{\"id\":1}\n";
    let found = asked(json, "a.jsonl", &ReadOptions::new().text("text"));
    assert_eq!(found[..3], ["1: ", "2:  ", "3: a"]);
    assert!(found[3].contains("expected a field `text`"), "{found:?}");
    let (text, found) =
        read("{\"tokens\":[]}\n{\"tokens\":null}\n", "b.jsonl", QuestionKind::Words, &ReadOptions::new());
    assert_eq!((found, text.lines().count()), (vec!["1: ".to_owned(), "2: ".to_owned()], 2));
    // A line of a file of lines, but not of a table.
    assert_eq!(
        asked("a b\n\n  \nc\n\n", "b.txt", &ReadOptions::new()),
        ["1: a b", "2: ", "3: ", "4: c", "5: "]
    );
    assert_eq!(asked("id,text\n\n1,a\n\n", "c.csv", &ReadOptions::new()), ["3: a"]);
}
