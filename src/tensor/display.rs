//! Display of tensors. A sparse tensor shows its storage, dtype and shape, the number of entries, and at most thirteen
//! entries.

use std::fmt;

use ndarray::ArrayD;

use super::{Coo, Csr, DType, Dense, SelectedRows, with_element};

/// The number of entries that are shown from the start of a long list.
const FIRST: usize = 8;
/// The number of entries that are shown from the end of a long list.
const LAST: usize = 4;

/// Iterates over the positions of a list that are shown: all positions, or the first and the last positions, with
/// `None` in place of the omitted positions in between.
fn shown(len: usize) -> impl Iterator<Item = Option<usize>> {
    let all = len <= FIRST + LAST + 1;
    let head = if all { len } else { FIRST };
    let tail = if all { len..len } else { len - LAST..len };
    (0..head).map(Some).chain((!all).then_some(None)).chain(tail.map(Some))
}

/// A list of numbers, which shows only the first and the last numbers if the list is long.
struct Short<'a>(&'a [i64]);

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_list();
        for index in shown(self.0.len()) {
            match index {
                Some(i) => list.entry(&self.0[i]),
                None => list.entry(&format_args!("… {} more", self.0.len() - FIRST - LAST)),
            };
        }
        list.finish()
    }
}

/// A number of any dtype. With this type, one function can show arrays of all dtypes.
struct ShownNumber<'a>(&'a dyn Show);

trait Show: fmt::Debug + fmt::Display {}

impl<T: fmt::Debug + fmt::Display> Show for T {}

impl fmt::Debug for ShownNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for ShownNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}

/// Returns the numbers of a dense tensor as an array, for display.
fn array(dense: &Dense) -> Result<ArrayD<ShownNumber<'_>>, fmt::Error> {
    let mut numbers: Vec<ShownNumber<'_>> = Vec::with_capacity(dense.len());
    with_element!(dense.dtype(), T => {
        for x in dense.as_slice::<T>().map_err(|_| fmt::Error)? {
            numbers.push(ShownNumber(x));
        }
    });
    ArrayD::from_shape_vec(dense.shape(), numbers).map_err(|_| fmt::Error)
}

/// Shows the numbers as ndarray does.
impl fmt::Display for Dense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        array(self)?.fmt(f)
    }
}

impl fmt::Debug for Dense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dense").field(&Typed(self)).finish()
    }
}

/// A dense tensor that shows its dtype, then its numbers.
struct Typed<'a>(&'a Dense);

impl fmt::Debug for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(&format!("{:?}", self.0.dtype())).field(&array(self.0)?).finish()
    }
}

/// Formats the number at position `at` of a list of values.
fn number(values: &Dense, at: usize) -> String {
    with_element!(values.dtype(), T => values.as_slice::<T>().map(|all| show(&all[at])).unwrap_or_default())
}

fn show<T: fmt::Debug>(number: &T) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn head(
    f: &mut fmt::Formatter<'_>,
    (name, dtype, shape): (&str, DType, &[usize]),
    (stored, what): (usize, &str),
    places: f64,
) -> fmt::Result {
    write!(f, "{name} {dtype} {shape:?}, {stored} {what}")?;
    if places > 0.0 {
        write!(f, " ({} %)", percent(100.0 * stored as f64 / places))?;
    }
    Ok(())
}

/// Formats a percentage with three significant digits.
fn percent(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - number.log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Writes a line for each shown entry, and a line with the number of omitted entries.
fn lines(
    f: &mut fmt::Formatter<'_>,
    stored: usize,
    line: impl Fn(&mut fmt::Formatter<'_>, usize) -> fmt::Result,
) -> fmt::Result {
    for index in shown(stored) {
        write!(f, "\n  ")?;
        match index {
            Some(at) => line(f, at)?,
            None => write!(f, "… {} more", stored - FIRST - LAST)?,
        }
    }
    Ok(())
}

/// Shows dtype, shape and number of entries, then the first and the last entries as `(row, column) value`.
///
/// ```
/// use unpadded::tensor::Csr;
/// let x = Csr::from_triples([2, 1_000_000], [(0, 3, 1.0f32), (1, 999_999, 2.5)])?;
/// assert_eq!(x.to_string(), "csr f32 [2, 1000000], 2 entries (0.0001 %)\n  (0, 3) 1\n  (1, 999999) 2.5");
/// # Ok::<(), unpadded::Error>(())
/// ```
impl fmt::Display for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.indices().len();
        let places = self.shape().iter().map(|&extent| extent as f64).product();
        head(f, ("csr", self.dtype(), self.shape()), (stored, "entries"), places)?;
        lines(f, stored, |f, at| {
            let row = self.indptr().partition_point(|&start| start <= at as i64) - 1;
            write!(f, "({row}, {}) {}", self.indices()[at], number(self.values(), at))
        })
    }
}

