//! Files whose records are answered: all that they have stays, in their order.

use super::*;
use crate::data::{Added, Asking, Question, Questions};

/// The file with an answer to each record: a label, or a tag `T` for each word; a record that cannot be asked has none.
fn answered(questions: &mut Questions, added: &[&str]) -> (String, Vec<String>) {
    let (mut text, mut asked) = (questions.head(added), Vec::new());
    while let Some(question) = questions.next() {
        let question: Question = question.unwrap();
        let answer = match &question.text {
            Err(why) => {
                asked.push(format!("{}: {}", question.line, why.to_string().rsplit('/').next().unwrap()));
                Vec::new()
            }
            Ok(text) => {
                let shown = text.strip_suffix('\n').map(|words| words.replace('\n', " "));
                asked.push(format!("{}: {}", question.line, shown.as_ref().unwrap_or(text)));
                let words = if text.ends_with('\n') { text.lines().count() } else { text.split(' ').count() };
                let tags = vec!["T".to_owned(); words];
                match added {
                    ["tags"] => vec![Added::Words(tags)],
                    _ => vec![Added::Text("a,b".into()), Added::Number(0.5)],
                }
            }
        };
        text += &questions.written(&question, &answer);
    }
    (text + &questions.tail(), asked)
}

fn read(text: &str, name: &str, asking: Asking, options: &ReadOptions) -> (String, Vec<String>) {
    let files = Files::new(&format!("questions-{name}-{}", text.len()), &[(name, text.as_bytes())]);
    let mut questions = Questions::open(files.at(name), options, asking).unwrap();
    let added: &[&str] = if asking == Asking::Words { &["tags"] } else { &["label", "p"] };
    answered(&mut questions, added)
}

#[test]
fn tables_keep_their_columns_and_quotation_marks() {
    let trained = ReadOptions::new().text("review").label("label");
    let table = "sep=;\nid;review;label\n\n7;\"so; \"\"fine\"\"\";good\n8;\"two\r\nlines\";bad\n9;short\n10;last;good\n";
    let (text, asked) = read(table, "a.csv", Asking::Text, &trained);
    let expected = "sep=;\nid;review;label;predicted_label;p\n\n7;\"so; \"\"fine\"\"\";good;a,b;0.5\n\
                    8;\"two\nlines\";bad;a,b;0.5\n9;short;;\n10;last;good;a,b;0.5\n";
    assert_eq!(text, expected);
    assert_eq!(asked[..2], ["4: so; \"fine\"", "5: two\nlines"]);
    assert!(asked[2].starts_with("7: a.csv:7: expected 3 columns"), "{asked:?}");
    assert_eq!(asked[3], "8: last");
    // Without the column of labels, and in another order.
    let (text, _) = read("review,id\n\"a, b\",1\n", "b.csv", Asking::Text, &trained);
    assert_eq!(text, "review,id,label,p\n\"a, b\",1,\"a,b\",0.5\n");
    // Tabs without quotation marks; the columns of a training without a header have numbers.
    let numbers = ReadOptions::new().text("2").label("1");
    let (text, asked) = read("x\ta \"b\nz\tc\n", "c.tsv", Asking::Text, &numbers);
    assert_eq!((text.as_str(), &asked[0][..]), ("x\ta \"b\ta,b\t0.5\nz\tc\ta,b\t0.5\n", "1: a \"b"));
    // A text a line, whatever the columns of the training.
    let (text, asked) = read("a fine film\n\ndull\n", "d.txt", Asking::Text, &numbers);
    assert_eq!(text, "a fine film\ta,b\t0.5\n\ndull\ta,b\t0.5\n");
    assert_eq!(asked, ["1: a fine film", "3: dull"]);
    let (text, asked) = read("Go.\tVa !\nRun!\tCours !\n", "e.tsv", Asking::Source, &ReadOptions::new());
    assert_eq!((text.lines().next(), &asked[1][..]), (Some("Go.\tVa !\ta,b\t0.5"), "2: Run!"));
}

#[test]
fn lines_of_json_get_fields_more() {
    let lines = "{\"id\": 12345678901234567890123, \"text\": \"a\\u00e9\"}\n{\"id\":2}\n\n{\"text\":\"b\",\"label\":\"x\" }\n";
    let (text, asked) = read(lines, "a.jsonl", Asking::Text, &ReadOptions::new());
    let expected = "{\"id\": 12345678901234567890123, \"text\": \"a\\u00e9\",\"predicted_label\":\"a,b\",\"p\":0.5}\n\
                    {\"id\":2,\"predicted_label\":null,\"p\":null}\n\n\
                    {\"text\":\"b\",\"label\":\"x\",\"predicted_label\":\"a,b\",\"p\":0.5}\n";
    assert_eq!(text, expected);
    assert_eq!((&asked[0][..], &asked[2][..]), ("1: aé", "4: b"));
    let (text, _) = read("{\"tokens\":[\"Go\",\"on\"]}\n", "b.jsonl", Asking::Words, &ReadOptions::new());
    assert_eq!(text, "{\"tokens\":[\"Go\",\"on\"],\"tags\":[\"T\",\"T\"]}\n");
    let files = Files::new("questions-list", &[("a.json", b"[{\"text\": \"a\"}, {\"text\": \"b\"}]\n")]);
    let said = files.said(Questions::open(files.at("a.json"), &ReadOptions::new(), Asking::Text));
    assert!(said.contains("`jq -c '.[]'` writes it so"), "{said}");
}

