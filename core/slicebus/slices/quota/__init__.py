"""Quota: the queues and cohorts that have it, the tree that they form, and the ledger of who holds how much.

Nothing here decides who gets any: that is `slicebus.slices.admission`.
"""
