"""One module a subcommand of `driverctl`: `add_arguments(parser)` and `run(args, host) -> int`."""
