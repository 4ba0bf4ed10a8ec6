//! Files that use each other in a circle, and rooms that use a room above them.

use std::collections::{BTreeMap, BTreeSet};

use super::uses::{Sources, Uses};

/// The rooms of the modules that have them, bottom first: a file in one uses those before it.
const ROOMS: [(&str, &[&str]); 2] = [
    ("program", &["description", "transform", "construction"]),
    // The code that runs a plan and the code that prints it know nothing of compiling.
    ("executor", &["plan", "run", "observe", "rewrite", "compile", "reference"]),
];

/// Rooms that know nothing of some that come before them.
const STRANGERS: [(&str, &[&str]); 2] = [
    ("executor/rewrite/", &["executor/run/", "executor/observe/"]),
    ("executor/compile/", &["executor/run/", "executor/observe/"]),
];

/// Files that may use each other in a circle, and why.
pub(super) const ALLOWED: &[(&[&str], &str)] = &[
    (
        &[
            "kernels/float.rs",
            "kernels/math.rs",
            "kernels/path.rs",
            "kernels/picked.rs",
            "kernels/products.rs",
        ],
        "`Float` names the functions and the products of f32 and f64; these are written for any `Float`",
    ),
    (
        &["tensor/dense.rs", "tensor/dtype.rs"],
        "an element type says which variant of the closed enum of arrays holds it, and the enum has one for each",
    ),
];

/// Returns the circles that are not allowed, and the allowed circles that do not exist.
pub(super) fn complaints(uses: &BTreeMap<String, Uses>, allowed: &[(&[&str], &str)]) -> Vec<String> {
    let circles = circles(uses);
    let fits = |circle: &BTreeSet<&str>, files: &[&str]| circle.iter().all(|file| files.contains(file));
    let mut found = Vec::new();
    for circle in &circles {
        if !allowed.iter().any(|(files, _)| fits(circle, files)) {
            let inside = |file: &&str| {
                let used = uses[*file].iter().filter(|(used, _)| circle.contains(used.as_str()));
                let used: Vec<String> = used.map(|(used, line)| format!("{used} (line {line})")).collect();
                format!("  {file} uses {}", used.join(", "))
            };
            let lines: Vec<String> = circle.iter().map(inside).collect();
            found.push(format!("{} files use each other in a circle:\n{}", circle.len(), lines.join("\n")));
        }
    }
    for (files, _) in allowed {
        let alone =
            |file: &&&str| !circles.iter().any(|circle| circle.contains(**file) && fits(circle, files));
        found.extend(
            files.iter().filter(alone).map(|file| format!("{file} is in no circle: take it off the list")),
        );
    }
    found
}

/// The uses of a room above.
pub(super) fn upwards(uses: &BTreeMap<String, Uses>) -> Vec<String> {
    let mut found = Vec::new();
    for (module, rooms) in ROOMS {
        let rank = |file: &str| {
            let room = file.strip_prefix(module)?.strip_prefix('/')?.split_once('/')?.0;
            rooms.iter().position(|other| *other == room)
        };
        for (file, used) in uses {
            for (other, line) in used {
                if let (Some(from), Some(to)) = (rank(file), rank(other))
                    && from < to
                {
                    found.push(format!(
                        "{file}:{line}: `{}` uses `{}`, a room above it",
                        rooms[from], rooms[to]
                    ));
                }
            }
        }
    }
    for (room, strangers) in STRANGERS {
        for (file, used) in uses.iter().filter(|(file, _)| file.starts_with(room)) {
            let known = used.iter().filter(|(other, _)| strangers.iter().any(|room| other.starts_with(room)));
            found.extend(
                known.map(|(other, line)| format!("{file}:{line}: `{room}` knows nothing of `{other}`")),
            );
        }
    }
    found
}

