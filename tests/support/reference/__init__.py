"""The pages of docs/reference, from the code: commands, settings, values of the charts, messages.

`make reference` writes them.
"""
