//! The kinds of update operators in older files that are settings of another kind today.

use crate::operator::attributes::Literal;
use crate::program::description::op_desc::OpDesc;

/// Former kinds: the former name, the kind of today, and the attribute that is true in the kind of today.
const FORMER: [(&str, &str, Option<&str>); 5] = [
    ("amsgrad", "adam", Some("amsgrad")),
    ("momentum", "sgd", None),
    ("rmsprop_momentum", "rmsprop", None),
    ("rmsprop_centred", "rmsprop", Some("centred")),
    ("rmsprop_centred_momentum", "rmsprop", Some("centred")),
];

fn today(kind: &str) -> Option<(&'static str, Option<&'static str>)> {
    FORMER.iter().find(|(former, ..)| *former == kind).map(|&(_, kind, set)| (kind, set))
}

/// Returns the operator with its kind of today. `settle` has the kind and the settings of an update rule as attributes.
pub(super) fn renamed(mut op: OpDesc) -> OpDesc {
    if let Some((kind, set)) = today(&op.kind) {
        op.kind = kind.to_owned();
        set.into_iter().for_each(|name| op.attributes.set(name, true));
    } else if op.kind == "settle"
        && let Some((kind, set)) = op.attributes.get("rule").and_then(|rule| match rule {
            Literal::Text(kind) => today(kind),
            _ => None,
        })
    {
        let settings = op.attributes.get("settings").cloned();
        op.attributes.set("rule", kind);
        if let (Some(Literal::List(mut pairs)), Some(name)) = (settings, set) {
            pairs.push(Literal::List(vec![name.into(), true.into()]));
            pairs.sort_by_key(name_of);
            op.attributes.set("settings", Literal::List(pairs));
        }
    }
    op
}

/// Returns the name of a setting: attributes are sorted by name.
fn name_of(pair: &Literal) -> String {
    match pair {
        Literal::List(pair) => pair.first().map_or_else(String::new, Literal::to_string),
        _ => String::new(),
    }
}
