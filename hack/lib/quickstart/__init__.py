"""The run of `hack/quickstart`: its phases, and what a person sees of them."""
