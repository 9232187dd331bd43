//! Writing the scalars of the envelope, each in its shortest form.

/// Writes the head of a map with less than 16 entries.
pub(crate) fn write_map_head(buffer: &mut Vec<u8>, entries: u8) {
    buffer.push(0x80 | entries);
}

/// Writes the name of an attribute, of less than 16 bytes. Inlined it is one copy of bytes that are known by then.
#[inline(always)]
pub(crate) fn write_name(buffer: &mut Vec<u8>, name: &'static str) {
    let mut text = [0; 16];
    text[0] = 0xa0 | name.len() as u8;
    text[1..=name.len()].copy_from_slice(name.as_bytes());
    buffer.extend_from_slice(&text[..=name.len()]);
}

/// Writes a string that is UTF-8.
#[inline]
pub(crate) fn write_text(buffer: &mut Vec<u8>, text: &[u8]) {
    write_text_head(buffer, text.len());
    buffer.extend_from_slice(text);
}

/// Writes the head of a string; its bytes follow.
#[inline]
pub(crate) fn write_text_head(buffer: &mut Vec<u8>, length: usize) {
    match length {
        0..0x20 => buffer.push(0xa0 | length as u8),
        0x20..0x100 => buffer.extend_from_slice(&[0xd9, length as u8]),
        0x100..0x1_0000 => write_head(buffer, 0xda, &(length as u16).to_be_bytes()),
        _ => write_head(buffer, 0xdb, &(length as u32).to_be_bytes()),
    }
}

/// Writes a whole number of 0 or more.
pub(crate) fn write_number(buffer: &mut Vec<u8>, number: u64) {
    match number {
        0..0x80 => buffer.push(number as u8),
        0x80..0x100 => write_head(buffer, 0xcc, &[number as u8]),
        0x100..0x1_0000 => write_head(buffer, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..0x1_0000_0000 => write_head(buffer, 0xce, &(number as u32).to_be_bytes()),
        _ => write_head(buffer, 0xcf, &number.to_be_bytes()),
    }
}

fn write_head(buffer: &mut Vec<u8>, marker: u8, number: &[u8]) {
    buffer.push(marker);
    buffer.extend_from_slice(number);
}