#[test]
fn columns_get_a_tag_for_each_word() {
    let words = |text: &str, name: &str| read(text, name, Asking::Words, &ReadOptions::new());
    let (text, asked) = words("# id 1\na x O\nb y B-A\n\n\nc z O\n\n# end\n", "a.conll");
    assert_eq!(text, "# id 1\na x O T\nb y B-A T\n\n\nc z O T\n\n# end\n");
    assert_eq!(asked, ["1: a b", "6: c"]);
    let (text, _) = words("word\tner\na\tO\nb\tO\n\nc\tB-X\n", "b.tsv");
    assert_eq!(text, "word\tner\ttags\na\tO\tT\nb\tO\tT\n\nc\tB-X\tT\n");
    // A sentence of which a line is malformed has no answer.
    let (text, asked) = words("a O\nb\nc O\n\nd O\ne O\n\nf O\ng O\nh O\ni O\nj O\nk O\nl O\n", "c.conll");
    assert!(text.starts_with("a O _\nb\nc O _\n\nd O T\ne O T\n"), "{text}");
    assert!(asked[0].starts_with("1: c.conll:2: expected 2 columns"), "{asked:?}");
    let universal = "# text = a b\n1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n";
    assert_eq!(words(universal, "d.conllu").0, universal.replace("\tX\t", "\tT\t"));
    // Words with spaces; a sentence that cannot be read has no tag that could be taken for an answer.
    let spaced = "1\t10 000\t_\tNUM\t_\t_\t0\troot\t_\t_\n\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\nx\tb\t_\tX\t_\t_\t0\troot\t_\t_\n\n1\tc\t_\tX\t_\t_\t0\troot\t_\t\u{a0}\n\n";
    let (text, asked) = words(spaced, "g.conllu");
    assert_eq!(
        text,
        spaced
            .replace("\tNUM\t", "\tT\t")
            .replace("a\t_\tX", "a\t_\t_")
            .replace("b\t_\tX", "b\t_\t_")
            .replace("c\t_\tX", "c\t_\tT")
    );
    assert!(asked.len() == 3 && asked[0] == "1: 10 000" && asked[1].contains("g.conllu:4"), "{asked:?}");
    // Words alone, and running text.
    assert_eq!(words("a\nb\n\nc\n", "e.txt").0, "a\tT\nb\tT\n\nc\tT\n");
    assert_eq!(words("a b c d\nc d\ne\n", "f.txt").0, "a b c d\tT T T T\nc d\tT T\ne\tT\n");
}

#[test]
fn rows_get_a_comment() {
    let (text, asked) = read("# rows\n1 1:2 3:1 # x\n\n2:1\n", "a.svm", Asking::Row, &ReadOptions::new());
    assert_eq!(text, "# rows\n1 1:2 3:1 # x # label a,b p 0.5\n\n2:1 # label a,b p 0.5\n");
    assert_eq!(asked, ["1: 1 1:2 3:1", "4: 2:1"]);
}

#[test]
fn what_may_be_read_wrongly_is_refused() {
    let said = |name: &str, text: &str, options: &ReadOptions, asking| {
        let files = Files::new(&format!("doubt-{name}"), &[(name, text.as_bytes())]);
        files.said(Questions::open(files.at(name), options, asking))
    };
    let trained = ReadOptions::new().or_note(r#"{"text":"1","label":"2"}"#).unwrap();
    let commas = "Good film, not bad\nDull, but good\nFine, very fine\n";
    assert!(said("a.txt", commas, &ReadOptions::new(), Asking::Text).contains("`plain` or `csv`"));
    let plain = ReadOptions::new().format(FileFormat::Plain);
    assert_eq!(read(commas, "b.txt", Asking::Text, &plain).1[0], "1: Good film, not bad");
    let ids = said("c.tsv", "1\ta film\n2\tanother\n", &trained, Asking::Text);
    assert!(ids.contains("numbers alone in column 1"), "{ids}");
    let numbers = said("d.conll", "17 a N\n12 b N\n\n14 c N\n", &ReadOptions::new(), Asking::Words);
    assert!(numbers.contains("numbers alone"), "{numbers}");
    // A dictionary's words, without what they are to become; what is no text stays, with a mark.
    let (_, asked) = read("GO  G OW1\nRUN  R AH1 N\n", "e.dict", Asking::Source, &ReadOptions::new());
    assert_eq!(asked.len(), 2);
    assert!(asked[0].eq_ignore_ascii_case("1: go"), "{asked:?}");
    let utf_8 = ReadOptions::new().encoding("utf-8".parse().unwrap());
    let files = Files::new("doubt-bytes", &[("f.csv", b"text,id\nfine,1\nd\xe9j\xe0,2\nso,3\n")]);
    let mut questions = Questions::open(files.at("f.csv"), &utf_8, Asking::Text).unwrap();
    let (text, asked) = answered(&mut questions, &["label", "p"]);
    assert_eq!(text.lines().nth(2), Some("d\u{fffd}j\u{fffd},2,,"), "{text}");
    assert!(asked[1].contains("f.csv:3: expected UTF-8") && asked.len() == 3, "{asked:?}");
    let (text, _) = read("{\"text\":\"a\"}\nnot json\n", "g.jsonl", Asking::Text, &ReadOptions::new());
    assert!(text.ends_with("\nnot json\n"), "{text}");
}