impl fmt::Debug for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csr")
            .field("shape", &self.shape())
            .field("indptr", &Short(self.indptr()))
            .field("indices", &Short(self.indices()))
            .field("values", self.values())
            .finish()
    }
}

/// Shows dtype, shape and number of entries, then the first and the last entries as `(coordinates) value`.
///
/// ```
/// use unpadded::tensor::Coo;
/// let x = Coo::from_entries([10, 10, 10], [([1, 2, 3], 4i32)])?;
/// assert_eq!(x.to_string(), "coo i32 [10, 10, 10], 1 entries (0.1 %)\n  (1, 2, 3) 4");
/// # Ok::<(), unpadded::Error>(())
/// ```
impl fmt::Display for Coo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, coordinates) = (self.values().len(), self.coordinates());
        let places = self.shape().iter().map(|&extent| extent as f64).product();
        head(f, ("coo", self.dtype(), self.shape()), (stored, "entries"), places)?;
        lines(f, stored, |f, at| {
            let index: Vec<String> = coordinates.row(at).iter().map(i64::to_string).collect();
            write!(f, "({}) {}", index.join(", "), number(self.values(), at))
        })
    }
}

impl fmt::Debug for Coo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coordinates = self.coordinates();
        f.debug_struct("Coo")
            .field("shape", &self.shape())
            .field("coordinates", &coordinates)
            .field("values", self.values())
            .finish()
    }
}

/// Shows dtype, shape and number of stored rows, then the first and the last stored rows as `row: numbers`. Of a long
/// row, only the first and the last numbers are shown.
///
/// ```
/// use ndarray::array;
/// use unpadded::tensor::SelectedRows;
/// let x = SelectedRows::new(1000, vec![7, 3], array![[1.0f32, 2.0], [3.0, 4.0]])?;
/// assert_eq!(x.to_string(), "selected rows f32 [1000, 2], 2 rows (0.2 %)\n  7: 1, 2\n  3: 3, 4");
/// # Ok::<(), unpadded::Error>(())
/// ```
impl fmt::Display for SelectedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, width) = (self.row_ids().len(), self.value().width());
        head(f, ("selected rows", self.dtype(), self.shape()), (stored, "rows"), self.height() as f64)?;
        lines(f, stored, |f, at| {
            let numbers: Vec<String> = shown(width)
                .map(|index| index.map_or("…".to_owned(), |j| number(self.value(), at * width + j)))
                .collect();
            write!(f, "{}: {}", self.row_ids()[at], numbers.join(", "))
        })
    }
}

impl fmt::Debug for SelectedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedRows")
            .field("shape", &self.shape())
            .field("rows", &Short(self.row_ids()))
            .field("value", self.value())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ones_stay_short() {
        let n = 1_000_000;
        let long = Csr::from_rows(n, (0..n as i64).map(|i| [(i, 1.0f32)])).unwrap();
        let text = long.to_string();
        assert_eq!(text.lines().count(), 1 + FIRST + 1 + LAST);
        assert!(
            text.starts_with("csr f32 [1000000, 1000000], 1000000 entries (0.0001 %)\n  (0, 0) 1\n"),
            "{text}"
        );
        assert!(text.contains("\n  … 999988 more\n") && text.ends_with("\n  (999999, 999999) 1"), "{text}");
        let rows = SelectedRows::new(n, (0..n as i64).collect(), Dense::zeros(DType::Bool, &[n, 2]).unwrap());
        let rows = rows.unwrap();
        assert_eq!(rows.to_string().lines().count(), 1 + FIRST + 1 + LAST);
        let coo = Coo::from_entries([n], (0..n as i64).map(|i| ([i], 1i8))).unwrap();
        assert_eq!(coo.to_string().lines().count(), 1 + FIRST + 1 + LAST);
        for debug in [format!("{long:?}"), format!("{rows:?}"), format!("{coo:?}")] {
            assert!(debug.len() < 3000, "{} characters: {debug}", debug.len());
        }
    }

    #[test]
    fn empty_and_whole_ones() {
        let text = |shape| Csr::zeros(DType::I8, shape).unwrap().to_string();
        assert_eq!(text([0, 4]), "csr i8 [0, 4], 0 entries");
        assert_eq!(text([2, 4]), "csr i8 [2, 4], 0 entries (0 %)");
        let ones = Csr::from_rows(1, [[(0, true)]]).unwrap().to_string();
        assert_eq!(ones, "csr bool [1, 1], 1 entries (100 %)\n  (0, 0) true");
        assert_eq!((percent(33.333_33), percent(0.001_234_5)), ("33.3".into(), "0.00123".into()));
        assert_eq!(shown(13).flatten().count(), 13);
    }
}
