//! Loads weights with PyTorch's names and layout into layers of this crate.

use ndarray::{Array2, ArrayView2, Ix2};

use crate::error::{AtCaller, Error, Result};
use crate::executor::Scope;
use crate::tensor::{DType, Dense};

/// Transposes a weight from PyTorch's layout `[out, in]` to this crate's layout `[in, out]`. PyTorch and this crate have the
/// same order of gates (LSTM: i, f, g, o; GRU: r, z, n).
///
/// ```
/// use ndarray::array;
/// use unpadded::layers::from_torch;
/// let weight = from_torch(array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].view());
/// assert_eq!(weight, array![[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
/// assert!(weight.is_standard_layout());
/// ```
pub fn from_torch<T: Clone>(weight: ArrayView2<'_, T>) -> Array2<T> {
    weight.t().as_standard_layout().into_owned()
}

/// Sets the parameters of the recurrent layer `layer` (such as `"lstm_0"`) in the scope from PyTorch's tensors: `read` returns
/// the tensor with a given name. `suffix` is PyTorch's suffix for a layer and direction, such as `"_l0"` or `"_l1_reverse"`. If
/// the layer of this crate has one `bias`, its value is the sum of PyTorch's two biases.
///
/// ```
/// use ndarray::array;
/// use unpadded::executor::Scope;
/// use unpadded::layers::{Rnn, load_torch};
/// use unpadded::tensor::Dense;
/// use unpadded::{Builder, DType, Error};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[2], 1);
/// x.rnn(Rnn::new(1).named("encoder"));
/// let mut scope = Scope::of(&net.finish()?)?;
/// load_torch(&mut scope, "encoder", "_l0", |name| match name {
///     "weight_ih_l0" => Ok(Dense::from(array![[1.0f32, 2.0]].into_dyn())),
///     "weight_hh_l0" => Ok(Dense::from(array![[0.5f32]].into_dyn())),
///     "bias_ih_l0" | "bias_hh_l0" => Ok(Dense::from(array![0.25f32].into_dyn())),
///     other => Err(Error::new("tensor", "one of the file", other)),
/// })?;
/// assert_eq!(scope.get("encoder.weight_ih")?.shape(), [2, 1]);
/// assert_eq!(scope.get("encoder.bias")?.as_slice::<f32>()?, [0.5]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// If the scope has no parameters of the layer `layer`, the layer has a parameter that PyTorch's layer does not have
/// (peepholes), `read` fails, or a tensor does not fit.
#[track_caller]
pub fn load_torch(
    scope: &mut Scope,
    layer: &str,
    suffix: &str,
    read: impl Fn(&str) -> Result<Dense>,
) -> Result<()> {
    let begin = format!("{layer}.");
    let parts: Vec<String> =
        scope.names().filter_map(|n| n.strip_prefix(&begin)).map(str::to_owned).collect();
    if parts.is_empty() {
        return Err(Error::new("layer", "a layer whose parameters are in the scope", format!("`{layer}`")));
    }
    let mut values = Vec::new();
    for part in parts {
        let tensor = |part: &str| read(&format!("{part}{suffix}"));
        let value = match part.as_str() {
            "weight_ih" | "weight_hh" | "weight_hr" => turned(&tensor(&part)?),
            "bias_ih" | "bias_hh" => tensor(&part),
            "bias" => added(&tensor("bias_ih")?, &tensor("bias_hh")?),
            _ => Err(Error::new(
                "parameter of a layer",
                "a parameter that PyTorch's layers have",
                format!("`{part}`"),
            )),
        };
        let name = format!("{begin}{part}");
        values.push((value.map_err(|e| e.variable(&name)).at_caller()?, name));
    }
    // All tensors are read and all shapes are checked before the first parameter is changed, so that an error changes nothing.
    for (value, name) in values.iter_mut() {
        let here = scope.get(name)?;
        if here.shape() != value.shape() {
            let (expected, got) = (format!("{:?}", here.shape()), format!("{:?}", value.shape()));
            return Err(Error::new("PyTorch's tensor in this layout", expected, got).variable(name.as_str()));
        }
        *value = value.cast(here.dtype());
    }
    values.into_iter().try_for_each(|(value, name)| scope.set(&name, value)).at_caller()
}

/// Returns the transpose of a matrix, converted to f64.
pub(crate) fn turned(weight: &Dense) -> Result<Dense> {
    let weight = weight.cast(DType::F64).into_array::<f64>()?;
    let shape = format!("{:?}", weight.shape());
    let matrix = weight.into_dimensionality::<Ix2>();
    let matrix = matrix.map_err(|_| Error::new("weight", "a matrix [out, in]", shape))?;
    Ok(Dense::from(from_torch(matrix.view()).into_dyn()))
}

/// Returns the sum of two biases, converted to f64.
pub(crate) fn added(a: &Dense, b: &Dense) -> Result<Dense> {
    let (mut a, b) = (a.cast(DType::F64), b.cast(DType::F64));
    if a.shape() != b.shape() {
        return Err(Error::new(
            "biases",
            format!("two biases of the shape {:?}", a.shape()),
            format!("{:?}", b.shape()),
        ));
    }
    a.as_mut_slice::<f64>()?.iter_mut().zip(b.as_slice::<f64>()?).for_each(|(a, b)| *a += b);
    Ok(a)
}
