"""The shapes of the JSON that `driverforge` writes for other programs.

`hack/generate` writes the published JSON schemas from them. A reader should pass over keys that it does not
know: new ones may come under the same `schema` number, and none goes or changes its meaning.
"""
