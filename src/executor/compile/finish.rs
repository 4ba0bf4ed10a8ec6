//! Assigns the final numbers of all instructions, and collects the slots that each loop touches.

use super::lives::{Lives, LoopPart};
use super::slots::Slots;
use crate::executor::plan::Instr;

/// The numbered instructions of a plan, as one list.
pub(crate) struct NumberedCode {
    pub(crate) code: Vec<Instr>,
    /// The number of instructions, including the instructions of loops.
    pub(crate) instructions: usize,
}

/// Numbers the instructions in the order in which they first run, as in the listing.
pub(crate) fn finish(groups: Vec<Vec<Instr>>, slots: &Slots, lives: &Lives) -> NumberedCode {
    let mut finished = NumberedCode { code: Vec::new(), instructions: 0 };
    for (at, mut code) in groups.into_iter().enumerate() {
        let group = Group { slots, lives, operator: at + 1, part: None };
        code.iter_mut().for_each(|instr| finished.finish(instr, &group));
        finished.code.append(&mut code);
    }
    finished
}

/// The context for the instructions of one operator of the root block.
#[derive(Clone, Copy)]
struct Group<'a> {
    slots: &'a Slots,
    lives: &'a Lives,
    operator: usize,
    /// The part of the outermost loop that contains the instructions; `None` for instructions of the root block.
    part: Option<LoopPart>,
}

impl NumberedCode {
    fn finish(&mut self, instr: &mut Instr, group: &Group<'_>) {
        let index = self.instructions;
        self.instructions += 1;
        match instr {
            Instr::Reorder { index: own, .. } | Instr::Zero(_, own) => *own = index,
            Instr::Op(op) | Instr::Levels(op) => op.index = index,
            Instr::Loop(inner) => {
                inner.index = index;
                let touched =
                    |parts| group.lives.touched(group.slots, group.operator, inner.desc.block, parts);
                let steps = group.part.unwrap_or(LoopPart::Steps);
                (inner.slots, inner.in_steps) =
                    (touched((LoopPart::Before, LoopPart::After)), touched((steps, steps)));
                let parts = [
                    (&mut inner.before, LoopPart::Before),
                    (&mut inner.body, LoopPart::Steps),
                    (&mut inner.after, LoopPart::After),
                ];
                for (code, part) in parts {
                    let within = Group { part: group.part.or(Some(part)), ..*group };
                    code.iter_mut().for_each(|instr| self.finish(instr, &within));
                }
            }
        }
    }
}
