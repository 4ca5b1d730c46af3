"""Adapters: the ports on real servers (``kafka``, ``postgres``, ``blobs``, ``system``), and all of them in ``memory``.

Threads and sockets live here and nowhere else.
"""
