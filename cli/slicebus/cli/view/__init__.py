"""Serves what the commands show as pages, to one user's browser.

It writes nothing, and it decides nothing: every figure comes from the functions whose results the commands print.
"""
