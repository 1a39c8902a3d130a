"""Attacks on a running server: ``target`` starts it as one user, ``cases`` names one function per attack.

``unauthenticated``, ``commands``, ``outages`` and ``crashes_and_load`` have the functions, ``requests`` what they send
to the server. ``campaign`` runs them, for ``scripts/attacks.py`` and for the short form in the suite.
"""
