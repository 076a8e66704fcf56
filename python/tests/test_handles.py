"""Tests of handles of the threaded client, and of their release."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvferry
from kvferry import Code, Error
from model_agent import ignore_call
from operation_cases import PEER, Case, answer_case, answer_code, call_entries
from stub_agent import TIMEOUT, StubAgent


def test_pages_are_the_agents_memory(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, name="engine 0") as client:
        assert client.attached
        assert client.info.page_bytes == 4096
        with client.reserve(2) as pages:
            assert len(pages) == 2
            assert [page.index for page in pages] == [0, 1]
            pages[0].array()[:] = 7
            view = pages[-1].array(np.float32, (2, 3))
            view[1] = (1, 2, 3)
            assert stub.page(pages[0].number) == b"\x07" * 4096
            assert stub.page(pages[1].number, 24) == view.tobytes()
            assert client.pool_array()[pages.numbers[0], 5] == 7
            with pytest.raises(IndexError):
                pages[2]
            with pytest.raises(kvferry.InvalidError, match="4100 bytes"):
                pages[0].array(np.float32, (1025,))
        assert pages.released
        with pytest.raises(kvferry.InvalidError, match="released"):
            pages[0].array()
        with pytest.raises(kvferry.MissingError, match="released before; call release once, or use a with"):
            pages.release()
        assert stub.agent.held_pages == {}
    assert stub.agent.received[0]["name"] == "engine 0"


def test_what_a_get_gives_is_only_to_be_read(stub: StubAgent) -> None:
    case = Case("get", {}, {}, {"pages": (5,), "lengths": (10,)}, lambda r: r, None)
    stub.agent.on_call = answer_case(case)
    stub.fill(5, b"0123456789abc")
    with kvferry.connect(stub.path) as client, client.get(["k"]) as pages:
        pages.require_all()
        view = pages[0].array()
        assert view.tobytes() == b"0123456789"
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


def test_what_things_say_of_themselves(stub: StubAgent) -> None:
    client = kvferry.connect(stub.path)
    assert repr(client) == f"<kvferry.Client: attached to {stub.path}, 64 pages of 4096 bytes, sides none>"
    pages = client.reserve(6)
    assert repr(pages) == "<kvferry.Pages: 6 pages (0, 1, 2, 3, ...), writable, held>"
    assert repr(pages[-1]) == "<kvferry.Page: 5 of 6, page 5 of the pool, 4096 bytes>"
    shared, prefill = client.share(["k"], pages), client.begin_prefill(keys=["k"], request="r")
    assert [repr(shared), repr(prefill)] == [
        "<kvferry.SharedPages: 0 chunks, held>",
        "<kvferry.Prefill: of request 'r', held>",
    ]
    stub.agent.on_call = answer_case(Case("put", {}, {}, {"sent": 1, "held": True}, lambda r: r, None))
    put = client.put(peer=PEER, keys=["k"], pages=pages)
    assert repr(put) == "<kvferry.PutResult: 1 sent, 0 skipped, its pages may still be read>"
    stub.agent.on_call = answer_case(Case("recall", {}, {}, {"code": 21, "remedy": "compute it"}, lambda r: r, None))
    recall = client.recall(peer=PEER, keys=["k"], pages=pages)
    assert repr(recall) == f"<kvferry.RecallResult: 0 chunks, its pages are unused, shortfall: {recall.shortfall}>"
    stub.agent.on_call = ignore_call
    pending = client.lend_blocks(request="r", blocks=[])
    assert repr(pending) == "<kvferry.PendingCall: finished, in progress>"
    client.close()
    assert repr(client) == f"<kvferry.Client: of {stub.path}, closed>"
    assert repr(pages) == "<kvferry.Pages: 6 pages (0, 1, 2, 3, ...), writable, void>"


@pytest.mark.parametrize("op", ["put", "get", "store", "share", "recall", "contains", "register"])
def test_a_text_is_no_list_of_texts(stub: StubAgent, op: str) -> None:
    """A text is a sequence of its characters, which is never intended."""
    with kvferry.connect(stub.path) as client, client.reserve(4) as pages:
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: client.put(peer=PEER, keys="text", pages=pages),
            "get": lambda: client.get("text"),
            "store": lambda: client.store("text", pages),
            "share": lambda: client.share("text", pages),
            "recall": lambda: client.recall(peer=PEER, keys="text", pages=pages),
            "contains": lambda: client.contains("text"),
            "register": lambda: client.register_blocks(request="r", producers="text", blocks=[]),  # type: ignore[arg-type]
        }
        field = "producers" if op == "register" else "keys"
        with pytest.raises(
            kvferry.InvalidError, match=rf"{field} is 'text', want a list; put it into a list: {field}=\["
        ):
            calls[op]()
        assert all(m.get("op") in (None, "reserve") for m in stub.agent.received)


def test_the_package_says_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", kvferry.__version__)


def test_a_prefix_says_why_it_is_one(stub: StubAgent) -> None:
    why = {"code": 21, "count": 1, "field": "retention", "remedy": "compute from it on", "stage": "memory"}
    stub.agent.on_call = answer_case(Case("get", {}, {}, why, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.get(["k"]) as pages:
        assert len(pages) == 0
        with pytest.raises(kvferry.MissingError, match="compute from it on") as failed:
            pages.require_all()
        assert failed.value.stage == "memory"
        stub.agent.on_call = answer_case(Case("get", {}, {}, {"code": 14, "field": "keys"}, lambda r: r, None))
        with pytest.raises(kvferry.InvalidError):
            client.get(["k"])


def test_torch_is_needed_for_tensors_alone(stub: StubAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(ImportError):
            pages[0].tensor()
        assert not client.pin_memory().done

        class Tensor:
            """The members of a tensor that are used."""

            def __init__(self, array: Any) -> None:
                self.array = array

            def view(self, dtype: Any) -> Tensor:
                return Tensor(self.array.view(dtype.name))

            def reshape(self, shape: tuple[int, ...]) -> Tensor:
                return Tensor(self.array.reshape(shape))

            def __getitem__(self, part: slice) -> Tensor:
                return Tensor(self.array[part])

        half = types.SimpleNamespace(itemsize=2, name="float16")
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(from_numpy=Tensor))
        pages[0].tensor(half, (2, 2)).array[1, 1] = 1.0
        assert pages[0].array(np.float16)[3] == 1.0
        assert pages[0].tensor().array.nbytes == 4096


def test_a_failed_put_has_its_result(stub: StubAgent) -> None:
    stub.agent.on_call = answer_case(Case("put", {}, {}, {"code": 4, "held": True, "peer": "h:1"}, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        with pytest.raises(Error, match="h:1") as failed:
            client.put(peer=PEER, keys=["k"], pages=pages)
        assert type(failed.value) is Error  # The peer is lost, not the agent.
        assert not pages.void
        result = failed.value.result
        assert result.in_use
        assert not result.wait_until_unused(0)
        result.withdraw_offer()
        put = stub.wait_for_call("put")["id"]
        assert stub.wait_for_call("take_back")["target"] == put
        stub.run_on_agent(lambda agent: agent.return_memory(put))
        assert result.wait_until_unused(TIMEOUT)
        pages.wait_until_unused(1.0)
        assert call_entries(stub.wait_for_call("await_return")) == {"target": pages.number, "patience_ns": 10**9}


def test_pages_that_are_still_read_go_back_by_themselves(stub: StubAgent, caplog: pytest.LogCaptureFixture) -> None:
    with kvferry.connect(stub.path, reply_margin=0.05, default_timeout=0.05) as client:
        three = [client.reserve(1) for _ in range(3)]
        stub.agent.on_call = ignore_call
        with pytest.raises(kvferry.ExpiredError):
            three[0].release(0.01)
        three[1].release(0)
        with three[2]:
            pass
        assert "release: expired" in caplog.text
        assert {stub.wait_for_call("release", n + 1)["target"] for n in range(3)} == {pages.number for pages in three}
        assert not [m for m in stub.agent.received if m.get("op") == "abort"]


def test_a_withdraw_that_had_no_answer_may_come_again(stub: StubAgent) -> None:
    with kvferry.connect(stub.path, reply_margin=0.05) as client, client.reserve(1) as pages:
        shared = client.share(["k"], pages)
        stub.agent.on_call = ignore_call
        with pytest.raises(kvferry.ExpiredError):
            shared.stop_sharing(0.01)
        assert not shared.released
        stub.agent.on_call = answer_case(Case("withdraw", {}, {}, {"code": 13}, lambda r: r, None))
        shared.stop_sharing(1.0)
        assert shared.released


@pytest.mark.parametrize("code", [Code.TOO_MANY, Code.INVALID])
def test_what_is_not_given_back_yet_may_be_given_back_again(stub: StubAgent, code: Code) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        shared = client.share(["k"], pages)
        for handle, op, back in (
            (shared, "withdraw", shared.stop_sharing),
            (pages, "release", pages.release),
            (prefill := client.begin_prefill(keys=["k"], request="r"), "drop_prefill", prefill.abort),
        ):
            for _ in range(2):
                stub.agent.on_call = answer_code(op, code)
                with pytest.raises(Error) as failed:
                    back()
                assert failed.value.code == code
                assert not handle.released
            # The earlier release has ended.
            stub.agent.on_call = answer_code(op, Code.NOT_FOUND)
            back()
            assert handle.released


@pytest.mark.parametrize("code", [Code.TOO_MANY, Code.INVALID])
def test_a_prefill_that_did_not_finish_stands(stub: StubAgent, code: Code) -> None:
    with kvferry.connect(stub.path) as client:
        prefill = client.begin_prefill(keys=["k"], request="r")
        stub.agent.on_call = answer_code("finish_prefill", code)
        with pytest.raises(Error):
            prefill.finish()
        assert not prefill.released
        stub.agent.on_call = answer_code("finish_prefill", Code.NOT_FOUND)
        with pytest.raises(kvferry.MissingError):
            prefill.finish()
        assert prefill.released


def test_a_release_that_cannot_be_made_releases_nothing(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(1) as pages:
        with pytest.raises(kvferry.InvalidError):
            pages.release(-1)
        assert not pages.released


def test_stored_pages_are_the_caches(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(3) as pages:
        client.store(["a"], pages, 1)
        pages[0].array()
        with pytest.raises(kvferry.InvalidError, match="stored"):
            pages[1].array()
        with pytest.raises(kvferry.InvalidError, match="stored"):
            client.share(["a", "b"], pages)
        stub.agent.on_call = answer_case(Case("store", {}, {}, {"code": 8, "count": 1}, lambda r: r, None))
        with pytest.raises(Error):
            client.store(["b"], pages, 2)
        pages[2].array()


def test_shared_pages_are_withdrawn_before_they_are_released(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client:
        pages = client.reserve(1)
        with client.share(["a"], pages) as shared:
            with pytest.raises(kvferry.InvalidError, match="stop_sharing"):
                pages.release()
            assert not pages.released
        assert stub.wait_for_call("withdraw")["target"] == shared.number
        pages.release()


def test_a_prefill_goes_layer_by_layer(stub: StubAgent) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(2) as pages:
        with client.begin_prefill(keys=["a"], request="r", peer=PEER) as prefill:
            prefill.save_layer(1, 256, pages)
            saved = stub.wait_for_call("save_layer")
            assert call_entries(saved) == {"prefill": prefill.number, "target": pages.number, "layer": 1, "tokens": 256}
            prefill.preempt()
            assert call_entries(stub.wait_for_call("preempt_prefill")) == {"prefill": prefill.number}
            assert not prefill.finish(2.0).in_use
            assert call_entries(stub.wait_for_call("finish_prefill")) == {
                "prefill": prefill.number,
                "patience_ns": 2 * 10**9,
            }
        with client.begin_prefill(keys=["a"], request="r") as prefill:
            pass
        assert call_entries(stub.wait_for_call("drop_prefill")) == {"prefill": prefill.number}


def test_a_prefill_is_dropped_without_a_wait(stub: StubAgent) -> None:
    """Also with an agent that does not answer."""
    with kvferry.connect(stub.path) as client:
        prefill = client.begin_prefill(keys=["a"], request="r")
        stub.agent.on_call = ignore_call
        prefill.abort(wait=False)
        assert prefill.released
        assert call_entries(stub.wait_for_call("drop_prefill")) == {"prefill": prefill.number}
        stub.agent.on_call = None


def test_a_save_that_nobody_waits_for_fails_later(stub: StubAgent) -> None:
    stub.agent.on_call = answer_case(Case("save_layer", {}, {}, {"code": 8}, lambda r: r, None))
    with kvferry.connect(stub.path) as client, client.begin_prefill(keys=["a"], request="r") as prefill:
        prefill.save_layer(0, 256, wait=False)
        client.stats()  # All earlier replies are known now.
        with pytest.raises(Error) as failed:
            prefill.save_layer(0, 512, wait=False)
        assert failed.value.code == Code.TOO_MANY
        prefill.finish()


@pytest.mark.parametrize(
    ("said", "call"),
    [
        (r"peer is \('h', 1, 2\), want a kvferry.Peer; give a kvferry.Peer, such as", {"peer": ("h", 1, 2)}),
        (r"timeout is '5', want seconds, 0 or more; give a time", {"timeout": "5"}),
        (r"timeout is True, want seconds", {"timeout": True}),
        (
            r"keys is 5, from page 0 on, want 1 to 4 of the handle's 4 pages; each key needs a page",
            {"keys": list("abcde")},
        ),
        (r"keys is 2, from page 3 on, want 1 to 1 of the handle's 4 pages", {"first_page": 3}),
        (r"first_page is 9, want 0 to 3; it is the index of the first key's page in the handle", {"first_page": 9}),
        (r"first_page is -1, want 0 to 3", {"first_page": -1}),
        (r"keys is 0, from page 0 on, want 1 to 4", {"keys": []}),
    ],
)
def test_a_put_that_cannot_be_made_is_said_by_its_fields(stub: StubAgent, said: str, call: dict[str, Any]) -> None:
    with kvferry.connect(stub.path) as client, client.reserve(4) as pages:
        with pytest.raises(kvferry.InvalidError, match=said):
            client.put(**{"peer": PEER, "keys": ["a", "b"], "pages": pages, **call})
        assert all(m.get("op") in (None, "reserve") for m in stub.agent.received)


def test_a_type_that_numpy_lacks_is_said(stub: StubAgent) -> None:
    """The dtype of a layout is often bfloat16, which numpy does not have."""
    with (
        kvferry.connect(stub.path) as client,
        client.reserve(1) as pages,
        pytest.raises(kvferry.InvalidError, match=r"dtype is 'bfloat16', want a type of numpy; .*\"uint16\""),
    ):
        pages[0].array("bfloat16")
