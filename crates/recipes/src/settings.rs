//! Types of settings, and macros that declare a setting once, with its documentation, for config files, flags and lists.

use std::fmt;

use unpadded::Precision;
use unpadded::metrics::LabelThreshold;
use unpadded::optimizer::OptimizerKind;
use unpadded_text::Fold;

use super::byte_size::ByteSize;

/// The value of a setting, parsed from a config file or a command-line flag.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// Any number.
    Float(f64),
    /// A text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl Value {
    /// Returns the value for messages, without quotation marks.
    pub(super) fn plain(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::List(texts) => texts.join(", "),
            Value::Float(number) => number.to_string(),
            Value::Flag(_) | Value::Int(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(text) => quoted(f, text),
            Value::List(texts) => {
                f.write_str("[")?;
                for (at, text) in texts.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    quoted(f, text)?;
                }
                f.write_str("]")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

pub(super) trait Setting: Sized {
    /// Describes the values that the type accepts, for error messages.
    fn expected() -> String;
    /// Converts a value to this type; `None` if the value has the wrong type.
    fn of(value: &Value) -> Option<Self>;
    /// Converts a setting to a value; `None` if the setting is not set.
    fn value(&self) -> Option<Value>;
}

/// Declares types of settings: what is expected, the conversion from a value, and the conversion to a value.
macro_rules! types {
    ($($type:ty: $expected:expr, $convert:expr, $value:expr;)*) => {$(
        impl Setting for $type {
            fn expected() -> String {
                $expected.into()
            }

            fn of(value: &Value) -> Option<Self> {
                let convert: fn(&Value) -> Option<Self> = $convert;
                convert(value)
            }

            fn value(&self) -> Option<Value> {
                let value: fn(&Self) -> Option<Value> = $value;
                value(self)
            }
        }
    )*};
}
types! {
    bool: "true or false", |value| if let Value::Flag(value) = value { Some(*value) } else { None }, |value| Some(Value::Flag(*value));
    u64: "a whole number from 0 on", whole, |value| Some(integer(*value));
    usize: "a whole number from 0 on", whole, |value| Some(integer(*value));
    f64: "a number", float, |value| Some(Value::Float(*value));
    String: "a text in quotes", |value| if let Value::Text(value) = value { Some(value.clone()) } else { None }, |value| Some(Value::Text(value.clone()));
    Vec<String>: "a text in quotes, or a list of them", texts, |value| list(value);
    Precision: format!("one of {}", Self::ALL.map(|one| format!("`{one}`")).join(", ")), |value| text(value)?.parse().ok(), shown;
    OptimizerKind: format!("one of {}", optimizers()), |value| text(value)?.parse().ok().filter(decays), shown;
    ByteSize: ByteSize::EXPECTED, |value| text(value)?.parse().ok(), shown;
    Fold: "a fold of several, as \"2/5\"", |value| Fold::parse(&text(value)?), shown;
    LabelThreshold: LabelThreshold::EXPECTED, |value| text(value)?.parse().ok(), shown;
}

/// Returns whether an optimizer has the setting `training.weight_decay`. FTRL is for linear models.
fn decays(optimizer: &OptimizerKind) -> bool {
    optimizer.at_rate(0.0).rule.attributes.get("weight_decay").is_some()
}

/// Returns the names of the optimizers that a config may have.
pub(super) fn optimizers() -> String {
    let names = OptimizerKind::ALL.iter().filter(|one| decays(one)).map(|one| format!("`{one}`"));
    names.collect::<Vec<_>>().join(", ")
}

/// A number counts as a text here, so that a threshold needs no quotation marks.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Float(number) => Some(number.to_string()),
        Value::Flag(_) | Value::Int(_) | Value::List(_) => None,
    }
}

fn shown(setting: &impl fmt::Display) -> Option<Value> {
    Some(Value::Text(setting.to_string()))
}

fn whole<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    if let Value::Int(value) = value { (*value).try_into().ok() } else { None }
}

