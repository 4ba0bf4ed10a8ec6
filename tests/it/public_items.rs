//! The public items of each library, one a line in a file `public_items.txt`, so that a change of them is seen and meant.
//!
//! rustdoc lists them. Its JSON needs `RUSTC_BOOTSTRAP` outside of nightly, in a folder of its own, as that variable would build
//! dependencies anew. After a change that is meant: `UNPADDED_WRITE=1 cargo test --test it public_items`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The stable modules of the engine; the items at the root of a crate are stable, too.
const STABLE: [&str; 8] =
    ["checkpoint", "data", "layers", "metrics", "optimizer", "predict", "store", "train"];
/// Each library: its package, the features of its documentation, and its list.
const LIBRARIES: [(&str, &str, &str); 4] = [
    ("unpadded", "safetensors,terminal,testing", "tests/it/public_items.txt"),
    ("unpadded-text", "", "crates/text/tests/public_items.txt"),
    ("unpadded-recipes", "", "crates/recipes/tests/public_items.txt"),
    ("unpadded-serve", "", "crates/serve/tests/public_items.txt"),
];

/// The items of a crate, as rustdoc describes it.
struct Items<'a> {
    index: &'a serde_json::Map<String, Value>,
    /// The kind of each, by its path.
    found: BTreeMap<String, &'static str>,
    /// The path of each type, trait, function, constant and macro, by its number.
    paths: HashMap<u64, String>,
    twice: Vec<String>,
}

impl<'a> Items<'a> {
    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(&id.to_string())
    }

    fn items(&self, ids: &'a Value) -> Vec<&'a Value> {
        ids.as_array().into_iter().flatten().filter_map(|id| self.item(id)).collect()
    }

    fn listed(&mut self, path: String, kind: &'static str) {
        self.found.insert(path, kind);
    }

    /// Adds an item at a path: the exports of a module or a `use`, else the item with its methods, fields and variants.
    fn add(&mut self, id: &Value, path: &str, name: Option<&str>) {
        let Some(item) = self.item(id) else { return };
        let inner = &item["inner"];
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") };
        if let Some(used) = inner.get("use") {
            if used["is_glob"] == true && self.item(&used["id"]).is_none() {
                self.listed(join("*"), "again");
                return;
            }
            assert_eq!(
                used["is_glob"], false,
                "a glob in {path}: its names would not be listed by the `use`"
            );
            let name = used["name"].as_str().unwrap();
            match self.item(&used["id"]) {
                Some(_) => self.add(&used["id"], path, Some(name)),
                None => self.listed(join(name), "crate"),
            }
            return;
        }
        let path = join(name.or(item["name"].as_str()).unwrap());
        if let Some(module) = inner.get("module") {
            self.listed(path.clone(), "mod");
            // The root's own items first: a module that names one of them again is the second path.
            module["items"].as_array().unwrap().iter().for_each(|id| self.add(id, &path, None));
            return;
        }
        if let Some(first) = self.paths.get(&item["id"].as_u64().unwrap()) {
            match path.starts_with("prelude::") {
                true => self.listed(path, "again"),
                false => self.twice.push(format!("{path} is {first}")),
            }
            return;
        }
        self.paths.insert(item["id"].as_u64().unwrap(), path.clone());
        let (kind, content) = inner.as_object().and_then(|inner| inner.iter().next()).unwrap();
        let (kind, members): (_, Vec<(&str, &Value)>) = match kind.as_str() {
            "struct" => {
                let fields = content["kind"]
                    .get("plain")
                    .map(|plain| &plain["fields"])
                    .or(content["kind"].get("tuple"));
                ("struct", fields.map(|fields| ("field", fields)).into_iter().collect())
            }
            "enum" => ("enum", vec![("variant", &content["variants"])]),
            "trait" => ("trait", vec![("of trait", &content["items"])]),
            "function" => ("fn", vec![]),
            "constant" => ("const", vec![]),
            "type_alias" => ("type", vec![]),
            "macro" => ("macro", vec![]),
            other => panic!("{path}: `{other}` is no kind of item that this test knows"),
        };
        self.listed(path.clone(), kind);
        for (kind, members) in members {
            for member in self.items(members) {
                let public = matches!(member["visibility"].as_str(), Some("public" | "default"));
                if public || kind != "field" {
                    let kind = match kind {
                        "field" => "field",
                        "variant" => "variant",
                        _ => "of trait",
                    };
                    self.listed(format!("{path}::{}", member["name"].as_str().unwrap()), kind);
                }
            }
        }
        for implemented in content.get("impls").and_then(Value::as_array).into_iter().flatten() {
            let Some(implemented) = self.item(implemented).map(|item| &item["inner"]["impl"]) else {
                continue;
            };
            if implemented["trait"].is_null() {
                for method in self.items(&implemented["items"]) {
                    if method["visibility"] != "public" {
                        continue;
                    }
                    let kind = if method["inner"].get("function").is_some() { "fn" } else { "const" };
                    self.listed(format!("{path}::{}", method["name"].as_str().unwrap()), kind);
                }
            }
        }
    }
}

