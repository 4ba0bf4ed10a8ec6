//! The functions of the sources, and the ways on which an error loses the line of the caller.

use std::collections::BTreeMap;

/// A function of the sources.
pub(super) struct Function {
    file: String,
    line: usize,
    name: String,
    /// The type or the trait of the `impl` or `trait` around the function.
    owner: Option<String>,
    /// The trait that an `impl` implements.
    of_trait: Option<String>,
    is_public: bool,
    /// The file or the folder, without `.rs`, whose modules see the function.
    seen_in: String,
    is_tracked: bool,
    returns_result: bool,
    /// Whether the documentation has a section of errors: methods of a builder record their errors.
    has_errors: bool,
    body: String,
}

impl Function {
    fn called(&self) -> String {
        let module = self.file.trim_end_matches("/mod.rs").trim_end_matches(".rs").rsplit('/').next();
        let owner = self.owner.as_deref().or(module).unwrap_or_default();
        format!("{owner}::{}", self.name)
    }

    /// Whether this is the function `Type::name`, or a function of `Type::`, also where a type implements this trait.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let by_trait = self.of_trait.as_ref().map(|build| format!("{build}::{}", self.name));
        let fits = |called: &str| called == name || name.ends_with("::") && called.starts_with(name);
        fits(&self.called()) || by_trait.is_some_and(|called| fits(&called))
    }

    /// Whether the function stores the line of its caller, for later errors.
    fn stores_line(&self) -> bool {
        self.body.contains("Location::caller()") || self.body.contains("CallerSetting::new(")
    }

    fn can_fail(&self) -> bool {
        self.returns_result || self.has_errors
    }
}

/// Replaces comments, and the contents of strings and of characters, by spaces.
fn code(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\n');
    let (mut out, mut i, mut quoted) = (String::with_capacity(source.len()), 0, false);
    while let Some(&c) = chars.get(i) {
        let mut keep = c;
        let mut skipped = 0;
        if quoted && c == '\\' {
            (keep, skipped) = (' ', 1);
        } else if c == '"' {
            quoted = !quoted;
        } else if quoted && c != '\n' {
            keep = ' ';
        } else if c == '/' && at(i + 1) == '/' {
            skipped = chars[i..].iter().take_while(|c| **c != '\n').count() - 1;
            keep = ' ';
        } else if c == '\'' && (at(i + 2) == '\'' || at(i + 1) == '\\') {
            let end = (i + 2..).find(|end| at(*end) == '\'' || at(*end) == '\n').unwrap_or(i + 2);
            (keep, skipped) = (' ', end - i);
        }
        out.push(keep);
        out.extend(chars[i + 1..].iter().take(skipped).map(|c| if *c == '\n' { '\n' } else { ' ' }));
        i += 1 + skipped;
    }
    out
}

