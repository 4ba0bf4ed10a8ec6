//! Converts numbers to the little-endian bytes of a message, and back.

use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{DType, Dense, FloatsMut, SelectedRows};

#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u64).to_le_bytes());
    }

    pub(crate) fn floats(&mut self, numbers: &[f64]) {
        self.count(numbers.len());
        numbers.iter().for_each(|x| self.0.extend_from_slice(&x.to_le_bytes()));
    }

    /// Writes the sums of a metric as pairs of index and sum. Sums that are +0 are left out, since most sums of a metric with
    /// many sums are zero.
    pub(crate) fn sums(&mut self, sums: &[f64]) {
        let some: Vec<usize> = (0..sums.len()).filter(|&i| sums[i].to_bits() != 0).collect();
        self.count(sums.len());
        self.count(some.len());
        for i in some {
            self.count(i);
            self.0.extend_from_slice(&sums[i].to_le_bytes());
        }
    }

    /// Writes the numbers of an array at the positions `part`.
    pub(crate) fn numbers(&mut self, array: &Dense, part: std::ops::Range<usize>) -> Result<()> {
        match array.dtype() {
            DType::F64 => self.put(&array.as_slice::<f64>()?[part], |x| x.to_le_bytes()),
            _ => self.put(&array.as_slice::<f32>()?[part], |x| x.to_le_bytes()),
        }
        Ok(())
    }

    pub(crate) fn floats_of(&mut self, numbers: &FloatsMut<'_>) {
        #[cfg(test)]
        crate::tensor::floats::count_copied(numbers.len());
        match numbers {
            FloatsMut::F32(x) => self.put(x, |x| x.to_le_bytes()),
            FloatsMut::F64(x) => self.put(x, |x| x.to_le_bytes()),
        }
    }

    fn put<T: Copy, const N: usize>(&mut self, numbers: &[T], bytes: impl Fn(T) -> [u8; N]) {
        // A small array is filled first: filling the message itself would write zeros to all of it before.
        const SOME: usize = 1 << 12;
        let mut some = [0; SOME];
        self.0.reserve(N * numbers.len());
        for numbers in numbers.chunks(SOME / N) {
            some.as_chunks_mut::<N>().0.iter_mut().zip(numbers).for_each(|(to, &x)| *to = bytes(x));
            self.0.extend_from_slice(&some[..N * numbers.len()]);
        }
    }

    /// Writes row numbers of a table with `height` rows: four bytes per number if `height` fits in a u32, else eight bytes.
    pub(crate) fn ids(&mut self, ids: &[i64], height: usize) {
        self.count(ids.len());
        match u32::try_from(height) {
            Ok(_) => self.put(ids, |id| (id as u32).to_le_bytes()),
            Err(_) => self.put(ids, |id| id.to_le_bytes()),
        }
    }

    /// Writes some of the rows in selected rows, with their row numbers; `places` are the positions of the rows to write.
    pub(crate) fn rows(&mut self, rows: &SelectedRows, places: &[usize]) -> Result<()> {
        let ids: Vec<i64> = places.iter().map(|&index| rows.row_ids()[index]).collect();
        self.ids(&ids, rows.height());
        let width = rows.value().width();
        places.iter().try_for_each(|&index| self.numbers(rows.value(), index * width..(index + 1) * width))
    }
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(foreign)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let bytes = self.take(8)?.first_chunk();
        bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(foreign)
    }

    /// Reads the number of items that follow in the message.
    pub(crate) fn count(&mut self) -> Result<usize> {
        // Each item has at least one byte, so a number above the remaining bytes is an error.
        let count = usize::try_from(self.number()?).ok();
        count.filter(|&count| count <= self.0.len()).ok_or_else(foreign)
    }

    pub(crate) fn floats(&mut self) -> Result<Vec<f64>> {
        let count = self.count()?;
        let bytes = self.take(count.saturating_mul(8))?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    /// Reads sums that [`Message::sums`] wrote into `to`; returns an error if the number of sums is not the length of `to`.
    pub(crate) fn sums(&mut self, to: &mut [f64]) -> Result<()> {
        if self.number()? != to.len() as u64 {
            return Err(foreign());
        }
        to.fill(0.0);
        for _ in 0..self.count()? {
            let (index, sum) = (self.number()?, f64::from_bits(self.number()?));
            *to.get_mut(index as usize).ok_or_else(foreign)? = sum;
        }
        Ok(())
    }

    /// Reads an array with the given dtype and shape.
    pub(crate) fn numbers(&mut self, dtype: DType, shape: &[usize]) -> Result<Dense> {
        let count: usize = shape.iter().product();
        let bytes = self.take(count.saturating_mul(if dtype == DType::F64 { 8 } else { 4 }))?;
        match dtype {
            DType::F64 => {
                Dense::from_vec(shape, bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
            }
            _ => Dense::from_vec(shape, bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        }
    }

    /// Reads row numbers of a table with `height` rows.
    pub(crate) fn ids(&mut self, height: usize) -> Result<Vec<i64>> {
        let count = self.count()?;
        Ok(match u32::try_from(height) {
            Ok(_) => {
                let bytes = self.take(count.saturating_mul(4))?;
                bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes).into()).collect()
            }
            Err(_) => {
                let bytes = self.take(count.saturating_mul(8))?;
                bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
            }
        })
    }

    /// Reads selected rows of a table with the given dtype and shape; the first extent of `shape` is the height of the table.
    pub(crate) fn rows(&mut self, dtype: DType, shape: &[usize]) -> Result<SelectedRows> {
        let height = shape.first().copied().unwrap_or_default();
        let ids = self.ids(height)?;
        let mut shape = shape.to_vec();
        shape[0] = ids.len();
        SelectedRows::new(height, ids, self.numbers(dtype, &shape)?)
    }
}

