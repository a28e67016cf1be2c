"""Runs that begin at once: forked from a process that has imports and definitions loaded.

::

    daemon ──socket pair──> warm process ──fork──> run ──┐
                            (server.py)              └fork (steps.py)──> step, step, …

The warm process is a fresh interpreter, never a fork of the daemon: it has one thread, and neither a channel nor an
open database, so that what is forked from it is sound. Runs end with it, steps with their run, and it with the daemon.
"""