/// The sets of files that each reach all others of their set, of more than one file.
fn circles(uses: &BTreeMap<String, Uses>) -> Vec<BTreeSet<&str>> {
    let reached = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = open.pop() {
            for other in uses.get(&file).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(other.clone()) {
                    open.push(other.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<String>> =
        uses.keys().map(|file| (file.as_str(), reached(file))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, all) in &reach {
        let around = |other: &&&str| all.contains(**other) && reach[**other].contains(*file);
        let circle: BTreeSet<&str> = reach.keys().filter(around).copied().collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn circles_of(files: &[(&str, &str)], allowed: &[(&[&str], &str)]) -> Vec<String> {
    let mut sources = Sources::default();
    files.iter().for_each(|(file, source)| sources.add(file, source));
    complaints(&sources.uses(), allowed)
}

#[test]
fn circles_are_found() {
    let two = |a: &str, b: &str| {
        circles_of(&[("m/mod.rs", "mod a; mod b; pub use a::A;"), ("m/a.rs", a), ("m/b.rs", b)], &[]).len()
    };
    assert_eq!(two("use super::b::B; pub struct A;", "pub struct B;"), 0);
    assert_eq!(two("use super::b::B; pub struct A;", "use super::a::A; pub struct B;"), 1);
    assert_eq!(
        two("use crate::m::b::{self as other}; pub struct A(other::B);", "pub struct B(crate::m::a::A);"),
        1
    );
    // By a re-export, and by a glob: of what is used.
    assert_eq!(two("use super::b::B; pub struct A;", "use super::A; pub struct B;"), 1);
    assert_eq!(two("use super::b::B; pub struct A;", "use super::*; pub struct B(A);"), 1);
    assert_eq!(two("use super::b::B; pub struct A;", "use super::*; pub struct B;"), 0);
    // In comments, strings and unit tests they are none.
    assert_eq!(
        two("use super::b::B; pub struct A;", "// use super::a::A;\nconst X: &str = \"super::a::A\";"),
        0
    );
    assert_eq!(two("use super::b::B; pub struct A;", "#[cfg(test)]\nmod tests { use super::a::A; }"), 0);

    // A module within the file is the file.
    let within = "mod inner { use super::A; pub struct I(super::A); } use super::b::B; pub struct A;";
    assert_eq!(two(within, "pub struct B;"), 0);
    assert_eq!(two(within, "mod inner { use super::super::a::A; } pub struct B;"), 1);

    // Parent and child.
    let family = |parent: &str, child: &str| circles_of(&[("m/mod.rs", parent), ("m/a.rs", child)], &[]);
    assert_eq!(family("mod a; pub use a::A; pub struct M;", "use super::M; pub struct A;").len(), 0);
    let found = family("mod a;\nuse a::A;\npub struct M(A);", "use super::M; pub struct A;");
    assert_eq!(
        found,
        [
            "2 files use each other in a circle:\n  m/a.rs uses m/mod.rs (line 1)\n  m/mod.rs uses m/a.rs (line 2)"
        ]
    );
    assert_eq!(family("mod a; pub use a::A; pub struct M(A);", "use super::M; pub struct A;").len(), 1);
    assert_eq!(family("mod a; pub struct M(a::A);", "pub struct A(super::M);").len(), 1);

    // The list allows what it names, and nothing else.
    let around =
        [("m/a.rs", "use crate::m::b::B;"), ("m/b.rs", "use crate::m::a::A;"), ("m/mod.rs", "mod a; mod b;")];
    assert_eq!(circles_of(&around, &[]).len(), 1);
    assert_eq!(circles_of(&around, &[(&["m/a.rs", "m/b.rs"], "a reason")]), [""; 0]);
    let stale = circles_of(&around, &[(&["m/a.rs", "m/b.rs", "m/c.rs"], "a reason")]);
    assert_eq!(stale, ["m/c.rs is in no circle: take it off the list"]);
}

#[test]
fn rooms_are_in_order() {
    let mut sources = Sources::default();
    sources.add("program/transform/x.rs", "use crate::program::construction::y::Y;\nuse crate::program::Z;");
    sources.add("program/construction/y.rs", "use crate::program::transform::x::X;");
    sources.add("program/construction/mod.rs", "pub mod y;");
    sources.add("program/transform/mod.rs", "pub mod x;");
    sources.add("program/mod.rs", "pub use construction::y::Y;\npub use construction::y::Z;");
    let expected = "program/transform/x.rs:1: `transform` uses `construction`, a room above it";
    assert_eq!(upwards(&sources.uses()), [expected]);
    let mut sources = Sources::default();
    sources.add("program/transform/x.rs", "use crate::program::construction::y::Y;");
    sources.add("program/construction/y.rs", "struct Y;");
    sources.add("program/x.rs", "use crate::program::construction::y::Y;");
    assert_eq!(upwards(&sources.uses()).len(), 1);
    let mut sources = Sources::default();
    sources.add("executor/compile/x.rs", "use crate::executor::run::y::Y;");
    sources.add("executor/run/y.rs", "struct Y;");
    let expected = "executor/compile/x.rs:1: `executor/compile/` knows nothing of `executor/run/y.rs`";
    assert_eq!(upwards(&sources.uses()), [expected]);
}
