//! Calls that fail, and the check that their errors name the line of the call, for each crate.

use std::collections::BTreeSet;
use std::fs;
use std::panic::Location;
use std::path::{Path, PathBuf};

use unpadded::Result;

use crate::refused::Outcome;

/// What was called, and where the call begins; the line that its error names, and its message.
#[derive(Default)]
pub(crate) struct Calls(Vec<(&'static str, &'static Location<'static>, Option<String>)>, Vec<String>);

impl Calls {
    /// A call that fails, written behind this one, on the same line or further down.
    #[track_caller]
    pub(crate) fn at<T: Outcome>(&mut self, name: &'static str, call: impl FnOnce() -> T) {
        let error = call().error();
        self.1.extend(error.as_ref().map(|e| format!("{name}: {}", without_line(&e.to_string()))));
        let said = error.map(|e| e.place().caller.clone().unwrap_or_else(|| format!("{e}: no line")));
        self.0.push((name, Location::caller(), said));
    }

    /// Returns the complaints: calls that did not fail, or whose error names a line before the call or after the next call.
    fn complaints(&self) -> Vec<String> {
        let next = |i: usize| self.0.get(i + 1).map(|(_, next, _)| next);
        let mut found = Vec::new();
        for (i, (name, from, said)) in self.0.iter().enumerate() {
            let end =
                next(i).filter(|next| next.file() == from.file()).map_or(from.line() + 12, |n| n.line());
            let said = said.as_deref().unwrap_or("no error");
            let line = said.strip_prefix(from.file()).and_then(|rest| rest.strip_prefix(':'));
            let line = line.and_then(|rest| rest.split(':').next()).and_then(|line| line.parse::<u32>().ok());
            if !line.is_some_and(|line| (from.line()..end.max(from.line() + 1)).contains(&line)) {
                found.push(format!("{name} at {}:{}: {said}", from.file(), from.line()));
            }
        }
        found
    }
}

/// A message without the lines of this crate and without paths of this machine.
fn without_line(message: &str) -> String {
    let temporary = std::env::temp_dir().to_string_lossy().into_owned();
    // With the hyphen before it, as numbers in messages may contain the digits.
    let process = format!("-{}", std::process::id());
    let message = message.replace(&temporary, "TEMP").replace(&process, "-PROCESS");
    // A new operator changes no message here.
    let catalogue = unpadded::ops::catalogue();
    let message = message.replace(&catalogue.kinds().collect::<Vec<_>>().join(", "), "KINDS");
    let mut parts = message.split(" (at ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| match part.split_once(')') {
        Some((place, rest)) if place.contains("tests/") => out + rest,
        _ => out + " (at " + part,
    })
}

impl Calls {
    /// Checks the calls, and that every public function in `root` that can fail is called or in `left_out`. The result has what
    /// each call says.
    #[track_caller]
    pub(crate) fn check(self, root: &Path, left_out: &[(&str, &str)]) -> String {
        let mut wrong = self.complaints();
        let called: BTreeSet<&str> = self.0.iter().map(|(name, ..)| *name).collect();
        let left_out: BTreeSet<&str> = left_out.iter().map(|(name, _)| *name).collect();
        let public = public_fallible(root);
        // `operator!` writes the method of every operator in one way, so a new operator needs no call here.
        let operators = unpadded::ops::catalogue();
        let written = |name: &str| {
            name.strip_prefix("Builder::").is_some_and(|kind| operators.declaration(kind).is_some())
        };
        let named = |name: &str| called.contains(name) || left_out.contains(name) || written(name);
        wrong.extend(
            public.iter().filter(|name| !named(name)).map(|name| format!("{name} is called nowhere here")),
        );
        let known = |name: &&&str| !public.contains(**name);
        wrong.extend(
            called.iter().chain(&left_out).filter(known).map(|name| format!("{name}: there is none")),
        );
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        self.1.join("\n")
    }
}

/// The public functions of the sources in `root` that return a `Result`, or write errors down, as `Type::name` or `module::name`.
fn public_fallible(root: &Path) -> BTreeSet<String> {
    let mut paths = Vec::new();
    sources(root, &mut paths);
    let mut found = BTreeSet::new();
    for path in paths.iter().filter(|path| !path.ends_with("tests.rs")) {
        let module = if path.ends_with("mod.rs") { path.parent().unwrap_or(path) } else { path };
        let module = module.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.extend(fallible(&module, &fs::read_to_string(path).unwrap()));
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Lists the fallible functions of one file. Names that a macro fills in keep their `$`, and get the module's name.
fn fallible(module: &str, source: &str) -> Vec<String> {
    let source = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let raw: Vec<&str> = source.lines().collect();
    let code: Vec<&str> =
        raw.iter().map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect();
    let (mut found, mut owner, mut public_trait) = (Vec::new(), None, false);
    for (i, line) in code.iter().enumerate() {
        let text = line.trim_start();
        // The blocks in which the declaration of an operator defines its methods.
        let declares = ["impl Builder {", "impl Builder, Var {", "impl $($on),+ {"];
        let declared = declares.iter().find_map(|head| text.strip_prefix(head));
        if let Some(rest) = declared.filter(|_| line.starts_with(' ')) {
            let method =
                if rest.trim().is_empty() { code.get(i + 1).copied().unwrap_or_default() } else { rest };
            if let Some(method) = method.trim_start().strip_prefix("fn ") {
                let name = word(method);
                found.push(format!("{}::{name}", if name.starts_with('$') { module } else { "Builder" }));
            }
            continue;
        }
        if let Some(head) = text.strip_prefix("impl").filter(|rest| rest.starts_with([' ', '<'])) {
            (owner, public_trait) = (Some(owner_of(head)), false);
        } else if text.starts_with("pub trait ") || text.starts_with("trait ") || text.contains(") trait ") {
            let name = text.split("trait ").nth(1).unwrap_or_default();
            (owner, public_trait) = (Some(word(name).to_owned()), text.starts_with("pub trait "));
        } else if text.contains("builder_methods! {") {
            (owner, public_trait) = (Some("Builder".to_owned()), false);
        } else if *line == "}" {
            (owner, public_trait) = (None, false);
        }
        let name = match text.strip_prefix("pub fn ").or_else(|| text.strip_prefix("pub const fn ")) {
            Some(name) => name,
            None => match text.strip_prefix("fn ").filter(|_| public_trait && line.starts_with("    fn ")) {
                Some(name) => name,
                None => continue,
            },
        };
        let signature: String = code[i..].iter().take(14).copied().collect::<Vec<_>>().join(" ");
        // A function that records its errors has a section `# Errors`, too.
        let above = raw[..i].iter().rev().map(|line| line.trim_start());
        let documented = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let says = documented.into_iter().any(|line| line == "/// # Errors");
        if says || returns(&signature).is_some_and(|out| out.contains("Result<")) {
            let name = word(name);
            let owner = owner.clone().filter(|_| !name.starts_with('$'));
            found.push(format!("{}::{name}", owner.unwrap_or_else(|| module.to_owned())));
        }
    }
    found
}

/// The type of `impl<T> Type<T>`, or of `impl Trait for Type`.
fn owner_of(head: &str) -> String {
    let mut depth = 0;
    let start = head.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c != '>' && c != ' '
    });
    let head = head.get(start.unwrap_or(0)..).unwrap_or_default();
    let of = head.split(" for ").last().unwrap_or_default().trim_start_matches("dyn ");
    match word(of) {
        "$context" | "CallInputs" => "Forward".to_owned(), // and `Backward`, by the same lines
        name => name.to_owned(),
    }
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$')
        .find(|w| !w.is_empty())
        .unwrap_or_default()
}

/// Returns the return type of a function: the text after the arrow that follows its last parameter.
fn returns(signature: &str) -> Option<&str> {
    let mut depth = 0;
    for (i, c) in signature.char_indices() {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        match (depth, c) {
            (0, ')') if signature[i + 1..].trim_start().starts_with("->") => {
                let out = &signature[i + 1..];
                return out.split(['{', ';']).next();
            }
            (0, '{' | ';') => return None,
            _ => {}
        }
    }
    None
}

/// The reader of sources finds exactly the public functions.
#[test]
fn what_is_public_is_found() {
    let source = "\
impl<T: Copy> Table<T> {
    /// pub fn told(&self) -> Result<()> {}
    pub fn get(&self) -> Result<T> {
    }
    pub fn with(
        read: impl Fn() -> Result<T>,
    ) -> Result<Self> {
    }
    pub fn two(names: [&str; 2]) -> Result<Self> {
    pub fn cannot(read: impl Fn() -> Result<T>) -> Self {
    pub(crate) fn own(&self) -> Result<T> {
    fn private(&self) -> Result<T> {
}
pub trait Source {
    fn open(&self) -> Result<u8>;
    fn size(&self) -> usize;
}
trait Hidden {
    fn open_hidden(&self) -> Result<u8>;
}
impl Source for Table<u8> {
    fn open(&self) -> Result<u8> {
}
macro_rules! methods {
            pub fn $kind(&self) -> Result<u8> {
            impl Builder { fn $name(&self) -> Var; }
}
operator! {
    struct Made = made {}
    impl Builder { fn made(&self, x: Var) -> Var; }
    impl Builder {
        fn made_with(&self, x: Var, y: u8) -> Var {
        }
    }
}
builder_methods! { Builder, Var;
    /// # Errors
    /// If it is none.
    #[doc(alias = \"other\")]
    pub fn appended(&self, x: Var) -> Var {
    /// Has none.
    pub fn plain(&self, x: Var) -> Var {
}
pub fn free() -> Result<u8> {
}
#[cfg(test)]
mod tests {
    pub fn tested() -> Result<u8> {}
}
";
    let table = ["Table::get", "Table::with", "Table::two", "Source::open"];
    let by_macros =
        ["part::$kind", "part::$name", "Builder::made", "Builder::made_with", "Builder::appended"];
    assert_eq!(fallible("part", source), [&table[..], &by_macros[..], &["part::free"]].concat());
}

/// A call that does not fail and a line that is another's are complained of.
#[test]
fn complaints_bite() {
    let mut calls = Calls::default();
    calls.at("succeeds", || Ok(()));
    let early: Result<()> = Err(unpadded::Error::new("made", "too", "early"));
    calls.at("early", || early);
    calls.at("right", || Err::<(), _>(unpadded::Error::new("made", "here", "so")));
    let found = calls.complaints();
    assert!(found.len() == 2 && found[0].contains("no error") && found[1].starts_with("early"), "{found:?}");
}
