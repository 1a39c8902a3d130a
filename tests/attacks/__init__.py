"""Attacks on a running server: ``victim`` starts it as one user, ``cases`` names one function per attack.

``strangers``, ``commands``, ``outages`` and ``crowds`` have the functions, ``requests`` what they ask of a server.
``campaign`` runs them, for ``scripts/attacks.py`` and for the short form in the suite.
"""