/// The description of a library that rustdoc writes.
fn described(package: &str, features: &str) -> Value {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-items");
    let out = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTDOCFLAGS")
        .args(["rustdoc", "-p", package, "--lib", "--quiet", "--no-default-features", "--features", features])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(
        &std::fs::read(target.join(format!("doc/{}.json", package.replace('-', "_")))).unwrap(),
    )
    .unwrap()
}

#[test]
fn the_public_items_are_those_of_the_lists() {
    let complaints: String =
        LIBRARIES.iter().map(|(package, features, list)| changes(package, features, list)).collect();
    let hint =
        "if that is meant: UNPADDED_WRITE=1 cargo test --test it public_items, and a line in CHANGELOG.md";
    assert!(complaints.is_empty(), "the public items changed; {hint}\n{complaints}");
}

/// The lines of a list that have changed.
fn changes(package: &str, features: &str, list: &str) -> String {
    let described = described(package, features);
    let index = described["index"].as_object().unwrap();
    let mut items = Items { index, found: BTreeMap::new(), paths: HashMap::new(), twice: Vec::new() };
    let root = items.item(&described["root"]).unwrap()["inner"]["module"]["items"].as_array().unwrap();
    let is_module = |id: &&Value| items.item(id).is_some_and(|item| item["inner"].get("module").is_some());
    let is_prelude = |id: &&Value| items.item(id).is_some_and(|item| item["name"] == "prelude");
    // A type's path is that at the root, if it has one; the prelude is on purpose a second one.
    let (modules, own): (Vec<&Value>, Vec<&Value>) = root.iter().partition(is_module);
    let (prelude, modules): (Vec<&Value>, Vec<&Value>) = modules.into_iter().partition(is_prelude);
    assert!(
        prelude.len() <= 1 && ["unpadded-recipes", "unpadded-serve"].contains(&package) == prelude.is_empty(),
        "{package}"
    );
    own.into_iter().chain(modules).chain(prelude).for_each(|id| items.add(id, "", None));
    assert!(items.twice.is_empty(), "by two paths:\n{}", items.twice.join("\n"));

    // An operator's method is one item, of the builder and of variables.
    let own = |path: &str| path.strip_prefix("Var::").map(|method| format!("Builder::{method}"));
    let builders: Vec<String> =
        items.found.keys().filter(|path| path.starts_with("Builder::")).cloned().collect();
    items.found.retain(|path, _| own(path).is_none_or(|own| !builders.contains(&own)));

    let root = |path: &str| {
        !["mod", "again"].contains(&items.found[path]) && {
            let head = path.split("::").next().unwrap();
            STABLE.contains(&head) || head.starts_with(char::is_uppercase)
        }
    };
    let stable = items.found.keys().filter(|path| root(path)).count();
    let modules =
        if package == "unpadded" { format!(" and in {}", STABLE.join(", ")) } else { String::new() };
    let head = format!(
        "{} public items, {stable} of them stable: those at the root{modules}.\n\n",
        items.found.values().filter(|kind| **kind != "again").count(),
    );
    let lines: String = items.found.iter().map(|(path, kind)| format!("{path} ({kind})\n")).collect();
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(list);
    let now = head + &lines;
    if std::env::var_os("UNPADDED_WRITE").is_some() {
        std::fs::write(&list, &now).unwrap();
    }
    let was = std::fs::read_to_string(&list).unwrap();
    let difference = |from: &str, to: &str, sign: char| -> Vec<String> {
        let from: std::collections::HashSet<&str> = from.lines().collect();
        to.lines().filter(|line| !from.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let changed = [difference(&now, &was, '-'), difference(&was, &now, '+')].concat();
    changed.iter().map(|line| format!("{package}: {line}\n")).collect()
}
