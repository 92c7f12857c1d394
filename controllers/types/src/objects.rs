//! JSON whose objects are objects.
//!
//! The derived readers also take a list for a struct, value by value in the order of the fields: `[0.7]` would be a configuration
//! whose first field is 0.7. Whatever other people write is read by [`from_str`], [`from_slice`] or [`from_value`], which refuse that
//! at every depth. They take everything else that `serde_json` takes.

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::Value;

/// Reads one document.
///
/// # Errors
/// If it is no JSON, or not that of a `T`.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> serde_json::Result<T> {
    from_slice(text.as_bytes())
}

/// Reads one document; trailing bytes other than white space are an error.
///
/// # Errors
/// As [`from_str`].
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Objects(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// Reads a value.
///
/// # Errors
/// If it is not that of a `T`.
pub fn from_value<T: for<'de> Deserialize<'de>>(value: Value) -> serde_json::Result<T> {
    T::deserialize(Objects(value))
}

/// A deserializer below which every struct is an object, for readers of other libraries; and its visitors and accesses.
#[derive(Clone, Copy, Debug)]
pub struct Objects<T>(pub T);

/// Methods without further arguments.
macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Objects(visitor))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier
    }

    /// Only an object.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Objects(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Objects(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, Objects(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, length, Objects(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Objects(visitor))
    }

    /// Nothing is read of it.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Methods that take a value without parts.
macro_rules! plain {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Objects<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    plain! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64,
        visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, below: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(below))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, below: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(below))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Objects(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Objects(fields))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Objects(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Objects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, below: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(below))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Objects<A> {
    type Error = A::Error;
    type Variant = Objects<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, content) = self.0.variant_seed(seed)?;
        Ok((name, Objects(content)))
    }
}

/// The fields of a variant, which is an object like a struct.
struct Fields<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Fields<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, below: D) -> Result<V::Value, D::Error> {
        below.deserialize_map(self.0)
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Objects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Objects(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.newtype_variant_seed(Fields(visitor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Leaf {
        #[serde(default)]
        target: Option<f64>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Choice {
        Unit,
        One(Leaf),
        Pair(u8, Leaf),
        Named { leaf: Leaf },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct New(Leaf);

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct All {
        leaf: Option<Leaf>,
        leaves: Vec<Leaf>,
        named: std::collections::BTreeMap<String, Leaf>,
        choice: Option<Choice>,
        new: Option<New>,
        pair: Option<(u8, Leaf)>,
        any: Value,
    }

    /// What is read, by a text and by a value.
    fn read(text: &str) -> Option<All> {
        let value: Value = serde_json::from_str(text).unwrap();
        let (by_text, by_value) = (from_str(text), from_value(value));
        assert_eq!(by_text.as_ref().ok(), by_value.as_ref().ok(), "{text}");
        by_text.ok()
    }

    #[test]
    fn a_list_is_no_object_at_any_depth() {
        for (good, bad) in [
            ("{}", "[]"),
            (r#"{"leaf": {"target": 0.7}}"#, r#"{"leaf": [0.7]}"#),
            (r#"{"leaves": [{"target": 0.7}]}"#, r#"{"leaves": [[0.7]]}"#),
            (r#"{"named": {"a": {}}}"#, r#"{"named": {"a": []}}"#),
            (r#"{"choice": {"one": {}}}"#, r#"{"choice": {"one": [1.0]}}"#),
            (r#"{"choice": {"pair": [1, {}]}}"#, r#"{"choice": {"pair": [1, [1.0]]}}"#),
            (r#"{"choice": {"named": {"leaf": {}}}}"#, r#"{"choice": {"named": [{}]}}"#),
            (r#"{"choice": {"named": {"leaf": {}}}}"#, r#"{"choice": {"named": {"leaf": [1.0]}}}"#),
            (r#"{"new": {"target": 1}}"#, r#"{"new": [1.0]}"#),
            (r#"{"pair": [1, {}]}"#, r#"{"pair": [1, [1.0]]}"#),
        ] {
            assert_eq!(read(good), serde_json::from_str(good).ok(), "{good}");
            assert!(read(good).is_some() && read(bad).is_none(), "{bad}");
        }
        assert_eq!(
            read(r#"{"choice": "unit", "any": [1, {"a": [null]}]}"#).unwrap().any,
            json!([1, {"a": [null]}])
        );
        let error = from_str::<Leaf>("[0.7]").unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected struct Leaf"), "{error}");
        assert!(from_str::<Leaf>("{} {}").is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".*", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn everything_else_is_read_as_before(value in any_json()) {
            prop_assert_eq!(from_str::<Value>(&value.to_string()).unwrap(), value.clone());
            prop_assert_eq!(from_value::<Value>(value.clone()).unwrap(), value);
        }
    }
}
