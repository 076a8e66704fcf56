"""Registers KvferryConnector with vLLM. In the wheel register is an entry point of the group vllm.general_plugins.

MultiConnector looks connectors up by name when it reports statistics, in any process.
"""

from __future__ import annotations

import contextlib

from kvferry.vllm.log import log

NAME, MODULE = "KvferryConnector", "kvferry.vllm"


def register() -> None:
    """Register the connector. vLLM calls this in each of its processes, even if the connector is not used.

    So it does not import the connector and raises nothing: the connector itself reports errors.
    """
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    except ImportError as error:
        log.debug("this vLLM has no registry of KV connectors: %s", error)
        return
    with contextlib.suppress(ValueError):  # The connector is registered already.
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)
