//! The uses between the files of `src/`: read from `use` declarations and the paths in the code.
//!
//! - An import of a name that is re-exported counts as an import of the file that defines it.
//! - A re-export alone is no use: `pub use` counts only if the rest of the file contains the name, too. So a `mod.rs` that
//!   re-exports the items of its children uses none of them.
//! - A child that imports a name *defined* in its parent's file uses the parent.
//! - Unit tests are left out, and so is `mod child;`.
//! - Method calls are not followed: only the file of the type counts, where the type is named.

use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

/// The files of `src/` by module path, each with its definitions and imports.
#[derive(Default)]
pub(super) struct Sources {
    modules: BTreeMap<Path, Module>,
    /// Macros that the crate's root has, and the modules that define them.
    macros: BTreeMap<String, Path>,
}

struct Module {
    file: String,
    tokens: Vec<Token>,
    defined: BTreeSet<String>,
    imports: Vec<Import>,
}

pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
    /// Part of a `use` declaration.
    imports: bool,
    /// The number of enclosing modules that are written in the file itself.
    inner: usize,
}

struct Import {
    /// The name that it has in the file; of a glob, `*`.
    name: String,
    path: Path,
    line: usize,
    exported: bool,
}

/// The target of a path.
enum Target {
    Module(Path),
    /// The module whose file defines the item.
    Item(Path),
}

/// The line at which a file uses another, for each other.
pub(super) type Uses = BTreeMap<String, usize>;

impl Sources {
    /// Adds a file, by its path below `src/`.
    pub(super) fn add(&mut self, file: &str, source: &str) {
        if file.ends_with("tests.rs") || file.contains("/tests/") {
            return;
        }
        let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
            path.pop();
        }
        let mut tokens = without_tests(tokens(source));
        count_inner(&mut tokens);
        let imports = imports(&mut tokens, &path);
        let mut defined = BTreeSet::new();
        for pair in tokens.windows(2) {
            let item = ["fn", "struct", "enum", "trait", "type", "const", "static"];
            if item.contains(&pair[0].text.as_str()) {
                defined.insert(pair[1].text.clone());
            }
        }
        for three in tokens.windows(3).filter(|t| t[0].text == "macro_rules" && t[1].text == "!") {
            defined.insert(three[2].text.clone());
        }
        for five in tokens.windows(5).filter(|t| t[0].text == "macro_export" && t[2].text == "macro_rules") {
            self.macros.insert(five[4].text.clone(), path.clone());
        }
        self.modules.insert(path, Module { file: file.to_owned(), tokens, defined, imports });
    }

    /// The files that each file uses.
    pub(super) fn uses(&self) -> BTreeMap<String, Uses> {
        self.modules.iter().map(|(path, module)| (module.file.clone(), self.of(path, module))).collect()
    }

    fn of(&self, path: &Path, module: &Module) -> Uses {
        let mut found = Uses::new();
        let mut note = |target: Option<Target>, line: usize| {
            if let Some(Target::Item(at)) = target
                && let Some(used) = self.modules.get(&at).filter(|_| at != *path)
            {
                found.entry(used.file.clone()).or_insert(line);
            }
        };
        let code = || module.tokens.iter().filter(|token| !token.imports);
        for import in &module.imports {
            if import.name == "*" {
                let Some(Target::Module(all)) = self.lead(&import.path, 0) else { continue };
                for token in code().filter(|token| self.has(&all, &token.text)) {
                    note(self.lead(&[&all[..], std::slice::from_ref(&token.text)].concat(), 0), token.line);
                }
            } else if !import.exported || code().any(|token| token.text == import.name) {
                note(self.lead(&import.path, 0), import.line);
            }
        }
        for (line, inner, segments) in paths(&module.tokens) {
            if let Some(whole) = self.absolute(path, module, inner, segments) {
                note(self.lead(&whole, 0), line);
            }
        }
        found
    }

    /// A path in a file's code from the crate's root, if it begins at a module of the crate.
    fn absolute(&self, path: &Path, module: &Module, inner: usize, segments: Path) -> Option<Path> {
        if let Some(whole) = rooted(path, inner, &segments) {
            return Some(whole);
        }
        let child = [&path[..], &segments[..1]].concat();
        if self.modules.contains_key(&child) {
            return Some([&path[..], &segments[..]].concat());
        }
        let import = module.imports.iter().find(|import| import.name == segments[0])?;
        let Target::Module(at) = self.lead(&import.path, 0)? else { return None };
        Some([&at[..], &segments[1..]].concat())
    }

    fn has(&self, module: &Path, name: &str) -> bool {
        self.modules.get(module).is_some_and(|module| {
            module.defined.contains(name) || module.imports.iter().any(|import| import.name == name)
        })
    }

    /// Follows a path from the root, through re-exports.
    fn lead(&self, path: &[String], steps: usize) -> Option<Target> {
        if steps > 16 {
            return None;
        }
        let inside = (0..=path.len()).rev().find(|&k| self.modules.contains_key(&path[..k]))?;
        let (at, rest) = path.split_at(inside);
        let Some(name) = rest.first() else { return Some(Target::Module(at.to_vec())) };
        let module = &self.modules[at];
        if let (true, Some(home)) = (at.is_empty(), self.macros.get(name)) {
            return Some(Target::Item(home.clone()));
        }
        if module.defined.contains(name) {
            return Some(Target::Item(at.to_vec()));
        }
        if let Some(import) = module.imports.iter().find(|import| import.name == *name) {
            return self.lead(&[&import.path[..], &rest[1..]].concat(), steps + 1);
        }
        let globs = module.imports.iter().filter(|import| import.name == "*");
        let mut through = globs.map(|import| [&import.path[..], rest].concat());
        let known = |whole: &Path| self.has(&whole[..whole.len() - rest.len()].to_vec(), name);
        match through.find(known) {
            Some(whole) => self.lead(&whole, steps + 1),
            // Made by a macro of this file.
            None => Some(Target::Item(at.to_vec())),
        }
    }
}

