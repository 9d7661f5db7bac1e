"""The adapters of the ports that only this half has: NVIDIA's libraries for management and for CUDA."""
