"""What a program needs to live in a Kubernetes cluster, by the standard library alone.

A client of the API server, pages for kubelets and Prometheus, and the text of metrics.
"""
