//! Serialization of sparse tensors, storages and variables. A value is written as its parts, one after another. When a
//! value is read, its constructor checks the parts.

use std::sync::Arc;

use ndarray::Array2;
use serde::de::Error as _;
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Coo, Csr, Dense, SelectedRows, Storage, StorageKind, Variable};
use crate::lod::Lod;

/// A csr matrix is written as a tuple of shape, `indptr`, `indices` and values.
impl Serialize for Csr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.shape(), self.indptr(), self.indices(), self.values()).serialize(serializer)
    }
}

/// [`Csr::new`] checks the parts that were read.
impl<'de> Deserialize<'de> for Csr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (shape, indptr, indices, values): (Vec<usize>, Vec<i64>, Vec<i64>, Dense) =
            Deserialize::deserialize(deserializer)?;
        let shape = <[usize; 2]>::try_from(shape);
        let shape = shape.map_err(|shape| D::Error::invalid_length(shape.len(), &"rows and columns"))?;
        Self::new(shape, indptr, indices, values).map_err(D::Error::custom)
    }
}

/// A coo tensor is written as a tuple of shape, coordinates of each entry, and values.
impl Serialize for Coo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let coordinates: Vec<i64> = self.coordinates().iter().copied().collect();
        (self.shape(), coordinates, self.values()).serialize(serializer)
    }
}

/// [`Coo::new`] checks the parts that were read.
impl<'de> Deserialize<'de> for Coo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (shape, coordinates, values): (Vec<usize>, Vec<i64>, Dense) =
            Deserialize::deserialize(deserializer)?;
        let (given, places) = (coordinates.len(), [values.len(), shape.len()]);
        let coordinates = Array2::from_shape_vec(places, coordinates)
            .map_err(|_| D::Error::custom(format!("{given} coordinates of coo for the shape {places:?}")))?;
        Self::new(&shape, coordinates, values).map_err(D::Error::custom)
    }
}

/// Selected rows are written as a tuple of the height, the row numbers and the values.
impl Serialize for SelectedRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.height(), self.row_ids(), self.value()).serialize(serializer)
    }
}

/// [`SelectedRows::new`] checks the parts that were read.
impl<'de> Deserialize<'de> for SelectedRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (height, rows, value): (usize, Vec<i64>, Dense) = Deserialize::deserialize(deserializer)?;
        Self::new(height, rows, value).map_err(D::Error::custom)
    }
}

/// A storage is written as a tuple of the name of its kind and the tensor. The name is written so that files do not
/// depend on the order of the enum's variants.
impl Serialize for Storage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_tuple(2)?;
        parts.serialize_element(&self.kind())?;
        match self {
            Self::Dense(x) => parts.serialize_element(x)?,
            Self::SelectedRows(x) => parts.serialize_element(x)?,
            Self::Csr(x) => parts.serialize_element(x)?,
            Self::Coo(x) => parts.serialize_element(x)?,
        }
        parts.end()
    }
}

impl<'de> Deserialize<'de> for Storage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, StorageVisitor)
    }
}

struct StorageVisitor;

impl<'de> serde::de::Visitor<'de> for StorageVisitor {
    type Value = Storage;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a storage's name and its tensor")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut parts: A) -> Result<Storage, A::Error> {
        let missing = |index| A::Error::invalid_length(index, &StorageVisitor);
        let kind: StorageKind = parts.next_element()?.ok_or_else(|| missing(0))?;
        let read = match kind {
            StorageKind::Dense => parts.next_element().map(|x| x.map(Storage::Dense)),
            StorageKind::SelectedRows => parts.next_element().map(|x| x.map(Storage::SelectedRows)),
            StorageKind::Csr => parts.next_element().map(|x| x.map(Storage::Csr)),
            StorageKind::Coo => parts.next_element().map(|x| x.map(Storage::Coo)),
        };
        read?.ok_or_else(|| missing(1))
    }
}

/// A variable is written as a tuple of the storage and the LoD, which may be `None`.
impl Serialize for Variable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.storage(), self.lod().map(|lod| &**lod)).serialize(serializer)
    }
}

/// [`Variable::new`] checks the parts that were read.
impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (storage, lod): (Storage, Option<Lod>) = Deserialize::deserialize(deserializer)?;
        Self::new(storage, lod.map(Arc::new)).map_err(D::Error::custom)
    }
}
