"""What others wrote: recorded cases of NVIDIA's programs, these programs, and NVIDIA's modules and images."""
