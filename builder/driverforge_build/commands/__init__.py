"""One module a subcommand of `driverforge`; each exports `command`, a click command."""
