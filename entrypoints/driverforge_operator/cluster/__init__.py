"""The adapters of `ports.Cluster`: an API server, and a folder of dumps."""
