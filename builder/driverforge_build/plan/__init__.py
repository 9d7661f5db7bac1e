"""The plan: each cell with its verdict.

`rows` are the values, `text` is what people and programs read, `evidence` is all that is known about one
cell.
"""