/// A path that begins with `crate`, `self` or `super`, from the root; `inner` modules are open in the file.
fn rooted(module: &Path, inner: usize, segments: &[String]) -> Option<Path> {
    let mut at = match segments.first()?.as_str() {
        "crate" => {
            module.first().filter(|name| super::CRATES.contains(&&***name)).into_iter().cloned().collect()
        }
        "self" | "super" => [&module[..], &vec!["{}".to_owned(); inner]].concat(),
        _ => return None,
    };
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    at.truncate(at.len().saturating_sub(ups));
    at.extend(segments[ups.max(1)..].iter().filter(|segment| *segment != "self").cloned());
    Some(at)
}

/// The words and signs of a file, without comments, strings and characters. `::` is one sign.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let (mut found, mut i, mut line) = (Vec::new(), 0, 1);
    let starts = |i: usize, with: &str| with.chars().enumerate().all(|(k, c)| chars.get(i + k) == Some(&c));
    while i < chars.len() {
        let from = i;
        if starts(i, "//") {
            while i < chars.len() && chars[i] != '\n' {
                i += 1;
            }
        } else if chars[i] == '"' {
            i += 1;
            while i < chars.len() && chars[i] != '"' {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if starts(i, "r#\"") {
            i += 3;
            while i < chars.len() && !starts(i, "\"#") {
                i += 1;
            }
            i += 2;
        } else if chars[i] == '\'' && (chars.get(i + 1) == Some(&'\\') || chars.get(i + 2) == Some(&'\'')) {
            i += if chars[i + 1] == '\\' { 3 } else { 2 };
            while i < chars.len() && chars[i] != '\'' {
                i += 1;
            }
            i += 1;
        } else if chars[i].is_alphanumeric() || chars[i] == '_' {
            while i < chars.len() && (chars[i].is_alphanumeric() || chars[i] == '_') {
                i += 1;
            }
            found.push(Token { text: chars[from..i].iter().collect(), line, imports: false, inner: 0 });
        } else {
            i += if starts(i, "::") { 2 } else { 1 };
            if !chars[from].is_whitespace() {
                found.push(Token { text: chars[from..i].iter().collect(), line, imports: false, inner: 0 });
            }
        }
        let end = i.min(chars.len());
        line += chars[from..end].iter().filter(|&&c| c == '\n').count();
    }
    found
}

/// Removes the items marked `#[cfg(test)]`.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let (mut kept, mut rest) = (Vec::new(), tokens.into_iter().peekable());
    while let Some(token) = rest.next() {
        kept.push(token);
        let last = kept.len().saturating_sub(7)..;
        let marked =
            kept[last].iter().map(|token| token.text.as_str()).eq(["#", "[", "cfg", "(", "test", ")", "]"]);
        if !marked {
            continue;
        }
        let mut depth = 0;
        for token in rest.by_ref() {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                ";" if depth == 0 => break,
                _ => {}
            }
        }
    }
    kept
}

