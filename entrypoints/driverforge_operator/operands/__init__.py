"""What is deployed: a manifest an operand, which reads like the objects it becomes, and a row of facts.

Adding an operand is one file in `manifests/` and one row in `table.py`.
"""
