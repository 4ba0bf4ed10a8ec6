//! Messages in the user's words: the counts of a spec, such as `rows2`, are replaced by the names of variables.

use super::program::Program;
use super::var_desc::VarDesc;
use crate::error::{Error, Place};
use crate::operator::extent::{BlockId, LevelId};

impl Program {
    /// Returns the error with the names of the program's variables in place of the numbers of levels, step blocks and sparse
    /// variables.
    pub(crate) fn worded(&self, error: Error) -> Error {
        error.reworded(&|text| self.in_words(text))
    }

    /// Returns the text with the counts of its [specs](crate::op::Spec) in words: `f32[rows0, 8] lod(0)` becomes ``f32[rows of
    /// `x`, 8]``. Names in backticks stay as they are.
    pub(crate) fn in_words(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        // Every second piece is in backticks.
        for (i, piece) in text.split('`').enumerate() {
            let quoted = i % 2 == 1;
            out.push_str(if i > 0 { "`" } else { "" });
            let mut rest = if quoted { "" } else { piece };
            out.push_str(if quoted { piece } else { "" });
            while let Some(c) = rest.chars().next() {
                let starts = out.chars().next_back().is_none_or(|before| !before.is_alphanumeric());
                let found = match rest.strip_prefix(" lod(") {
                    Some(levels) => levels_in_words(levels, out.rsplit('[').next().unwrap_or_default()),
                    None => starts.then(|| self.count_in_words(rest)).flatten(),
                };
                let (words, used) = found.unwrap_or_else(|| (c.to_string(), c.len_utf8()));
                out.push_str(&words);
                rest = &rest[used..];
            }
        }
        out
    }

    /// Returns the words for a count at the start of `text`, and the length of the count in `text`.
    fn count_in_words(&self, text: &str) -> Option<(String, usize)> {
        let word = ["rows", "alive", "data"].into_iter().find(|word| text.starts_with(word))?;
        let digits = text[word.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let used = word.len() + digits;
        let number = text[word.len()..used].parse().ok()?;
        let words = match word {
            "rows" => self.level_in_words(LevelId(number))?,
            "alive" => match self.step_name(BlockId(number)) {
                Some(over) => format!("sequences in the step over `{over}`"),
                None => "sequences in the step".to_owned(),
            },
            _ => format!("entries of `{}`", self.vars.get(number as usize)?.name),
        };
        Some((words, used))
    }

    /// Returns the rows that a level delimits, by the name of the first variable with this level.
    fn level_in_words(&self, level: LevelId) -> Option<String> {
        let at =
            |var: &VarDesc| Some((var.spec()?.lod.len(), var.spec()?.lod.iter().position(|&l| l == level)?));
        let (name, (levels, k)) = self.vars.iter().find_map(|var| Some((&var.name, at(var)?)))?;
        Some(match levels - k {
            1 => format!("rows of `{name}`"),
            2 => format!("sequences of `{name}`"),
            _ => format!("sequences of level {} of `{name}`", k + 1),
        })
    }

    /// Returns the place of the operator that is appended to a block next.
    pub(crate) fn next_place(&self, block: BlockId, kind: &str, caller: String) -> Place {
        Place {
            operator: Some(format!("{kind} #{}", self.block(block).ops.len())),
            caller: Some(caller).filter(|caller| !caller.is_empty()),
            ..self.inside(block)
        }
    }

    /// Returns the place of a block: its number and the variable over whose rows it runs, or nothing for the root block.
    pub(crate) fn inside(&self, block: BlockId) -> Place {
        let number = (block.0 > 0).then_some(block.0 as usize);
        Place { block: number, step: self.step_name(block), ..Place::default() }
    }

    /// Returns the name of the variable over whose rows a step block runs: a step block declares the view of its first step
    /// input, such as `x.step`, before all other variables. Returns `None` for the root block, and if this input is unknown.
    fn step_name(&self, block: BlockId) -> Option<String> {
        let first = self.vars.iter().find(|var| block.0 > 0 && var.block == block)?;
        let (over, number) = first.name.rsplit_once(".step")?;
        number.chars().all(|c| c == '_' || c.is_ascii_digit()).then(|| over.to_owned())
    }
}

/// Returns the words for the levels behind ` lod(` at the start of `text`, and the length of ` lod(…)`. `shape` is the text of the
/// shape before; if it names the rows, one level needs no words.
fn levels_in_words(text: &str, shape: &str) -> Option<(String, usize)> {
    let (levels, _) =
        text.split_once(')').filter(|(levels, _)| levels.starts_with(|c: char| c.is_ascii_digit()))?;
    let words = match levels.split(", ").count() {
        1 if shape.contains(" of `") => String::new(),
        1 => " with 1 level".to_owned(),
        count => format!(" with {count} levels"),
    };
    Some((words, " lod()".len() + levels.len()))
}
