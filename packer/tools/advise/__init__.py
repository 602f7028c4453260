"""Advise: which way to pack a source, judged by trials with a few of its samples on this machine.

recommendation.py has the call: `advise`.
"""