/// Counts the modules that are open around each token.
fn count_inner(tokens: &mut [Token]) {
    let (mut depth, mut open) = (0, Vec::new());
    for i in 0..tokens.len() {
        tokens[i].inner = open.len();
        match tokens[i].text.as_str() {
            "{" => {
                depth += 1;
                if i > 1 && tokens[i - 2].text == "mod" {
                    open.push(depth);
                }
            }
            "}" => {
                open.pop_if(|at| *at == depth);
                depth -= 1;
            }
            _ => {}
        }
    }
}

/// The imports of a file, whose tokens it marks.
fn imports(tokens: &mut [Token], module: &Path) -> Vec<Import> {
    let (mut found, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        // `use<'a>` in a type is none.
        if tokens[i].text != "use" || tokens.get(i + 1).is_some_and(|next| next.text == "<") {
            i += 1;
            continue;
        }
        let exported = i > 0 && (tokens[i - 1].text == "pub" || tokens[i - 1].text == ")");
        let (line, inner, from) = (tokens[i].line, tokens[i].inner, i + 1);
        while i < tokens.len() && tokens[i].text != ";" {
            tokens[i].imports = true;
            i += 1;
        }
        let mut list: Vec<&str> = tokens[from..i].iter().map(|token| token.text.as_str()).collect();
        list.push(",");
        tree(&list, &mut 0, &Path::new(), &mut |path: Path, name: String| {
            let whole = rooted(module, inner, &path).unwrap_or_else(|| [&module[..], &path[..]].concat());
            found.push(Import { name, path: whole, line, exported });
        });
    }
    found
}

/// One entry of a tree of imports, up to the comma or brace behind it.
fn tree(list: &[&str], at: &mut usize, before: &Path, found: &mut dyn FnMut(Path, String)) {
    let mut path = before.clone();
    let mut name = None;
    while let Some(&token) = list.get(*at) {
        match token {
            "{" => {
                *at += 1;
                while list.get(*at).is_some_and(|&token| token != "}") {
                    tree(list, at, &path, found);
                    *at += usize::from(list.get(*at) == Some(&","));
                }
                *at += 1;
                return;
            }
            "," | "}" => break,
            "::" => {}
            "as" => {
                name = list.get(*at + 1).map(|&name| name.to_owned());
                *at += 1;
            }
            "*" => name = Some("*".to_owned()),
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        *at += 1;
    }
    if let Some(name) = name.or_else(|| path.last().cloned()) {
        found(path, name);
    }
}

/// The paths of two words or more in a file's code, with their lines and how many modules are open around them.
fn paths(tokens: &[Token]) -> Vec<(usize, usize, Path)> {
    let (mut found, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        let (line, inner, mut path) = (tokens[i].line, tokens[i].inner, Path::new());
        let word = |token: &Token| token.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if tokens[i].imports || !word(&tokens[i]) {
            i += 1;
            continue;
        }
        path.push(tokens[i].text.clone());
        i += 1;
        while i + 1 < tokens.len() && tokens[i].text == "::" && word(&tokens[i + 1]) {
            path.push(tokens[i + 1].text.clone());
            i += 2;
        }
        if path.len() > 1 {
            found.push((line, inner, path));
        }
    }
    found
}
