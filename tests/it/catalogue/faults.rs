//! Tests of the operator check: sound operators pass, and faulty copies are reported under the rule that they break.

/// Declares an operator with one fault: its kind, text and attributes, its slots, and the function that parses it.
macro_rules! declares {
    ($type:ident = $kind:literal, $text:literal, $attributes:expr, $inputs:expr => $outputs:expr, $parse:expr) => {
        impl<const FAULT: u8> DeclaredOp for $type<FAULT> {
            fn declaration() -> &'static Declaration {
                const {
                    &Declaration {
                        stands_for: &[],
                        kind: $kind,
                        text: $text,
                        attributes: $attributes,
                        signature: Signature { inputs: $inputs, outputs: $outputs, kernels: &[] },
                    }
                }
            }

            fn parse(attributes: &Attributes) -> Result<Self> {
                let parse: fn(&Attributes) -> Result<Self> = $parse;
                parse(attributes)
            }

            fn declared(&self) -> &'static Declaration {
                Self::declaration()
            }
        }
    };
}

mod affine;
mod product;
mod sequences;

use unpadded::Registry;
use unpadded::op::testing::Failures;
use unpadded::op::{Op, testing};

/// No fault.
const NONE: u8 = 0;

fn failures<O: Op>() -> Option<Failures> {
    let mut registry = Registry::empty();
    registry.add::<O>().unwrap();
    testing::check(&registry).err()
}

/// Checks that a failure of this rule contains this text.
#[track_caller]
fn finds<O: Op>(rule: &str, words: &str) {
    let failures = failures::<O>();
    let found = failures.iter().flat_map(Failures::iter);
    let mut found = found.filter(|failure| failure.kind == O::kind() && failure.rule == rule);
    assert!(found.any(|failure| failure.what.contains(words)), "{rule}, {words}: {failures:?}");
}

#[track_caller]
fn passes<O: Op>() {
    assert_eq!(failures::<O>(), None);
}

#[test]
fn a_kind_that_is_not_registered_is_a_failure() {
    let failures = testing::check_kinds(&Registry::empty(), &["acme.nothing"]).unwrap_err();
    assert_eq!(format!("{failures:?}"), "1 failure of operators\nacme.nothing: samples: not registered");
}