/// Returns the index of the bracket that closes the one at `open`.
fn closing(text: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (i, c) in text.iter().enumerate().skip(open) {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 1 => return i,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the index of the bracket that the one at `close` closes.
fn opening(text: &[u8], close: usize) -> usize {
    let mut depth = 0;
    for i in (0..=close).rev() {
        match text[i] {
            b')' | b']' | b'}' => depth += 1,
            b'(' | b'[' | b'{' if depth == 1 => return i,
            b'(' | b'[' | b'{' => depth -= 1,
            _ => {}
        }
    }
    0
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn first_word(text: &str) -> &str {
    text.split(|c| !is_word(c)).find(|word| !word.is_empty()).unwrap_or_default()
}

/// The word at the end of a text.
fn last_word(text: &str) -> &str {
    let start = text.char_indices().rev().take_while(|(_, c)| is_word(*c)).last();
    start.map_or("", |(i, _)| &text[i..])
}

/// The trait and the type of `impl<T> Trait for Type<T>`, without `impl`.
fn owner_of(head: &str) -> (Option<String>, String) {
    let head = match head.starts_with('<') {
        true => {
            let mut depth = 0;
            let end = head.char_indices().find(|(i, c)| {
                depth += i32::from(*c == '<') - i32::from(*c == '>' && !head[..*i].ends_with('-'));
                depth == 0
            });
            end.map_or("", |(i, _)| &head[i + 1..])
        }
        false => head,
    };
    let named = |text: &str| {
        let path = text.trim().trim_start_matches("dyn ").split(['<', ' ', '{']).next().unwrap_or_default();
        last_word(path.trim_start_matches('&')).to_owned()
    };
    match head.split_once(" for ") {
        Some((build, on)) => (Some(named(build)), named(on)),
        None => (None, named(head)),
    }
}

/// Returns the functions of a source file, up to its unit tests.
pub(super) fn functions(file: &str, source: &str) -> Vec<Function> {
    let source = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let stripped = code(source);
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let top = file.split_inclusive("src/").next().unwrap_or_default();
    let (raw, lines): (Vec<&str>, Vec<&str>) = (source.lines().collect(), stripped.lines().collect());
    let mut found = Vec::new();
    let (mut owner, mut of_trait, mut in_public_trait, mut by_macro) = (None, None, false, false);
    let mut start = 0;
    for (i, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let begin = start + line.len() - text.len();
        start += line.len() + 1;
        let visible = text.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        if let Some(head) = text.strip_prefix("impl").filter(|rest| rest.starts_with([' ', '<'])) {
            let (build, on) = owner_of(head);
            (owner, of_trait, in_public_trait, by_macro) = (Some(on), build, false, false);
        } else if let Some(head) = visible.trim_start_matches("pub ").strip_prefix("trait ") {
            let is_public = text.starts_with("pub trait ");
            (owner, of_trait, in_public_trait) = (Some(first_word(head).to_owned()), None, is_public);
        } else if text.contains("builder_methods! {") {
            (owner, of_trait, in_public_trait, by_macro) = (Some("Builder".to_owned()), None, false, true);
        } else if *line == "}" {
            (owner, of_trait, in_public_trait, by_macro) = (None, None, false, false);
        }
        let Some(at) = text.find("fn ").filter(|at| {
            let before = text[..*at].trim_end();
            before
                .split(' ')
                .all(|word| ["", "pub", "const", "unsafe"].contains(&word) || word.starts_with("pub("))
        }) else {
            continue;
        };
        let signature = &stripped[begin..];
        let bytes = signature.as_bytes();
        let (mut end, mut arrow) = (at, None);
        while end < bytes.len() && !matches!(bytes[end], b'{' | b';') {
            match bytes[end] {
                b'(' | b'[' => end = closing(bytes, end),
                b'-' if bytes.get(end + 1) == Some(&b'>') && arrow.is_none() => arrow = Some(end),
                _ => {}
            }
            end += 1;
        }
        let returned = arrow.map_or("", |arrow| &signature[arrow..end.min(signature.len())]);
        let returned = returned.split(" where ").next().unwrap_or_default();
        let body = match bytes.get(end) {
            Some(b'{') => signature.get(end + 1..closing(bytes, end)).unwrap_or_default(),
            _ => "",
        };
        let above = raw[..i].iter().rev().map(|line| line.trim_start());
        let above: Vec<&str> =
            above.take_while(|line| line.starts_with("///") || line.starts_with("#[")).collect();
        let name = first_word(&text[at + 3..]).to_owned();
        found.push(Function {
            file: file.to_owned(),
            line: i + 1,
            owner: owner.clone().filter(|_| line.starts_with(' ')),
            of_trait: of_trait.clone().filter(|_| line.starts_with(' ')),
            is_public: text.starts_with("pub ") || in_public_trait && line.starts_with("    fn "),
            seen_in: match text.split(' ').next() {
                Some("pub" | "pub(crate)") => top.to_owned(),
                Some("pub(super)") => module.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned(),
                _ if of_trait.is_some() || in_public_trait => top.to_owned(),
                _ => module.to_owned(),
            },
            is_tracked: by_macro || above.contains(&"#[track_caller]"),
            returns_result: returned.contains("Result<") || returned.trim_end().ends_with("Error"),
            has_errors: above.contains(&"/// # Errors"),
            body: body.to_owned(),
            name,
        });
    }
    found
}

/// All functions, by name.
pub(super) struct Sources(Vec<Function>, BTreeMap<String, Vec<usize>>);

impl Sources {
    pub(super) fn new(mut functions: Vec<Function>) -> Self {
        // A method of a trait is called through the trait, whose attribute holds for every implementation.
        let of_trait = |f: &Function| f.is_public && f.owner.is_some() && f.of_trait.is_none();
        let declared: BTreeMap<String, bool> = functions
            .iter()
            .filter(|f| of_trait(f) && f.can_fail())
            .map(|f| (f.called(), f.is_tracked))
            .collect();
        for function in functions.iter_mut() {
            let declaration = function.of_trait.as_ref().map(|build| format!("{build}::{}", function.name));
            if let Some(&is_tracked) = declaration.and_then(|name| declared.get(&name)) {
                function.is_public |= is_tracked;
                function.is_tracked |= is_tracked;
            }
        }
        let mut by_name = BTreeMap::<String, Vec<usize>>::new();
        for (i, function) in functions.iter().enumerate().filter(|(_, f)| f.returns_result) {
            by_name.entry(function.name.clone()).or_default().push(i);
        }
        Self(functions, by_name)
    }

    /// The public functions that can fail, or that later errors are about.
    pub(super) fn public(&self) -> impl Iterator<Item = &Function> {
        self.0.iter().filter(|f| f.is_public && (f.can_fail() || f.stores_line()))
    }

    /// Returns how a public function loses the line of its caller.
    pub(super) fn lost(&self, function: &Function) -> Vec<String> {
        let location = format!("{}:{}: `{}`", function.file, function.line, function.called());
        if !function.is_tracked {
            return vec![format!("{location} has no `#[track_caller]`")];
        }
        // The line is kept, and added to the errors by hand.
        let keeps = ["Location::caller", "CallerSetting", "$"].iter().any(|way| function.body.contains(way));
        if keeps || !function.returns_result {
            return Vec::new();
        }
        self.lost_in(function, &function.body).into_iter().map(|how| format!("{location}: {how}")).collect()
    }

    fn lost_in(&self, function: &Function, body: &str) -> Vec<String> {
        // A closure is called by another function, whose line its errors have.
        let adds = [".at_caller()", ".called(", ".of_key("].iter().any(|way| body.contains(way));
        let inside: Vec<&str> = closures(body).collect();
        let within = |i: usize| {
            let at = body.as_ptr() as usize + i;
            inside
                .iter()
                .any(|made| (made.as_ptr() as usize..made.as_ptr() as usize + made.len()).contains(&at))
        };
        let ends = body.char_indices().filter(|(i, c)| *c == '?' && !within(*i)).map(|(i, _)| &body[..i]);
        let returns = body.match_indices("return ").map(|(i, _)| &body[i..]).filter_map(|text| {
            let mut depth = 0;
            let end = text.char_indices().find(|(_, c)| {
                depth += i32::from(matches!(c, '(' | '[' | '{')) - i32::from(matches!(c, ')' | ']' | '}'));
                depth < 0 || depth == 0 && matches!(c, ';' | ',')
            });
            end.map(|(i, _)| &text[..i])
        });
        let mut found: Vec<String> =
            ends.chain(returns).filter_map(|text| self.losing(function, text)).collect();
        found.extend(self.losing_tail(function, body));
        found.extend(inside.iter().filter(|made| !adds && made.contains("Error::")).map(|made| {
            format!("an error of a closure: `{}`", made.split_whitespace().collect::<Vec<_>>().join(" "))
        }));
        found
    }

    /// The value at the end of a block, or of each of its branches.
    fn losing_tail(&self, function: &Function, body: &str) -> Vec<String> {
        let body = body.trim_end();
        let Some(block) = body.strip_suffix('}') else {
            let arm = body.trim_end_matches(',');
            return self.losing(function, arm).into_iter().collect();
        };
        let open = opening(body.as_bytes(), body.len() - 1);
        let head = body[..open].trim_end();
        let mut found = Vec::new();
        let statement = head.rsplit([';', '}']).next().unwrap_or_default();
        if statement.trim_start().starts_with("match ") || statement.contains("=> match ") {
            let bytes = block.as_bytes();
            let mut at = open + 1;
            while let Some(arrow) = block[at..].find("=>").map(|i| at + i + 2) {
                let mut end = arrow;
                while end < bytes.len() && bytes[end] != b',' {
                    let is_block = bytes[end] == b'{' && block[arrow..end].trim().is_empty();
                    if matches!(bytes[end], b'(' | b'[' | b'{') {
                        end = closing(bytes, end).min(bytes.len() - 1);
                    }
                    end += 1;
                    if is_block {
                        break;
                    }
                }
                let arm = block[arrow..end.min(block.len())].trim();
                match arm.strip_prefix('{').and_then(|arm| arm.strip_suffix('}')) {
                    Some(inner) => found.extend(self.losing_tail(function, inner)),
                    None => found.extend(self.losing_tail(function, arm)),
                }
                at = (end + 1).min(block.len());
            }
        } else {
            found.extend(self.losing_tail(function, &block[open + 1..]));
            if let Some(head) = head.strip_suffix("else") {
                found.extend(self.losing_tail(function, head.trim_end()));
            }
        }
        found
    }

    /// How the error of the value that ends here has no line of the caller; `None` if it has one, or if there is none.
    fn losing(&self, function: &Function, text: &str) -> Option<String> {
        let text = text.trim_end();
        if !text.ends_with(')') {
            let word = last_word(text);
            let before = text[..text.len() - word.len()].trim_end();
            let is_local =
                word.starts_with(char::is_lowercase) && !before.ends_with(['.', ':']) && word != "self";
            let made = function.body.rsplit_once(&format!("let {word} = ")).map(|(_, made)| made);
            let kept = made.is_some_and(|made| {
                self.losing(function, made.split(';').next().unwrap_or_default()).is_none()
            });
            return (is_local && !kept).then(|| format!("the error of `{word}`"));
        }
        let open = opening(text.as_bytes(), text.len() - 1);
        let (head, arguments) = (without_turbofish(&text[..open]), &text[open + 1..text.len() - 1]);
        let name = last_word(head);
        let before = head[..head.len() - name.len()].trim_end();
        let receiver = before.strip_suffix('.');
        match name {
            "at_caller" | "called" | "Ok" | "Some" | "" => None,
            "Err" if arguments.ends_with(')') => self.losing(function, arguments),
            "Err" => None,
            "unwrap_or_else" if !arguments.contains("Err") => None,
            "map_err" if arguments.contains("Error::") || !arguments.contains('|') => {
                Some("an error of `map_err`".into())
            }
            "map" if arguments.contains("Error") => Some("an error of `map`".into()),
            "map" if !arguments.contains('|') => {
                let path = &arguments[..arguments.len() - last_word(arguments).len()];
                let fails = !self.candidates(function, last_word(arguments), path).is_empty();
                fails
                    .then(|| format!("an error of `map({arguments})`"))
                    .or_else(|| self.losing(function, receiver?))
            }
            "map" | "map_err" | "noted" | "within" | "noted_in_code" | "transpose" | "copied" | "cloned"
            | "variable" | "caused_by" | "row" | "ok_or" | "inspect_err" => {
                receiver.and_then(|receiver| self.losing(function, receiver))
            }
            "ok_or_else" | "unwrap_or_else" | "try_for_each" | "try_fold" | "collect" | "and_then"
            | "map_or" | "map_or_else" => Some(format!("an error of `{name}`")),
            _ if !before.ends_with(['.', ':']) && function.body.contains(&format!("let {name} = ")) => {
                let made = function.body.split_once(&format!("let {name} = |")).map_or("", |(_, made)| made);
                let made = made.split(';').next().unwrap_or_default();
                made.contains("Error::").then(|| format!("an error of the closure `{name}`"))
            }
            _ => {
                let calls = self.candidates(function, name, before);
                let untracked = calls.iter().find(|call| !call.is_tracked)?;
                Some(format!("`{name}` of {} has no `#[track_caller]`", untracked.file))
            }
        }
    }

    /// The functions that a call may mean: `before` ends with `self.`, `Type::`, or another receiver.
    fn candidates(&self, caller: &Function, name: &str, before: &str) -> Vec<&Function> {
        // `pub` is seen in the crates above, too.
        let visible = |f: &&Function| {
            let is_seen = f.seen_in.ends_with("src/") && f.is_public && !caller.file.starts_with("src/");
            is_seen || caller.file.starts_with(&f.seen_in)
        };
        let all: Vec<&Function> =
            self.1.get(name).into_iter().flatten().map(|i| &self.0[*i]).filter(visible).collect();
        let narrowed: Vec<&Function> = if let Some(path) = before.strip_suffix("::") {
            let named = last_word(without_turbofish(path));
            let on = if named == "Self" { caller.owner.as_deref() } else { Some(named) };
            let is_type = named.starts_with(char::is_uppercase);
            let is_generic = is_type && named.len() == 1;
            let fits = |f: &&Function| match is_type {
                true => is_generic && f.owner.is_some() || f.owner.as_deref() == on,
                false => f.owner.is_none(),
            };
            all.iter().copied().filter(fits).collect()
        } else if let Some(receiver) = before.strip_suffix('.') {
            let word = last_word(receiver.trim_end());
            let is_self = word == "self";
            let layer =
                |f: &Function| f.file.split('/').nth(f.file.starts_with("src/").into()).map(str::to_owned);
            let likely: [&dyn Fn(&Function) -> bool; 4] = [
                &|f| is_self && f.owner == caller.owner,
                &|f| {
                    f.owner.as_deref().is_some_and(|owner| owner.eq_ignore_ascii_case(&word.replace('_', "")))
                },
                &|f| f.owner.as_deref().is_some_and(|owner| caller.body.contains(&format!("{owner}::"))),
                &|f| layer(f) == layer(caller),
            ];
            let methods: Vec<&Function> = all.iter().copied().filter(|f| f.owner.is_some()).collect();
            let most_likely = likely.iter().find(|likely| methods.iter().any(|f| likely(f)));
            methods.into_iter().filter(|f| most_likely.is_none_or(|likely| likely(f))).collect()
        } else {
            let free: Vec<&Function> = all.iter().copied().filter(|f| f.owner.is_none()).collect();
            let near: Vec<&Function> = free.iter().copied().filter(|f| f.file == caller.file).collect();
            if near.is_empty() { free } else { near }
        };
        narrowed
    }
}

fn without_turbofish(head: &str) -> &str {
    if !head.ends_with('>') {
        return head;
    }
    head.rfind("::<").map_or(head, |i| &head[..i])
}

/// The bodies of the closures.
fn closures(body: &str) -> impl Iterator<Item = &str> {
    let bytes = body.as_bytes();
    body.match_indices('|').filter_map(move |(open, _)| {
        let before = body[..open].trim_end();
        if !before.ends_with(['(', ',', '=', '&']) && !before.ends_with("mut") && !before.ends_with("move") {
            return None;
        }
        let start = open + 2 + body[open + 1..].find('|')?;
        let mut end = start;
        while end < bytes.len() && !matches!(bytes[end], b',' | b';' | b')' | b'}' | b']') {
            if matches!(bytes[end], b'(' | b'[' | b'{') {
                end = closing(bytes, end);
            }
            end += 1;
        }
        body.get(start..end.min(body.len()))
    })
}

/// Every rule can fail, and no rule fails on correct code.
#[test]
fn each_loss_of_a_line_is_found() {
    let check = |source: &str, expected: &[&str]| {
        let all = Sources::new(functions("src/part/table.rs", source));
        let lost: Vec<String> = all.public().flat_map(|function| all.lost(function)).collect();
        let fits = lost.len() == expected.len() && lost.iter().zip(expected).all(|(l, e)| l.contains(e));
        assert!(fits, "{source}: {lost:?}, expected {expected:?}");
    };
    let body = |body: &str, expected: &[&str]| {
        let helpers =
            "fn plain() -> Result<u8> { Ok(0) }\n#[track_caller]\nfn kept() -> Result<u8> { Ok(0) }\n";
        let head =
            "impl<T: Fn() -> u8> Table<T> {\n    #[track_caller]\n    pub fn get(&self) -> Result<u8> {\n";
        check(&format!("{helpers}{head}{body}\n    }}\n}}\n"), expected);
    };
    check(
        "pub fn open() -> Result<u8> {\n    Ok(1)\n}\n",
        &["table.rs:1: `table::open` has no `#[track_caller]`"],
    );
    check("/// It fails.\n#[track_caller]\npub fn open() -> Result<u8> {\n    Ok(1)\n}\n", &[]);
    check(
        "impl Net {\n    /// # Errors\n    pub fn tanh(&self) -> Var {\n    }\n}\n",
        &["`Net::tanh` has no"],
    );
    check("builder_methods! {\n    /// # Errors\n    pub fn tanh(&self) -> Var {\n    }\n}\n", &[]);
    check("pub(crate) fn open(read: impl Fn() -> Result<u8>) -> Result<u8> {\n}\n", &[]);
    check("pub fn open(read: impl Fn() -> Result<u8>) -> u8 {\n}\n", &[]);
    check("pub trait Source {\n    fn open(&self) -> Result<u8>;\n}\n", &["`Source::open` has no"]);
    let of_trait = "pub trait Source {\n    #[track_caller]\n    fn open(&self) -> Result<u8>;\n}\nfn plain() -> Result<u8> {\n}\n";
    let implementation =
        "impl Source for File {\n    fn open(&self) -> Result<u8> {\n        plain()\n    }\n}\n";
    check(&format!("{of_trait}{implementation}"), &["`File::open`: `plain` of src/part/table.rs has no"]);
    check("//! A.\n#[cfg(test)]\nmod tests {\n    pub fn open() -> Result<u8> {}\n}\n", &[]);

    body("Err(Error::new(\"a\", \"b\", format!(\"{self:?}\")))", &[]);
    body("kept()", &[]);
    body("plain()", &["`plain`"]);
    body("plain().at_caller()", &[]);
    body("let x = kept()? + plain()?;\n        Ok(x)", &["`plain`"]);
    body("let x = plain();\n        x", &["the error of `x`"]);
    body("let x = kept();\n        x", &[]);
    body("match 1 { 1 => plain(), _ => { return kept(); } }", &["`plain`"]);
    body("if self.is_empty() { plain() } else { kept() }", &["`plain`"]);
    body("return plain();", &["`plain`"]);
    body("self.0.iter().try_for_each(|x| x.check())", &["`try_for_each`"]);
    body("self.0.iter().try_for_each(|x| x.check()?).at_caller()", &[]);
    body("self.0.ok_or_else(missing)?;\n        Ok(1)", &["`ok_or_else`"]);
    body("kept().map_err(|e| Error::new(\"a\", \"b\", \"c\"))", &["`map_err`", "a closure"]);
    body("plain().map_err(|e| e.noted(\"?\"))", &["`plain`"]);
    body(
        "let wrong = |x: u8| Error::new(\"a\", \"b\", \"c\");\n        Err(wrong(1))",
        &["`wrong`", "a closure"],
    );
    body("self.0.map(plain)", &["`map(plain)`"]);
    check(
        "impl Trainer {\n    pub fn every(self, steps: u8) -> Self {\n        Self(CallerSetting::new(steps))\n    }\n}\n",
        &["`Trainer::every` has no"],
    );
    body("let line = Location::caller();\n        plain().map_err(|e| e.called(line))", &[]);
}
