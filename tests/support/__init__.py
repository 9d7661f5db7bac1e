"""The test bench: product code with its own tests, used by the tests and by `hack/quickstart`.

Its rooms: `machines` are real parts, `cluster` is a real Kubernetes, `fakes` stand in for what cannot exist
here, `samples` are inputs made by hand or by a rule, `upstream` is what others wrote. Everything big is made
once and kept in one cache folder (`support.cache`). Everything works with that folder empty.
"""
