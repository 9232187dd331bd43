//! The fast way from the bytes of `data` to its type: it knows what writers write, and gives up on anything else.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{NIL, Reader, Token};

/// Reads the next value, and checks all that passing over it does. None if it is not of the type, or written in an
/// unusual way: rmp-serde then reads it, and says what is wrong if anything is. Whatever is read here, it reads alike.
pub(crate) fn read<'a, T: Deserialize<'a>>(reader: &mut Reader<'a>) -> Option<T> {
    T::deserialize(reader).ok()
}

/// The value is for rmp-serde.
#[derive(Debug)]
pub(crate) struct Unusual;

struct Entries<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: u32,
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Unusual;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        if let Some(text) = self.short_text() {
            return visitor.visit_borrowed_str(self.utf8(text).map_err(|_| Unusual)?);
        }
        match self.token().map_err(|_| Unusual)? {
            Token::Text(text) => visitor.visit_borrowed_str(self.utf8(text).map_err(|_| Unusual)?),
            Token::Unsigned(number) => visitor.visit_u64(number),
            Token::Negative(number) => visitor.visit_i64(number),
            Token::Map(entries) => {
                self.depth += 1;
                let value = visitor.visit_map(Entries { reader: self, left: entries })?;
                self.depth -= 1;
                Ok(value)
            }
            Token::Nil | Token::Scalar(_) | Token::List(_) => Err(Unusual),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        if let [NIL, rest @ ..] = self.rest {
            self.rest = rest;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unusual> {
        visitor.visit_newtype_struct(self)
    }

    /// Names of fields are compared as bytes: one that is known is UTF-8.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        self.name = self.key().map_err(|_| Unusual)?;
        visitor.visit_borrowed_bytes(self.name)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        self.utf8(self.name).and_then(|_| self.pass(self.depth)).map_err(|_| Unusual)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum
    }
}

impl<'a> MapAccess<'a> for Entries<'_, 'a> {
    type Error = Unusual;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Unusual> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Unusual> {
        seed.deserialize(&mut *self.reader)
    }
}

impl fmt::Display for Unusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is not what writers write")
    }
}

impl std::error::Error for Unusual {}

impl de::Error for Unusual {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}
