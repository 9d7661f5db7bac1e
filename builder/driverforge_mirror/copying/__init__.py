"""Images from a source to a sink, in threads, and registries as both."""
