//! The MessagePack form: one map to an envelope, its data left as bytes. Nothing is allocated.

mod fields;
mod write;

use ascii::AsciiStr;
use rmp::Marker;

use crate::envelope::{Attribute, Data, Envelope, MAX_DEPTH, Malformed};
use crate::text::Text;

pub(crate) use self::fields::read;
pub(crate) use self::write::{write_map_head, write_name, write_number, write_text, write_text_head};

/// Reads one map with string keys and nothing behind it.
pub(crate) fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut envelope = Envelope::default();
    let mut has_data = false;
    let Token::Map(entries) = reader.token()? else {
        return Err(reader.problem("a map was expected"));
    };
    for _ in 0..entries {
        let name = reader.key()?;
        if name == b"data" {
            if std::mem::replace(&mut has_data, true) {
                return Err(twice(name));
            }
            let start = reader.rest;
            // Data of a type that is known by now, as is usual, is read on the way; that checks all of it.
            envelope.body = envelope.event_type().and_then(|event_type| event_type.read_msgpack(&mut reader));
            if envelope.body.is_none() {
                reader.rest = start;
                reader.pass(1)?;
            }
            let bytes = &start[..start.len() - reader.rest.len()];
            envelope.data = if bytes == [NIL] { Data::Absent } else { Data::MessagePack(bytes) };
        } else if let Some(attribute) = envelope.attribute(name) {
            if !matches!(attribute, Attribute::Absent) {
                return Err(twice(name));
            }
            *attribute = reader.attribute()?;
        } else {
            reader.utf8(name)?;
            reader.pass(1)?;
        }
    }
    if reader.rest.is_empty() { Ok(envelope) } else { Err(Malformed::Trailing { offset: reader.at() }) }
}

/// How many bytes the first MessagePack value of a stream has, whatever is in it; none if the bytes do not hold it whole,
/// or are no MessagePack.
#[must_use]
pub fn split_msgpack(bytes: &[u8]) -> Option<usize> {
    // Values yet to come: lists and maps add theirs, so that nothing recurses however deep they are.
    let (mut reader, mut left) = (Reader::new(bytes), 1_u64);
    while left > 0 {
        let inside = match reader.token().ok()? {
            Token::List(entries) => u64::from(entries),
            Token::Map(entries) => 2 * u64::from(entries),
            _ => 0,
        };
        left = left - 1 + inside;
    }
    Some(reader.at())
}

const NIL: u8 = 0xc0;

/// A cursor over the bytes of one event.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// How many maps are open, while data is read.
    depth: usize,
    /// The last name of a field, while data is read.
    name: &'a [u8],
    /// How many bytes there were at the start.
    size: usize,
}

