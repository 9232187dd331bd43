//! YAML as it is printed and written here.

use anyhow::Error;
use serde::Serialize;

/// The YAML text of a value, ending in a line feed.
pub(crate) fn to_string(value: &impl Serialize) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(value, options)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
