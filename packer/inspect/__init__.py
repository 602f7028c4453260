"""Inspect: what is in a pack, for people: contact sheets and statistics.

contact_sheet/sheet.py and statistics/scan.py have the calls.
"""
