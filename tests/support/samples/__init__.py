"""Inputs made by hand or by a rule: repositories, locks, small drivers, configurations of real nodes."""
