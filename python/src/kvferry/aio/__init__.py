"""The client for programs with an event loop. It has the methods of kvferry.Client, to be awaited; it starts no thread.

Everything of a client belongs to the loop that it was made in.
"""

from kvferry.aio.client import Client, connect
from kvferry.aio.handles import Pages, PendingCall, Prefill, PutResult, RecallResult, SharedPages

__all__ = ["Client", "Pages", "PendingCall", "Prefill", "PutResult", "RecallResult", "SharedPages", "connect"]
