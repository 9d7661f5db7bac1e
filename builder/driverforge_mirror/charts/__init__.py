"""NVIDIA's Helm chart and ours, as far as images go, and the values that somebody gives them."""
