"""Reading mirrors: the only part of the builder that talks to one.

What discovery knows of it is `ports.Mirrors`.
"""
