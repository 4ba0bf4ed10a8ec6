//! A program as text: what `println!("{program}")` prints.
//!
//! The text lists feeds, parameters, states and literals, then the operators of the root block. Each step block is indented below
//! the operator that runs it. Printing needs no registry and never panics, even for a program that was not checked: a variable
//! that does not exist prints as its number, such as `?7`.

use std::fmt::{self, Write};

use super::op_desc::{OpDesc, Role, SlotVars, StepDesc, VarPair};
use super::program::Program;
use super::var_desc::{VarKind, VarRole};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::operator::precision::MatrixUnit;

/// The maximum nesting depth that is indented; deeper step blocks are listed after the root block.
const MAX_DEPTH: usize = 16;

impl Spec {
    /// Returns the variable's dimensions, with -1 for a dimension that is unknown before a run.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// assert_eq!(net.spec(x).unwrap().dims(), [-1, 8]);
    /// ```
    pub fn dims(&self) -> Vec<i64> {
        self.shape.iter().map(|e| e.known().map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX))).collect()
    }
}

impl Program {
    /// Returns the number of scalars in all [parameters](Self::parameters) of the program.
    pub fn parameter_count(&self) -> u128 {
        self.numbers_of(self.parameters())
    }

    /// Returns the number of scalars in the [trained parameters](Self::trained_parameters) of the program.
    pub(crate) fn trained_parameter_count(&self) -> u128 {
        self.numbers_of(self.trained_parameters())
    }

    fn numbers_of(&self, parameters: impl Iterator<Item = VarId>) -> u128 {
        let count = |spec: &Spec| {
            spec.shape
                .iter()
                .filter_map(|e| e.known())
                .fold(1u128, |n, extent| n.saturating_mul(extent as u128))
        };
        parameters.filter_map(|id| self.var(id).spec()).map(count).fold(0, u128::saturating_add)
    }

    /// Returns a variable's name, in quotes if the name could be mistaken for another part of the text.
    pub(crate) fn shown(&self, id: VarId) -> String {
        match self.vars.get(id.0 as usize) {
            Some(var) => plain(&var.name),
            None if id == VarId::NONE => "_".to_owned(),
            None => format!("?{}", id.0),
        }
    }

    /// Returns a variable's name, as [`Self::shown`] prints it, with the variable's spec or literal value.
    pub(super) fn declared(&self, id: VarId) -> String {
        let name = self.shown(id);
        match self.vars.get(id.0 as usize).map(|var| &var.kind) {
            Some(VarKind::Tensor(spec)) => format!("{name}: {spec}"),
            Some(VarKind::Literal(literal)) => format!("{name} = {literal}"),
            None => name,
        }
    }
}

/// Returns a name unchanged if it is a plain word, else in quotes and escaped.
pub(super) fn plain(name: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || "_.@-/".contains(c);
    if !name.is_empty() && name.chars().all(word) { name.to_owned() } else { format!("{name:?}") }
}

/// Returns the attributes as ` {name=value, …}`; an empty string if there are no attributes.
pub(super) fn braces(attributes: &Attributes) -> String {
    if attributes.is_empty() {
        return String::new();
    }
    let parts: Vec<String> =
        attributes.iter().map(|(name, value)| format!("{}={value}", plain(name))).collect();
    format!(" {{{}}}", parts.join(", "))
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks.len().saturating_sub(1);
        let plural = if blocks == 1 { "" } else { "s" };
        let (parameters, numbers) = (self.trained_parameters().count(), self.trained_parameter_count());
        let unit = match self.unit {
            MatrixUnit::F32 => String::new(),
            unit => format!(", matrix products in {unit}"),
        };
        writeln!(
            f,
            "program: {parameters} trainable variables of {numbers} numbers, {blocks} step block{plural}, seed {}{unit}",
            self.seed
        )?;
        for (role, title) in [
            (VarRole::Feed, "feeds"),
            (VarRole::Parameter, "parameters"),
            (VarRole::State, "states"),
            (VarRole::Literal, "literals"),
        ] {
            self.declarations(f, role, title)?;
        }
        Listing { program: self, f, shown: vec![false; self.blocks.len()], later: Vec::new() }.all()
    }
}

impl Program {
    fn declarations(&self, f: &mut fmt::Formatter<'_>, role: VarRole, title: &str) -> fmt::Result {
        let mut first = true;
        for (id, var) in self.vars().filter(|(_, var)| var.role == role) {
            if std::mem::take(&mut first) {
                writeln!(f, "{title}")?;
            }
            write!(f, "  {}", self.declared(id))?;
            if let Some(spec) = var.spec() {
                write!(f, " {:?}", spec.dims())?;
            }
            if let Some(initializer) = &var.initializer {
                write!(f, " starts as {}{}", plain(&initializer.kind), braces(&initializer.attributes))?;
            }
            writeln!(f, "{}", if role == VarRole::Parameter && !var.trainable { " (fixed)" } else { "" })?;
        }
        Ok(())
    }
}

