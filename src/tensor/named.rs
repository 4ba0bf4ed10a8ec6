//! Macros for enums that are serialized by the name of a variant. Old files thus stay readable if variants are added
//! or reordered.
//!
//! Serde's derive is not used: with it, the format chooses between the name and the position of a variant, and bincode
//! writes the position.

/// Implements the serialization of an enum by the functions `name()` and `from_str` of the enum.
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

/// Implements the list `ALL`, `name()`, `Display` and `FromStr` for an enum.
macro_rules! named {
    ($type:ty, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// All variants.
            pub const ALL: [$type; [$($name),+].len()] = [$(<$type>::$variant),+];

            /// Returns the name of this variant in listings and files.
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
