//! Trees in brackets, as in the Penn Treebank and the Stanford Sentiment Treebank: the leaves of a tree are the words
//! of the text, and the label of the root is the label of the text.

use std::collections::HashSet;
use std::ops::Range;

use super::line_format::LineFormat;
use crate::source::reason::Reason;
use crate::source::records::shown;

/// Maximum depth of a tree: the number of brackets that may be open at once.
const DEEPEST: usize = 1000;

struct Node<'a> {
    label: &'a str,
    leaves: Range<usize>,
}

pub(crate) const FORMAT: LineFormat = LineFormat {
    fits: |line| tree(line, false).is_ok(),
    why: "each line is in brackets",
    records: |settings| match settings.phrases {
        true => Box::new(move |line| phrases(line, settings.binary)),
        false => Box::new(move |line| Ok(tree(line, settings.binary)?.map(|tree| vec![tree]))),
    },
    texts: |_| Box::new(|line| Ok(tree(line, false)?.map(|[text, _]| text))),
    ..LineFormat::DEFAULT
};

/// Parses the tree in a line into a text and its label: the leaves joined by spaces, and the label of the root. Returns
/// `None` for a blank line. If `binary` is set, also returns `None` for a tree with the neutral label.
fn tree(line: &str, binary: bool) -> Result<Option<[String; 2]>, Reason> {
    let (nodes, leaves) = nodes(line)?;
    nodes.first().map_or(Ok(None), |root| labelled(root, &leaves, binary))
}

/// Parses a line into phrases: the text below each node, with the label of the node, the whole text first. Repeated phrases
/// with the same label and, if `binary` is set, phrases with the neutral label are left out.
fn phrases(line: &str, binary: bool) -> Result<Option<Vec<[String; 2]>>, Reason> {
    let (nodes, leaves) = nodes(line)?;
    let mut seen = HashSet::new();
    let mut found = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let phrase = labelled(node, &leaves, binary)?;
        found.extend(phrase.filter(|phrase| seen.insert(phrase.clone())));
    }
    Ok((!found.is_empty()).then_some(found))
}

fn labelled(node: &Node<'_>, leaves: &[String], binary: bool) -> Result<Option<[String; 2]>, Reason> {
    let label = match (binary, node.label) {
        (false, label) => label,
        (true, "0" | "1") => "0",
        (true, "2") => return Ok(None),
        (true, "3" | "4") => "1",
        (true, other) => {
            let expected = "a label from 0 to 4, as the option `binary` requires";
            return Err(Reason::of(expected, shown(other)));
        }
    };
    let text = leaves.get(node.leaves.clone()).unwrap_or_default().join(" ");
    Ok(Some([text, label.to_owned()]))
}

/// Parses the tree in a line into its nodes, every parent before its children, and its leaves.
fn nodes(line: &str) -> Result<(Vec<Node<'_>>, Vec<String>), Reason> {
    let line = line.trim();
    if line.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let expected = "a tree in brackets, `(label word)` or `(label tree …)`";
    let wrong = |got: &str| Err(Reason::of(expected, format!("{got} in {}", shown(line))));
    let (mut nodes, mut leaves) = (Vec::<Node<'_>>::new(), Vec::new());
    // Indices of the nodes whose bracket is still open.
    let mut open: Vec<usize> = Vec::new();
    // After an opening bracket comes a label; after the label comes a word, or one or more trees.
    let (mut after_open, mut has_child) = (false, Vec::<bool>::new());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if !nodes.is_empty() && has_child.is_empty() {
            return wrong("more behind the last bracket");
        }
        match c {
            _ if c.is_whitespace() => {
                rest = rest.trim_start();
                continue;
            }
            '(' if after_open => return wrong("a bracket without a label"),
            '(' => {
                if let Some(has) = has_child.last_mut() {
                    *has = true;
                }
                has_child.push(false);
                (after_open, rest) = (true, &rest[1..]);
                if has_child.len() > DEEPEST {
                    return wrong("a tree that is too deep");
                }
                continue;
            }
            ')' => {
                match has_child.pop() {
                    None => return wrong("a closing bracket too many"),
                    Some(false) => return wrong("a bracket with no word in it"),
                    Some(true) => rest = &rest[1..],
                }
                if let Some(node) = open.pop().and_then(|at| nodes.get_mut(at)) {
                    node.leaves.end = leaves.len();
                }
                continue;
            }
            _ => {}
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if after_open {
            after_open = false;
            open.push(nodes.len());
            nodes.push(Node { label: word, leaves: leaves.len()..leaves.len() });
            continue;
        }
        match has_child.last_mut() {
            None => return wrong("a word outside of the brackets"),
            Some(has) => *has = true,
        }
        leaves.push(unescaped(word));
    }
    if !has_child.is_empty() || nodes.is_empty() {
        return wrong(if !has_child.is_empty() { "a bracket that is not closed" } else { "no label" });
    }
    Ok((nodes, leaves))
}

/// Replaces the escapes in a word, such as `-LRB-`, by the escaped characters.
fn unescaped(word: &str) -> String {
    match word {
        "-LRB-" => "(".to_owned(),
        "-RRB-" => ")".to_owned(),
        "-LSB-" => "[".to_owned(),
        "-RSB-" => "]".to_owned(),
        "-LCB-" => "{".to_owned(),
        "-RCB-" => "}".to_owned(),
        _ => word.replace("\\/", "/").replace("\\*", "*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phrase_is_there_once_with_the_label_of_its_node() {
        let parsed = |binary| {
            let found = phrases("(3 (2 It) (4 (2 (2 's) (3 good)) (3 good)))", binary).unwrap().unwrap();
            found.into_iter().map(|[text, label]| format!("{label} {text}")).collect::<Vec<_>>()
        };
        assert_eq!(
            parsed(false),
            ["3 It 's good good", "2 It", "4 's good good", "2 's good", "2 's", "3 good"]
        );
        assert_eq!(parsed(true), ["1 It 's good good", "1 's good good", "1 good"]);
        assert_eq!(phrases("(2 so)", true).unwrap(), None);
    }

    #[test]
    fn leaves_are_the_text_and_the_root_is_the_label() {
        let phrases = |line: &str, binary| tree(line, binary).unwrap().map(|[text, label]| (text, label));
        let line = "(3 (2 It) (4 (2 (2 's) (3 good)) (2 (2 -LRB-) (2 1\\/2 -RRB-))))";
        assert_eq!(phrases(line, false), Some(("It 's good ( 1/2 )".into(), "3".into())));
        assert_eq!(phrases(line, true).unwrap().1, "1");
        assert_eq!((phrases("(2 so)", true), phrases(" ", false)), (None, None));
        for (line, got) in [
            ("3 (2 It)", "a word outside of the brackets"),
            ("(3 (2 It)", "a bracket that is not closed"),
            ("(3 (2 It)))", "more behind the last bracket"),
            ("(3 ((2 It)))", "a bracket without a label"),
            ("(3 (2 It) (2))", "a bracket with no word in it"),
            (")", "a closing bracket too many"),
        ] {
            let reason = tree(line, false).unwrap_err();
            assert!(reason.got.starts_with(got), "{line}: {}", reason.got);
        }
        assert!(tree("(NP a)", true).is_err());
    }
}
