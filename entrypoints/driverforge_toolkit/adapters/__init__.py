"""The adapters that only this half has: NVIDIA's libraries (NVML, CUDA) and served metrics."""
