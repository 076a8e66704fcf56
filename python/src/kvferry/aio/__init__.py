"""The client for asyncio. It has the methods of kvferry.Client as coroutines, and starts no thread.

A client and its handles belong to the event loop in which the client was created.
"""

from kvferry.aio.client import Client, connect
from kvferry.aio.handles import Pages, PendingCall, Prefill, PutResult, RecallResult, SharedPages

__all__ = ["Client", "Pages", "PendingCall", "Prefill", "PutResult", "RecallResult", "SharedPages", "connect"]
