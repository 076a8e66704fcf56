"""Names KvferryConnector to vLLM. The wheel has register as an entry point of the group vllm.general_plugins.

MultiConnector looks connectors up by their names alone when it reports statistics, in whichever process that is.
"""

from __future__ import annotations

import contextlib

from kvferry.vllm.log import log

NAME, MODULE = "KvferryConnector", "kvferry.vllm"


def register() -> None:
    """Register the connector. vLLM calls this in each of its processes, be it that nobody uses the connector.

    So it imports nothing of the connector, and raises nothing: what is wrong is said by the connector itself.
    """
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    except ImportError as error:
        log.debug("this vLLM has no registry of KV connectors: %s", error)
        return
    with contextlib.suppress(ValueError):  # It was registered before.
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)
