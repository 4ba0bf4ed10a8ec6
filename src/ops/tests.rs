//! Tests that the catalogue has the operators that the builder appends without a call by the user. The test checks the
//! slots and the results of these operators.

use ndarray::array;

use super::catalogue;
use crate::operator::{Attributes, Operand};
use crate::program::description::language::{APPENDED, CARRY, COPY, FILL, TO_DENSE};
use crate::tensor::Variable;

#[test]
fn what_the_language_appends_is_there() {
    let x = Variable::from(array![[1.0, 2.0], [7.0, 4.0]]);
    let before = Variable::from(array![[0.5, 0.5], [0.0, 0.0]]);
    for appended in APPENDED {
        let mut attributes = Attributes::new();
        for name in appended.attributes {
            match appended.kind == TO_DENSE.kind {
                true => attributes.set(name, "softmax.x"),
                false => attributes.set(name, 3.0),
            }
        }
        let op = catalogue().parse(appended.kind, &attributes).unwrap();
        let declared = op.declared();
        assert!(declared.attributes.iter().eq(appended.attributes), "{}", appended.kind);
        assert!(
            declared.signature.inputs.iter().map(|slot| &slot.name).eq(appended.inputs),
            "{}",
            appended.kind
        );
        let mut operands = vec![Operand::batch(appended.inputs[0], x.clone())];
        operands.extend(appended.inputs.get(1).map(|slot| Operand::batch(slot, before.clone())));
        let outputs = op.call(&operands).unwrap();
        assert_eq!(outputs.len(), 1, "{}", appended.kind);
        let expected = if appended.kind == FILL.kind { [3.0; 4] } else { [1.0, 2.0, 7.0, 4.0] };
        assert_eq!(outputs[0].as_slice::<f64>().unwrap(), expected, "{}", appended.kind);
    }
    assert_eq!([COPY, FILL, CARRY, TO_DENSE].map(|known| known.kind), APPENDED.map(|known| known.kind));
}
