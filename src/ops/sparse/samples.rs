//! Check cases of operators on sparse variables.

use super::meet::Zeros;
use crate::ops::prelude::*;
use crate::tensor::{Coo, Csr, SelectedRows, Storage};

/// Makes check cases with a variable `x` of four columns in every storage that is not dense. `add` binds further operands to
/// each check case.
pub(super) fn of_storages(
    attributes: &Attributes,
    add: &dyn Fn(CheckCase) -> Result<CheckCase>,
) -> Result<Vec<CheckCase>> {
    let mut samples = CheckCase::of_csr(attributes, 4, |sample, _| add(sample))?;
    let coo = Coo::new(&[3, 4], array![[2, 1], [0, 0], [2, 3]], array![1.0, -0.875, 0.5])?;
    let coo = CheckCase::new("coo", attributes.clone()).batch("x", Variable::new(coo, None)?);
    samples.push(add(coo)?);
    for (name, ids, values) in [
        ("selected rows", vec![3, 1], array![[1.0, 2.0, -0.5, 0.25], [-1.0, 0.5, 1.25, -0.75]]),
        ("selected rows, none", vec![], Array2::zeros((0, 4))),
    ] {
        let rows = SelectedRows::new(5, ids, values)?;
        let sample = CheckCase::new(name, attributes.clone()).constant("x", Variable::new(rows, None)?);
        samples.push(add(sample)?);
    }
    Ok(samples)
}

/// Makes check cases with two variables of four columns, one or both sparse, in all combinations of storages that have kernels.
pub(super) fn of_two(zeros: Zeros) -> Result<Vec<CheckCase>> {
    let none = Attributes::new();
    // Moves the numbers of the check cases away from 0, since division by 0 is not checked, and since `maximum` and
    // `minimum` have a kink where x is 0 and y stores no number.
    let away = |v: f64| if v < 0.0 { v - 0.5 } else { v + 0.5 };
    let mut samples = of_storages(&none, &|mut sample| {
        sample.operands[0].value = changed(&sample.operands[0].value, &|v| if v == 0.0 { 0.375 } else { v })?;
        Ok(sample)
    })?;
    let sparse = samples.clone();
    samples.clear();
    let rows_of = |sample: &CheckCase| sample.operands[0].value.shape()[0];
    // The check cases below have a dense second variable.
    for sample in &sparse {
        let dense = |width| numbers(rows_of(sample), width, 1).mapv(away);
        for width in [4, 1] {
            let y = Variable::new(
                Variable::from(dense(width)).into_parts().0,
                sample.operands[0].value.lod().cloned(),
            )?;
            let batched = sample.operands[0].batched;
            samples.push(if batched {
                sample.clone().batch("y", y)
            } else {
                sample.clone().constant("y", y)
            });
        }
        samples.push(sample.clone().constant("y", array![-0.75, 1.5, 0.625, -2.0]));
        samples.push(sample.clone().constant("y", array![[-1.25]]));
    }
    if zeros == Zeros::OfX {
        return Ok(samples);
    }
    let swapped = samples.iter().map(|sample| {
        let mut sample = sample.clone();
        sample.operands[0].slot = "y".to_owned();
        sample.operands[1].slot = "x".to_owned();
        sample
    });
    samples = samples.iter().cloned().chain(swapped).collect();
    // In the check cases below, the second variable is sparse too; its entries and stored rows are at other positions
    // than in the first variable.
    for sample in sparse {
        let first = &sample.operands[0];
        let (height, lod, batched) = (rows_of(&sample), first.value.lod().cloned(), first.batched);
        let other = sparse_numbers(height, 4, 2)?;
        let coo = Coo::from_dense(&other.to_dense()?)?;
        let others: Vec<Storage> = match first.value.storage() {
            Storage::SelectedRows(_) => {
                let rows = SelectedRows::new(height, vec![1, 4, 0], numbers(3, 4, 5))?;
                vec![rows.into(), SelectedRows::new(height, vec![], Array2::<f64>::zeros((0, 4)))?.into()]
            }
            _ => vec![other.into(), coo.into()],
        };
        for other in others {
            // No stored number of the second variable is 0 or equals a number of the first variable.
            let y = changed(&Variable::new(other, lod.clone())?, &|v| 0.8 * v - 0.171)?;
            samples.push(if batched {
                sample.clone().batch("y", y)
            } else {
                sample.clone().constant("y", y)
            });
        }
    }
    Ok(samples)
}

/// Returns `value` with `change` applied to its stored numbers.
pub(super) fn changed(value: &Variable, change: &dyn Fn(f64) -> f64) -> Result<Variable> {
    let moved = |values: &Dense| -> Result<Dense> {
        let changed = values.as_slice::<f64>()?.iter().map(|&x| change(x)).collect();
        Dense::from_vec::<f64>(values.shape(), changed)
    };
    let storage: Storage = match value.storage() {
        Storage::Dense(dense) => moved(dense)?.into(),
        Storage::SelectedRows(rows) => {
            SelectedRows::new(rows.height(), rows.row_ids().to_vec(), moved(rows.value())?)?.into()
        }
        Storage::Csr(csr) => {
            let [height, width] = [csr.shape()[0], csr.shape()[1]];
            Csr::new([height, width], csr.indptr().to_vec(), csr.indices().to_vec(), moved(csr.values())?)?
                .into()
        }
        Storage::Coo(coo) => {
            Coo::new(coo.shape(), coo.coordinates().to_owned(), moved(coo.values())?)?.into()
        }
    };
    Variable::new(storage, value.lod().cloned())
}
