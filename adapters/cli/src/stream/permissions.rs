//! `decklog stream permissions`: a user for the server's configuration, ready to paste.

use std::fmt::Write as _;

use anyhow::Error;
use decklog_nats::STREAM;
use decklog_nats::permissions::{Permissions, Role};

use crate::args::StreamPermissionsArgs;
use crate::config::variable;
use crate::exit::Answer;
use crate::output;

pub(crate) fn run(args: &StreamPermissionsArgs) -> Result<Answer, Error> {
    let role = Role::from(args.writer);
    let user = args.user.as_deref().unwrap_or(role.as_str());
    let stream = args.stream.clone().or_else(|| variable("DECKLOG_STREAM")).unwrap_or_else(|| STREAM.to_owned());
    output::print(&snippet(role, user, &role.permissions(&stream))?)?;
    Ok(Answer::Yes)
}

fn snippet(role: Role, user: &str, permissions: &Permissions) -> Result<String, Error> {
    let variable = variable_of(user);
    let mut text = format!(
        "# A user for the configuration of nats-server: put it into `users: [ … ]` of `authorization` or of an account.\n\
         # The server takes the password from {variable}: a variable of its environment, or a line\n\
         # `{variable}: \"…\"` above in its configuration.\n"
    );
    writeln!(text, "{{ # {role}: {}", about(role))?;
    writeln!(text, "  user: {}", quoted(user))?;
    writeln!(text, "  password: ${variable}")?;
    writeln!(text, "  permissions: {{")?;
    for (verb, subjects) in [("publish", &permissions.publish), ("subscribe", &permissions.subscribe)] {
        writeln!(text, "    {verb}: {{ allow: [")?;
        for subject in subjects {
            writeln!(text, "      {}", quoted(subject))?;
        }
        writeln!(text, "    ] }}")?;
    }
    text.push_str("  }\n}\n");
    Ok(text)
}

fn about(role: Role) -> &'static str {
    match role {
        Role::Observer => "says how items and hooks fare",
        Role::Controller => "says what it did to releases, items and hooks",
        Role::Projector => "reads all of the log, and says what it did to the cluster",
        Role::Auditor => "reads all of the log, and says nothing",
        Role::Ci => "says what was deployed",
    }
}

/// A string as the server's configuration has it; only in quotes is `$` no variable.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            '\n' | '\r' | '\t' => vec![' '],
            c => vec![c],
        })
        .collect();
    format!("\"{escaped}\"")
}

/// The variable for the password of a user, such as `OBSERVER_PASSWORD`.
fn variable_of(user: &str) -> String {
    let name: String =
        user.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("{name}_PASSWORD")
}
