"""The custom resources as typed models: what a person may write, what it means where it is not written.

`hack/generate` makes the published schemas from them. NVIDIA's operator has the same resources, so a field of
its schema that is missing here would be lost from its users' objects.
"""
