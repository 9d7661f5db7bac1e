"""NVIDIA's container toolkit on the node: its programs in a versioned folder, their wrappers, config.toml, and its life as a pod."""
