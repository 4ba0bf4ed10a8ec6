//! Closed lists that are stored by name, so that a new entry or another order changes no file.
//!
//! serde's derive leaves it to the format whether a variant's name or its position is written, and bincode writes
//! the position.

/// Reads and writes a type by its `name()` and its `FromStr`.
macro_rules! stored_by_name {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Gives a type its list `ALL`, its `name()`, `Display` and `FromStr`.
macro_rules! named {
    ($type:ty, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every one of them.
            pub const ALL: [$type; [$($name),+].len()] = [$(<$type>::$variant),+];

            /// Its name in listings and files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(<$type>::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> $crate::error::Result<Self> {
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| {
                    let expected = format!("one of {}", [$($name),+].join(", "));
                    $crate::error::Error::new($what, expected, format!("`{name}`"))
                })
            }
        }
    };
}

pub(crate) use {named, stored_by_name};