/// One step of MessagePack: a whole scalar, or the head of a list or map with its number of entries.
enum Token<'a> {
    /// Not yet checked to be UTF-8.
    Text(&'a [u8]),
    Unsigned(u64),
    Negative(i64),
    Nil,
    Scalar(&'static str),
    List(u32),
    Map(u32),
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: 1, name: b"", size: bytes.len() }
    }

    /// How many bytes were read.
    fn at(&self) -> usize {
        self.size - self.rest.len()
    }

    /// The string that an entry begins with, not yet checked to be UTF-8.
    fn key(&mut self) -> Result<&'a [u8], Malformed> {
        let offset = self.at();
        if let Some(name) = self.short_text() {
            return Ok(name);
        }
        match self.token()? {
            Token::Text(name) => Ok(name),
            _ => Err(Malformed::MessagePack { offset, problem: "a map key is not a string" }),
        }
    }

    fn attribute(&mut self) -> Result<Attribute<'a>, Malformed> {
        if let Some(text) = self.short_text() {
            return Ok(Attribute::Text(Text::from(self.utf8(text)?)));
        }
        let start = self.rest;
        Ok(match self.token()? {
            Token::Text(text) => Attribute::Text(Text::from(self.utf8(text)?)),
            Token::Unsigned(number) => Attribute::Unsigned(number),
            Token::Negative(_) => Attribute::Negative,
            Token::Nil => Attribute::Absent,
            Token::Scalar(word) => Attribute::Other(word),
            token @ (Token::List(_) | Token::Map(_)) => {
                self.rest = start;
                self.pass(1)?;
                Attribute::Other(if matches!(token, Token::List(_)) { "a list" } else { "a map" })
            }
        })
    }

    /// Passes over one value that stands `depth` levels deep.
    #[inline]
    fn pass(&mut self, depth: usize) -> Result<(), Malformed> {
        match self.short_text() {
            Some(text) => self.utf8(text).map(drop),
            None => self.pass_other(depth),
        }
    }

    /// It recurses, and never deeper than [`MAX_DEPTH`].
    fn pass_other(&mut self, depth: usize) -> Result<(), Malformed> {
        let offset = self.at();
        let token = self.token()?;
        if let Token::List(_) | Token::Map(_) = token
            && depth >= MAX_DEPTH
        {
            return Err(Malformed::TooDeep { offset });
        }
        match token {
            Token::Text(text) => drop(self.utf8(text)?),
            Token::List(entries) => {
                for _ in 0..entries {
                    self.pass(depth + 1)?;
                }
            }
            Token::Map(entries) => {
                for _ in 0..entries {
                    let key = self.key()?;
                    self.utf8(key)?;
                    self.pass(depth + 1)?;
                }
            }
            Token::Unsigned(_) | Token::Negative(_) | Token::Nil | Token::Scalar(_) => {}
        }
        Ok(())
    }

    /// The string that was read just now, if it is one. Nearly all are ASCII: looking for that alone first takes a fifth
    /// off the time of a whole event.
    fn utf8<'t>(&self, text: &'t [u8]) -> Result<&'t str, Malformed> {
        let ascii = AsciiStr::from_ascii(text).map(AsciiStr::as_str);
        ascii
            .or_else(|_| std::str::from_utf8(text))
            .map_err(|_| Malformed::MessagePack { offset: self.at() - text.len(), problem: "a string is not UTF-8" })
    }

    /// The string that is next if it has less than 256 bytes: a key, and nearly every value.
    #[inline]
    fn short_text(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = match self.rest {
            [marker @ 0xa0..=0xbf, rest @ ..] => (*marker - 0xa0, rest),
            [0xd9, length, rest @ ..] => (*length, rest),
            _ => return None,
        };
        let (text, rest) = rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        Some(text)
    }

    fn token(&mut self) -> Result<Token<'a>, Malformed> {
        Ok(match Marker::from_u8(self.byte()?) {
            Marker::FixStr(length) => self.text(u64::from(length))?,
            Marker::Str8 => self.number(1).and_then(|length| self.text(length))?,
            Marker::Str16 => self.number(2).and_then(|length| self.text(length))?,
            Marker::Str32 => self.number(4).and_then(|length| self.text(length))?,
            Marker::FixPos(number) => Token::Unsigned(u64::from(number)),
            Marker::U8 => Token::Unsigned(self.number(1)?),
            Marker::U16 => Token::Unsigned(self.number(2)?),
            Marker::U32 => Token::Unsigned(self.number(4)?),
            Marker::U64 => Token::Unsigned(self.number(8)?),
            Marker::FixNeg(number) => Token::Negative(i64::from(number)),
            Marker::I8 => signed(i64::from(self.number(1)? as u8 as i8)),
            Marker::I16 => signed(i64::from(self.number(2)? as u16 as i16)),
            Marker::I32 => signed(i64::from(self.number(4)? as u32 as i32)),
            Marker::I64 => signed(self.number(8)? as i64),
            Marker::Null => Token::Nil,
            Marker::True | Marker::False => Token::Scalar("true or false"),
            Marker::F32 => self.skip(4, "a fraction")?,
            Marker::F64 => self.skip(8, "a fraction")?,
            Marker::FixMap(entries) => Token::Map(u32::from(entries)),
            Marker::Map16 => Token::Map(self.number(2)? as u32),
            Marker::Map32 => Token::Map(self.number(4)? as u32),
            Marker::FixArray(entries) => Token::List(u32::from(entries)),
            Marker::Array16 => Token::List(self.number(2)? as u32),
            Marker::Array32 => Token::List(self.number(4)? as u32),
            Marker::Bin8 => self.number(1).and_then(|length| self.skip(length, "bytes"))?,
            Marker::Bin16 => self.number(2).and_then(|length| self.skip(length, "bytes"))?,
            Marker::Bin32 => self.number(4).and_then(|length| self.skip(length, "bytes"))?,
            Marker::FixExt1 => self.skip(2, "an extension")?,
            Marker::FixExt2 => self.skip(3, "an extension")?,
            Marker::FixExt4 => self.skip(5, "an extension")?,
            Marker::FixExt8 => self.skip(9, "an extension")?,
            Marker::FixExt16 => self.skip(17, "an extension")?,
            Marker::Ext8 => self.number(1).and_then(|length| self.skip(length + 1, "an extension"))?,
            Marker::Ext16 => self.number(2).and_then(|length| self.skip(length + 1, "an extension"))?,
            Marker::Ext32 => self.number(4).and_then(|length| self.skip(length + 1, "an extension"))?,
            Marker::Reserved => return Err(self.problem("the reserved marker 0xc1 stands")),
        })
    }

    fn text(&mut self, length: u64) -> Result<Token<'a>, Malformed> {
        self.take(length).map(Token::Text)
    }

    fn skip(&mut self, length: u64, word: &'static str) -> Result<Token<'a>, Malformed> {
        self.take(length)?;
        Ok(Token::Scalar(word))
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A big-endian number of 1 to 8 bytes.
    fn number(&mut self, width: u64) -> Result<u64, Malformed> {
        Ok(self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let taken = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((taken, rest)) = taken else { return Err(self.problem("the event is cut off")) };
        self.rest = rest;
        Ok(taken)
    }

    fn problem(&self, problem: &'static str) -> Malformed {
        Malformed::MessagePack { offset: self.at(), problem }
    }
}

fn signed(number: i64) -> Token<'static> {
    u64::try_from(number).map_or(Token::Negative(number), Token::Unsigned)
}

fn twice(name: &[u8]) -> Malformed {
    Malformed::Twice { name: String::from_utf8_lossy(name).into_owned() }
}
