"""Inspect: contact sheets, statistics and the original files of a pack.

contact_sheet.py, statistics_scan.py and extraction.py contain the functions that commands call.
"""
