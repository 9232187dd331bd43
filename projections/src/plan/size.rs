//! How large an object will be in the cluster: what is stored is its JSON with `managedFields`, where each row stands
//! once more for each of its managers.

use decklog_schemas::inventory::ReleaseInventory;

use super::body::Body;
use super::managed::path_of;
use super::manager::FieldManager;

/// How many bytes etcd takes in one request: its default, 1.5 MiB, less what the request has besides the object.
pub const LIMIT_BYTES: usize = 1_536 * 1_024 - 4_096;

/// From where on a release is told to be large.
pub const WARN_BYTES: usize = LIMIT_BYTES / 2;

/// What an object has besides its fields: uid, times, stamps, and the frame of `managedFields`.
const FRAME: usize = 2_048;

/// How long such an escape is.
const ESCAPE: usize = r"\u003c".len();

/// How many bytes an object will take, at most a few percent too many.
#[must_use]
pub fn forecast(object: &ReleaseInventory) -> usize {
    forecast_of(object, &FieldManager::ALL.map(|manager| Body::of(manager, object)))
}

/// The same for an object whose bodies are made already.
pub(super) fn forecast_of(object: &ReleaseInventory, bodies: &[Body; 4]) -> usize {
    let managed: usize = bodies.iter().map(managed_bytes).sum();
    let canonical = object.canonical();
    FRAME + canonical.len() + escapes(&String::from_utf8_lossy(&canonical), ESCAPE) + managed
}

/// How many bytes more a text takes in the cluster: the API server escapes what a browser might misread.
fn escapes(text: &str, escape: usize) -> usize {
    let letters = text.chars().filter(|letter| matches!(letter, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'));
    letters.map(|letter| escape - letter.len_utf8()).sum()
}

/// How many bytes the rows of a manager take in `managedFields`.
fn managed_bytes(body: &Body) -> usize {
    let list = body.manager().list();
    let member = |name: &str| name.len() + r#""f:":{},"#.len();
    let keys: usize = list.keys().iter().map(|name| member(name)).sum();
    let row = |(key, fields): (&Vec<String>, &serde_json::Map<String, serde_json::Value>)| {
        // The key is JSON within a JSON string.
        let path = path_of(list, key);
        let escaped = escapes(&path, ESCAPE + 1);
        let path = serde_json::Value::from(path).to_string();
        let own: usize =
            fields.keys().filter(|name| !list.keys().contains(&name.as_str())).map(|name| member(name)).sum();
        path.len() + escaped + r#":{".":{}},"#.len() + keys + own
    };
    body.rows().iter().map(row).sum()
}
