"""Runner programs that misbehave: each is a real module that a runners.yml of a test can name.

They are safe to start by hand: none writes a file, and what they leave running ends by itself.
"""
