"""Files that are made from tables of the code: `hack/generate` and `hack/environment-page`."""
