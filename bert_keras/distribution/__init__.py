"""Devices, replicas, and sums over replicas.

Read `strategy` first, then `replicas` and `summed_update`.
"""
