"""The mutation run of `hack/mutants`."""
