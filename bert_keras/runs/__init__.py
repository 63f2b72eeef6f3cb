"""Support for long commands: progress, stop signals, run folders, the machine.

Read `progress` first, then `run_folder` and `stop_signal`.
"""
