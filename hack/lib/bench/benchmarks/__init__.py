"""The benchmarks: a module each, with run(workshop) -> measures."""
