//! The decklog command.

fn main() -> std::process::ExitCode {
    decklog_cli::run()
}
