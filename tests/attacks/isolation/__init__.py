"""Attacks of a command on what is outside its isolation, each at every level.

``program`` has the attacks and runs inside, as a command in a workspace. ``victims`` starts the server, the other
session and everything else that is attacked, and looks at it afterwards. ``table`` has the results that are promised.
"""
