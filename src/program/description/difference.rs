//! The comparison of two programs: finds the first difference.

use super::op_desc::OpDesc;
use super::program::Program;
use super::var_desc::VarKind;

impl Program {
    /// Returns the first difference between this program and `other`, as text that quotes the differing part of both programs;
    /// `None` if the programs are equal. The comparison ignores the source lines that operators store for messages.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let model = |width| {
    ///     let net = Builder::new();
    ///     let x = net.feed("x", DType::F32, &[3], 0);
    ///     x.linear(width).tanh();
    ///     net.finish()
    /// };
    /// assert_eq!(model(4)?.difference(&model(4)?), None);
    /// let difference = model(4)?.difference(&model(5)?).unwrap_or_default();
    /// assert!(difference.contains("variable `linear_0.weight`"), "{difference}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn difference(&self, other: &Program) -> Option<String> {
        if self.seed != other.seed {
            return Some(format!("seed {} instead of {}", other.seed, self.seed));
        }
        if self.unit != other.unit {
            return Some(format!("matrix products in {} instead of {}", other.unit, self.unit));
        }
        let both = self.vars.iter().zip(&other.vars);
        if let Some((ours, theirs)) = both.clone().find(|(ours, theirs)| ours != theirs) {
            let (a, b) = (format!("{ours:?}"), format!("{theirs:?}"));
            return Some(match (ours.spec(), theirs.spec()) {
                _ if ours.name != theirs.name => {
                    format!("variable `{}` instead of `{}`", theirs.name, ours.name)
                }
                (Some(a), Some(b)) if a != b => format!("variable `{}` as {b} instead of {a}", ours.name),
                (None, None) => match (&ours.kind, &theirs.kind) {
                    (VarKind::Literal(a), VarKind::Literal(b)) if a != b => {
                        format!("variable `{}` as {} instead of {}", ours.name, b.shown(), a.shown())
                    }
                    _ => format!("variable `{}` as {b} instead of {a}", ours.name),
                },
                _ => format!("variable `{}` as {b} instead of {a}", ours.name),
            });
        }
        for (number, (ours, theirs)) in self.blocks.iter().zip(&other.blocks).enumerate() {
            let where_from = if number == 0 { String::new() } else { format!(" of block {number}") };
            for (i, (a, b)) in ours.ops.iter().zip(&theirs.ops).enumerate() {
                if let Some(difference) = operators(a, b) {
                    return Some(format!("operator {i}{where_from}, {difference}"));
                }
            }
            if ours.ops.len() != theirs.ops.len() {
                return Some(format!(
                    "{} operators{where_from} instead of {}",
                    theirs.ops.len(),
                    ours.ops.len()
                ));
            }
            if ours.parent != theirs.parent {
                return Some(format!("another place of block {number}"));
            }
        }
        for (what, a, b) in [
            ("variables", self.vars.len(), other.vars.len()),
            ("blocks", self.blocks.len(), other.blocks.len()),
            ("levels", self.levels as usize, other.levels as usize),
        ] {
            if a != b {
                return Some(format!("{b} {what} instead of {a}"));
            }
        }
        None
    }
}

fn operators(a: &OpDesc, b: &OpDesc) -> Option<String> {
    if a.kind != b.kind {
        return Some(format!("`{}` instead of `{}`", b.kind, a.kind));
    }
    let text =
        |value: Option<&crate::operator::Literal>| value.map_or("nothing".to_owned(), |v| v.to_string());
    let names = a.attributes.iter().chain(b.attributes.iter()).map(|(name, _)| name);
    for name in names {
        let value = |op: &OpDesc| op.attributes.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        let (ours, theirs) = (value(a), value(b));
        if ours != theirs {
            let (ours, theirs) = (text(ours.as_ref()), text(theirs.as_ref()));
            return Some(format!("`{}`: attribute `{name}` {theirs} instead of {ours}", a.kind));
        }
    }
    let same = a.role == b.role && a.inputs == b.inputs && a.outputs == b.outputs && a.step == b.step;
    (!same).then(|| format!("`{}`: other variables or another step block", a.kind))
}