/// One end of a message. A function that passes the fields of a message to an end describes both ends: it writes the fields on
/// the sender, and fills them on the receiver.
pub(crate) enum End<'e, 'm> {
    Write(&'e mut Message),
    Read(&'e mut Reader<'m>),
}

impl End<'_, '_> {
    pub(crate) fn flag(&mut self, flag: &mut bool) -> Result<()> {
        match self {
            Self::Write(message) => message.count(usize::from(*flag)),
            Self::Read(message) => *flag = message.number()? > 0,
        }
        Ok(())
    }

    /// Passes numbers whose count both ends know.
    pub(crate) fn floats(&mut self, numbers: &mut [f64]) -> Result<()> {
        match self {
            Self::Write(message) => message.floats(numbers),
            Self::Read(message) => {
                let read = message.floats()?;
                if read.len() != numbers.len() {
                    return Err(foreign());
                }
                numbers.copy_from_slice(&read);
            }
        }
        Ok(())
    }

    /// Passes a list of lists of numbers.
    pub(crate) fn list(&mut self, lists: &mut Vec<Vec<f64>>) -> Result<()> {
        match self {
            Self::Write(message) => {
                message.count(lists.len());
                lists.iter().for_each(|numbers| message.floats(numbers));
            }
            Self::Read(message) => {
                *lists = (0..message.number()?).map(|_| message.floats()).collect::<Result<_>>()?
            }
        }
        Ok(())
    }

    /// Passes the sums of a metric.
    pub(crate) fn sums(&mut self, sums: &mut [f64]) -> Result<()> {
        match self {
            Self::Write(message) => message.sums(sums),
            Self::Read(message) => message.sums(sums)?,
        }
        Ok(())
    }

    /// Passes row numbers of a table with `height` rows.
    pub(crate) fn ids(&mut self, ids: &mut Vec<i64>, height: usize) -> Result<()> {
        match self {
            Self::Write(message) => message.ids(ids, height),
            Self::Read(message) => *ids = message.ids(height)?,
        }
        Ok(())
    }
}

fn foreign() -> Error {
    Error::of(ErrorKind::Format, "message of another process", "a message of this version", "other bytes")
}
