"""A real Kubernetes: API server, kubelet, and the pod of the toolkit on one node."""
