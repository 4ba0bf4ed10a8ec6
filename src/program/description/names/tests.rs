//! Compares the index of names with a search through all variables.

use super::*;
use crate::operator::{BlockId, Spec};
use crate::program::stored::StoredProgram;
use crate::program::{Program, StopGradient, VarRole};
use crate::tensor::DType;
use crate::wire::stored::StoredForm;

/// Returns the free name for `wish`, found by a search through all variables.
fn slowly(program: &Program, wish: &str) -> String {
    let taken = |name: &str| program.vars.iter().any(|var| var.name == name);
    let names = std::iter::once(wish.to_owned()).chain((2..).map(|n| format!("{wish}_{n}")));
    names.into_iter().find(|name| !taken(name)).unwrap()
}

fn add(program: &mut Program, wish: &str) -> VarId {
    let spec = Spec::fixed(DType::F32, &[1]).unwrap();
    program.add_computed(wish, BlockId(0), spec, VarRole::Computed, StopGradient::No)
}

const WISHES: [&str; 12] = [
    "a",
    "a_2",
    "a_3",
    "a_02",
    "_2",
    "",
    "a.w",
    "a_0.w",
    "a_1.w",
    "a.b.c.d.e.f",
    "a.b.c.d.e_2.f",
    "a_4294967295",
];

fn check(program: &Program) {
    for wish in WISHES {
        assert_eq!(program.fresh_name(wish), slowly(program, wish), "{wish}");
        let first = program.vars.iter().position(|var| var.name == wish).map(|i| VarId(i as u32));
        assert_eq!(program.find(wish), first, "{wish}");
    }
}

/// The test adds and renames variables, gives two variables one name, and reloads the program, in a pseudorandom order. Every
/// answer of the index must equal the answer of a search through all variables.
#[test]
fn the_index_says_what_the_variables_say() {
    let mut program = Program::new();
    let mut seed = 1u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..600 {
        let len = program.vars.len();
        let (wish, any) = (WISHES[draw(WISHES.len())], VarId(draw(len.max(1)) as u32));
        match draw(9) {
            0 if len > 0 => {
                program.var_mut(any).name = format!("{wish}{}", draw(3));
            }
            1 if len > 0 => {
                let name = wish.to_owned();
                program.var_mut(any).name = name;
            }
            2 => {
                program = StoredProgram::of(&program).read().unwrap();
            }
            4 if len > 0 => program.var_mut(any).trainable = true,
            _ => {
                add(&mut program, wish);
            }
        }
        check(&program);
    }
    assert!(program.vars.len() > 100);
}

#[test]
fn the_index_is_not_compared() {
    let mut program = Program::new();
    for _ in 0..3 {
        add(&mut program, "x");
    }
    let read: Program = StoredProgram::of(&program).read().unwrap();
    assert_eq!(read, program);
    assert_eq!((read.find("x_3"), program.find("x_3")), (Some(VarId(2)), Some(VarId(2))));
}
