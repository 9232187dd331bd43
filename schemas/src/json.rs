//! The JSON form: a CloudEvents JSON event to an envelope, its data left as text.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::envelope::{Attribute, Data, Envelope, MAX_DEPTH, Malformed};
use crate::text::Text;

/// Reads one JSON object and nothing behind it.
pub(crate) fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Malformed> {
    check_depth(bytes)?;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed::Json { problem: format!("byte {} is not UTF-8", error.valid_up_to()) })?;
    serde_json::from_str(text).map_err(|error| Malformed::Json { problem: error.to_string() })
}

/// Counts brackets outside of strings. What is not JSON at all is left for the reader to name.
fn check_depth(bytes: &[u8]) -> Result<(), Malformed> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Malformed::TooDeep { offset });
        }
    }
    Ok(())
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CloudEvents JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        let mut has_data = false;
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if &*name == "data" {
                if std::mem::replace(&mut has_data, true) {
                    return Err(de::Error::duplicate_field("data"));
                }
                let raw = map.next_value::<&'de RawValue>()?;
                envelope.data = if raw.get() == "null" { Data::Absent } else { Data::Json(raw.get()) };
            } else if let Some(attribute) = envelope.attribute(name.as_bytes()) {
                if *attribute != Attribute::Absent {
                    return Err(de::Error::custom(format_args!("the attribute {:?} stands twice", &*name)));
                }
                *attribute = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(envelope)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attribute<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AttributeVisitor)
    }
}

struct AttributeVisitor;

impl<'de> Visitor<'de> for AttributeVisitor {
    type Value = Attribute<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an attribute")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Attribute::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Attribute::Text(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Attribute::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).map_or(Attribute::Negative, Attribute::Unsigned))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Attribute::Other("a fraction"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Attribute::Other("true or false"))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Attribute::Absent)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Attribute::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Attribute::Other("a map"))
    }
}
