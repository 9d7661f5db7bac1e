"""One module a subcommand: its options, and what it prints."""