/// The direction in which a value passes between a step block and its surroundings.
#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// The state of printing one program. Each block is printed once, even if several operators run it.
struct Listing<'a, 'f> {
    program: &'a Program,
    f: &'a mut fmt::Formatter<'f>,
    shown: Vec<bool>,
    later: Vec<(&'static str, BlockId)>,
}

impl Listing<'_, '_> {
    fn all(mut self) -> fmt::Result {
        self.block("operators", BlockId(0), 0)?;
        loop {
            while let Some((title, id)) = self.later.pop() {
                self.block(title, id, 0)?;
            }
            // If a block is not printed yet, no operator runs it. The first such block is printed next.
            match self.shown.iter().position(|shown| !shown) {
                Some(block) => self.later.push(("unused block", BlockId(block as u32))),
                None => return Ok(()),
            }
        }
    }

    fn line(&mut self, depth: usize, text: &str) -> fmt::Result {
        writeln!(self.f, "{:indent$}{text}", "", indent = depth * 2)
    }

    fn block(&mut self, title: &'static str, id: BlockId, depth: usize) -> fmt::Result {
        let program = self.program;
        let title_line = if id.0 == 0 { title.to_owned() } else { format!("{title} {}", id.0) };
        let Some(block) = program.blocks.get(id.0 as usize) else {
            return self.line(depth, &format!("{title} ?{}", id.0));
        };
        if self.shown[id.0 as usize] {
            return self.line(depth, &format!("{title_line}: as above"));
        }
        if depth > 2 * MAX_DEPTH {
            self.later.push((title, id));
            return self.line(depth, &format!("{title_line}: below"));
        }
        self.shown[id.0 as usize] = true;
        self.line(depth, &title_line)?;
        for op in &block.ops {
            self.operator(op, depth + 1)?;
        }
        Ok(())
    }

    fn operator(&mut self, op: &OpDesc, depth: usize) -> fmt::Result {
        let mut text = self.results(op);
        let _ =
            write!(text, " = {}({}){}", plain(&op.kind), self.arguments(&op.inputs), braces(&op.attributes));
        text.push_str(match op.role {
            Role::Forward => "",
            Role::Backward => "  # gradient",
            Role::Update => "  # update",
            Role::Settle => "  # what its rows owe",
        });
        self.line(depth, &text)?;
        match &op.step {
            Some(step) => self.step(step, depth + 1),
            None => Ok(()),
        }
    }

    fn results(&self, op: &OpDesc) -> String {
        let names: Vec<String> = op.writes().map(|id| self.program.declared(id)).collect();
        if let [one] = names.as_slice() { one.clone() } else { format!("({})", names.join(", ")) }
    }

    fn arguments(&self, inputs: &[SlotVars]) -> String {
        let slot = |bound: &SlotVars| {
            let vars: Vec<String> = bound.vars.iter().map(|&id| self.program.shown(id)).collect();
            let vars =
                if let [one] = vars.as_slice() { one.clone() } else { format!("[{}]", vars.join(", ")) };
            if bound.slot == "x" { vars } else { format!("{}={vars}", plain(&bound.slot)) }
        };
        inputs.iter().map(slot).collect::<Vec<_>>().join(", ")
    }

    fn pairs(&mut self, title: &str, pairs: &[VarPair], direction: Direction, depth: usize) -> fmt::Result {
        for VarPair { outer, inner } in pairs {
            let text = match direction {
                Direction::Out => {
                    format!("{title} {} -> {}", self.program.shown(*inner), self.program.shown(*outer))
                }
                Direction::In => {
                    format!("{title} {} <- {}", self.program.declared(*inner), self.program.shown(*outer))
                }
            };
            self.line(depth, &text)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &StepDesc, depth: usize) -> fmt::Result {
        let program = self.program;
        let shown = |id| program.shown(id);
        let end = if step.reverse { ", from the end" } else { "" };
        self.line(depth, &format!("over level {}{end}", step.level.0))?;
        for (outer, inner) in &step.levels {
            self.line(depth, &format!("level {} <- {}", inner.0, outer.0))?;
        }
        self.pairs("input", &step.inputs, Direction::In, depth)?;
        self.pairs("static", &step.statics, Direction::In, depth)?;
        for memory in &step.memories {
            let initial = memory.initial.map_or_else(|| "zero".to_owned(), shown);
            let last = memory.last.map_or_else(String::new, |last| format!(", last -> {}", shown(last)));
            let previous = program.declared(memory.previous);
            let text = format!("memory {previous} <- {}, starts as {initial}{last}", shown(memory.next));
            self.line(depth, &text)?;
        }
        self.pairs("output", &step.outputs, Direction::Out, depth)?;
        self.block("step block", step.block, depth)?;
        let Some(gradient) = &step.gradient else { return Ok(()) };
        self.pairs("gradient in", &gradient.outputs, Direction::In, depth)?;
        self.pairs("gradient out", &gradient.inputs, Direction::Out, depth)?;
        self.pairs("gradient of static", &gradient.statics, Direction::Out, depth)?;
        for &constant in &gradient.constants {
            self.line(depth, &format!("gradient of constant {}", shown(constant)))?;
        }
        for memory in &gradient.memories {
            let mut text = format!("gradient of memory {}: {}", memory.memory, shown(memory.next));
            let others =
                [(" <- ", memory.previous), (", last ", memory.last), (", initial ", memory.initial)];
            for (title, var) in others {
                let _ = var.map_or(Ok(()), |var| write!(text, "{title}{}", shown(var)));
            }
            self.line(depth, &text)?;
        }
        self.block("gradient block", gradient.block, depth)
    }
}

#[cfg(test)]
pub(in crate::program) mod tests;
