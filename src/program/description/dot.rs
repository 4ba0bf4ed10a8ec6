//! A program as a picture: Graphviz text with one cluster per step block.

use std::fmt::Write;

use super::op_desc::{OpDesc, Role, StepDesc};
use super::program::Program;
use super::var_desc::{VarDesc, VarKind, VarRole};
use crate::operator::extent::{BlockId, VarId};

impl Program {
    /// Returns the program as Graphviz text. Variables are ellipses, operators are boxes, and each step block is a cluster inside
    /// the block around it. A dashed edge crosses the border of a step block or leads to the next step.
    ///
    /// ```sh
    /// dot -Tsvg program.dot > program.svg
    /// ```
    pub fn dot(&self) -> String {
        let mut out = String::from("digraph program {\n  node [fontname=\"sans-serif\"];\n");
        self.clusters(&mut out);
        for (b, block) in self.blocks.iter().enumerate() {
            for (i, op) in block.ops.iter().enumerate() {
                self.edges(&mut out, &format!("o{b}_{i}"), op);
            }
        }
        out.push_str("}\n");
        out
    }

    /// Writes all nodes of the graph, each in the cluster of its block. The function is a loop instead of a recursion, so that
    /// deeply nested blocks do not overflow the stack.
    fn clusters(&self, out: &mut String) {
        let count = self.blocks.len();
        let mut inside: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut open: Vec<(usize, bool)> = Vec::new();
        for (b, block) in self.blocks.iter().enumerate() {
            match block.parent {
                Some(BlockId(parent)) if (parent as usize) < b => inside[parent as usize].push(b),
                _ => open.push((b, false)),
            }
        }
        let mut vars: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (id, var) in self.vars() {
            let home = if (var.block.0 as usize) < count { var.block.0 as usize } else { 0 };
            if let Some(list) = vars.get_mut(home) {
                list.push(id.0);
            }
        }
        while let Some((b, done)) = open.pop() {
            if done {
                out.push_str("  }\n");
                continue;
            }
            if b > 0 {
                let _ = writeln!(out, "  subgraph cluster_{b} {{\n  label=\"step block {b}\";");
                open.push((b, true));
            }
            for &id in &vars[b] {
                self.variable(out, VarId(id));
            }
            for (i, op) in self.blocks[b].ops.iter().enumerate() {
                operator(out, &format!("o{b}_{i}"), op);
            }
            open.extend(inside[b].iter().rev().map(|&child| (child, false)));
        }
    }

    fn variable(&self, out: &mut String, id: VarId) {
        let Some(var) = self.vars.get(id.0 as usize) else { return };
        let what = match &var.kind {
            VarKind::Tensor(spec) => spec.to_string(),
            VarKind::Literal(literal) => literal.shown(),
        };
        let style = match var {
            VarDesc { role: VarRole::Feed, .. } => ", style=filled, fillcolor=lightblue",
            VarDesc { role: VarRole::Parameter | VarRole::State, .. } => {
                ", style=filled, fillcolor=lightyellow"
            }
            VarDesc {
                role: VarRole::Computed | VarRole::Step | VarRole::Literal | VarRole::Carried, ..
            } => "",
        };
        let _ = writeln!(out, "  v{} [label=\"{}\\n{}\"{style}];", id.0, escape(&var.name), escape(&what));
    }

    fn edges(&self, out: &mut String, node: &str, op: &OpDesc) {
        let known = |id: &VarId| (id.0 as usize) < self.vars.len();
        for bound in &op.inputs {
            for id in bound.vars.iter().copied().filter(known) {
                let _ = writeln!(out, "  v{} -> {node} [label=\"{}\"];", id.0, escape(&bound.slot));
            }
        }
        for bound in &op.outputs {
            for id in bound.vars.iter().copied().filter(known) {
                let _ = writeln!(out, "  {node} -> v{} [label=\"{}\"];", id.0, escape(&bound.slot));
            }
        }
        let Some(step) = &op.step else { return };
        for (from, to, label) in crossings(step) {
            if known(&from) && known(&to) {
                let _ = writeln!(out, "  v{} -> v{} [style=dashed, label=\"{label}\"];", from.0, to.0);
            }
        }
    }
}

fn operator(out: &mut String, node: &str, op: &OpDesc) {
    let colour = match op.role {
        Role::Forward => "black",
        Role::Backward => "red",
        Role::Update | Role::Settle => "darkgreen",
    };
    let _ = writeln!(out, "  {node} [shape=box, color={colour}, label=\"{}\"];", escape(&op.kind));
}

/// Returns the edges for values that pass into a step block, out of the step block, or from step to step. An edge has a source,
/// a target and a label.
fn crossings(step: &StepDesc) -> Vec<(VarId, VarId, &'static str)> {
    let mut all = Vec::new();
    all.extend(step.inputs.iter().map(|p| (p.outer, p.inner, "each step")));
    all.extend(step.statics.iter().map(|p| (p.outer, p.inner, "static")));
    all.extend(step.outputs.iter().map(|p| (p.inner, p.outer, "each step")));
    for memory in &step.memories {
        all.push((memory.next, memory.previous, "next step"));
        all.extend(memory.initial.map(|initial| (initial, memory.previous, "initial")));
        all.extend(memory.last.map(|last| (memory.next, last, "last")));
    }
    let Some(gradient) = &step.gradient else { return all };
    all.extend(gradient.outputs.iter().map(|p| (p.outer, p.inner, "gradient")));
    all.extend(gradient.inputs.iter().chain(&gradient.statics).map(|p| (p.inner, p.outer, "gradient")));
    for memory in &gradient.memories {
        all.extend(memory.previous.map(|previous| (previous, memory.next, "step before")));
        all.extend(memory.last.map(|last| (last, memory.next, "gradient")));
        all.extend(memory.previous.zip(memory.initial).map(|(from, to)| (from, to, "gradient")));
    }
    all
}

/// Escapes text for a quoted Graphviz string.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
