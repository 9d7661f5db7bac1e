"""Steps towards a wanted state, and the loop that takes them. This room knows nothing of NVIDIA.

`outcomes` says what a plan is made of: a stretch of steps, or done, or blocked. `loop` observes, plans,
applies one stretch, proves each step of it, and observes again: facts appear on the way that no plan could
know before.
"""
