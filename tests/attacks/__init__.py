"""Attacks on a running server: ``victim`` starts it as one user, ``cases`` has one function per attack.

``campaign`` runs them, for ``scripts/attacks.py`` and for the short form in the suite.
"""