/// Integers in TOML are `i64`, so a setting that was read from a file is at most `i64::MAX`.
fn integer<T: TryInto<i64>>(number: T) -> Value {
    Value::Int(number.try_into().unwrap_or(i64::MAX))
}

pub(super) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) if value.is_finite() => Some(*value),
        Value::Float(_) | Value::Flag(_) | Value::Text(_) | Value::List(_) => None,
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Text(text) => Some(vec![text.clone()]),
        Value::List(texts) => Some(texts.clone()),
        Value::Flag(_) | Value::Int(_) | Value::Float(_) => None,
    }
}

/// A list with a single text is written as this text, without brackets.
fn list(texts: &[String]) -> Option<Value> {
    match texts {
        [] => None,
        [one] => Some(Value::Text(one.clone())),
        several => Some(Value::List(several.to_vec())),
    }
}

impl<T: Setting> Setting for Option<T> {
    fn expected() -> String {
        T::expected()
    }

    fn of(value: &Value) -> Option<Self> {
        T::of(value).map(Some)
    }

    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }
}

/// Declares an enum; each variant has a name in config files.
macro_rules! choice {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $text_of:literal])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[doc = $text_of])* $variant),* }

        impl $name {
            /// All choices.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name of this variant in config files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Returns the variant with this name in config files; `None` if no variant has the name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }

        impl $crate::settings::Setting for $name {
            fn expected() -> String {
                let names: Vec<String> = Self::ALL.iter().map(|one| format!("`{}`", one.name())).collect();
                format!("one of {}", names.join(", "))
            }

            fn of(value: &$crate::settings::Value) -> Option<Self> {
                let $crate::settings::Value::Text(text) = value else { return None };
                Self::from_name(text)
            }

            fn value(&self) -> Option<$crate::settings::Value> {
                Some($crate::settings::Value::Text(self.name().to_owned()))
            }
        }
    };
}
pub(super) use choice;

/// The name and the documentation of a setting, as `Config::keys` lists them.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SettingKey {
    /// The table of a config file in which the setting is; empty for a setting above all tables.
    pub section: &'static str,
    /// The name of the setting within its table.
    pub name: &'static str,
    /// The documentation of the setting, as config files have it in a comment.
    pub doc: &'static str,
}

impl SettingKey {
    /// Returns whether `name` is the dotted name of the setting.
    pub(super) fn is(&self, name: &str) -> bool {
        name.split_once('.').unwrap_or(("", name)) == (self.section, self.name)
    }
}

impl fmt::Display for SettingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.section.is_empty() {
            f.write_str(self.name)
        } else {
            write!(f, "{}.{}", self.section, self.name)
        }
    }
}

/// Declares a table of settings: a struct, its defaults by task, and the rules of each setting, by calls behind its default.
macro_rules! section {
    ($(#[doc = $doc:literal])* $name:ident($task:ident) = $section:literal, $table:ident {
        $($(#[doc = $doc_line:literal])+ $field:ident: $type:ty = $default:expr $(, $rule:ident($($of_rule:tt)*))*;)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $name { $($(#[doc = $doc_line])+ pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self::of(Task::Classify)
            }
        }

        impl $name {
            pub(super) const SETTINGS: &[SettingRules] = &[$({
                let key = $crate::settings::SettingKey {
                    section: $section,
                    name: stringify!($field),
                    doc: concat!($($doc_line),+),
                };
                SettingRules::new(
                    key,
                    |config| $crate::settings::Setting::value(&config.$table.$field),
                    |config, value| $crate::settings::read(&mut config.$table.$field, value),
                )$(.$rule($($of_rule)*))*
            }),*];

            /// Returns the default settings of a task, suited to a few thousand texts.
            #[allow(unused_variables)]
            pub(super) fn of($task: Task) -> Self {
                Self { $($field: $default),* }
            }
        }
    };
}
pub(super) use section;

/// Sets a setting to a value; an error is what the type of the setting expects.
pub(super) fn read<T: Setting>(setting: &mut T, value: &Value) -> Result<(), String> {
    *setting = T::of(value).ok_or_else(T::expected)?;
    Ok(())
}
