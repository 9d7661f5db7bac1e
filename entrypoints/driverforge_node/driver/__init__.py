"""The kernel driver: facts, plan, steps, and the loop that looks again after each stretch."""
