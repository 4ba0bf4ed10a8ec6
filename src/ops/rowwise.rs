//! What the row-wise families share: loops over rows in one store mode.

use crate::kernels::{Float, Store, View, ViewMut};

/// Writes or adds one element.
#[inline(always)]
pub(super) fn put<T: Float>(to: &mut T, value: T, store: Store) {
    match store {
        Store::Write => *to = value,
        Store::Add => *to += value,
    }
}

/// Writes or adds a row.
pub(super) fn put_row<T: Float>(to: &mut [T], values: &[T], store: Store) {
    match store {
        Store::Write => to.copy_from_slice(values),
        Store::Add => to.iter_mut().zip(values).for_each(|(to, &value)| *to += value),
    }
}

/// Writes or adds all rows.
pub(super) fn put_rows<T: Float>(mut to: ViewMut<'_, T>, values: View<'_, T>, store: Store) {
    to.iter_mut().zip(values.iter()).for_each(|(to, values)| put_row(to, values, store));
}

/// Writes zeros where a gradient is to be written; adding nothing leaves it as it is.
pub(super) fn put_nothing<T: Float>(mut to: ViewMut<'_, T>, store: Store) {
    if store == Store::Write {
        to.fill(T::ZERO);
    }
}
