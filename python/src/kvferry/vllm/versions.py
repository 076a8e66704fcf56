"""The tested releases of vLLM, and the members that the connector needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvferry.vllm.log import log
from kvferry.vllm.settings import unsupported_error

if TYPE_CHECKING:
    from collections.abc import Mapping

# The first and the last tested release, and how they were tested.
OLDEST_TESTED, NEWEST_TESTED = (0, 31), (0, 33)
TESTED = "0.31 and 0.32, and the code of 0.33 on the kernels of 0.32, as engines on a CPU"
REMEDY = "install a tested release of vLLM"

# The members that are used of each class of vLLM. A release without one of them has another interface.
REQUIRED_MEMBERS = {
    "KVConnectorBase_V1": (
        "bind_connector_metadata",
        "build_connector_worker_meta",
        "build_kv_connector_stats",
        "build_prom_metrics",
        "get_block_ids_with_load_errors",
        "get_finished",
        "handle_preemptions",
        "reset_cache",
        "update_connector_output",
        "wait_for_save",
    ),
    "KVConnectorOutput": ("finished_recving", "kv_connector_worker_meta"),
    "SchedulerOutput": (
        "has_sync_kv_loads",
        "kv_connector_block_state",
        "num_scheduled_tokens",
        "preempted_req_ids",
    ),
}


def check_version(version: str, classes: Mapping[str, Any]) -> None:
    """Refuse a vLLM whose classes lack needed members, and warn of a release that was not tested."""
    for name, needed in REQUIRED_MEMBERS.items():
        has = {*dir(classes[name]), *getattr(classes[name], "__dataclass_fields__", ())}
        for member in needed:
            if member not in has:
                raise unsupported_error("vLLM", f"{version}, whose {name} has no {member}", TESTED, REMEDY)
    if not is_tested(version):
        log.warning("kvferry was not tested with vLLM %s, but with %s", version, TESTED)


def is_tested(version: str) -> bool:
    """Report whether a release was tested, by the first two numbers of its version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and OLDEST_TESTED <= (int(found[1]), int(found[2])) <= NEWEST_TESTED


def import_failure(error: ImportError) -> Exception:
    """Return the error of a vLLM that lacks whole modules; the given error if vLLM is not installed."""
    try:
        import vllm
    except ImportError:
        return error
    return unsupported_error("vLLM", f"{getattr(vllm, '__version__', 'unknown')}: {error}", TESTED, REMEDY)
