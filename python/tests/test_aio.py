"""Tests of the asyncio client, against the model agent behind a real socket."""

from __future__ import annotations

import asyncio
import gc
import pathlib
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import kvferry
from kvferry import Code, Error, LostError, aio
from model_agent import INCARNATIONS, ModelAgent, execute, ignore_call
from operation_cases import CASES, PEER, PENDING_CASES, Case, answer_case, answer_code, call_entries
from stub_agent import TIMEOUT, StubAgent


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test, and check that it leaves nothing behind."""
    asyncio.run(asyncio.wait_for(main, 3 * TIMEOUT), debug=True)


async def heard(stub: StubAgent, op: str, count: int = 1) -> dict[str, Any]:
    return await asyncio.to_thread(stub.wait_for_call, op, count)


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition holds."""
    while not condition():
        await asyncio.sleep(0.001)


def methods(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    for name in ("Client", "Pages", "SharedPages", "Prefill", "PendingCall", "PutResult", "RecallResult"):
        assert methods(getattr(aio, name)) == methods(getattr(kvferry, name)), name
    tested = {case.method for case in CASES + PENDING_CASES}
    attachment = {
        "info",
        "attached",
        "epoch",
        "pool_array",
        "pool_memory",
        "pin_memory",
        "close",
        "fetch",
        "shared_fetch",
    }
    assert methods(aio.Client) == tested | attachment


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.method)
def test_what_a_method_says_and_hears(stub: StubAgent, case: Case) -> None:
    async def main() -> None:
        stub.agent.on_call = answer_case(case)
        async with await aio.connect(stub.path) as client:
            pages = await client.reserve(3)
            given = {"pages": pages} if case.takes_pages else {}
            result = await getattr(client, case.method)(**case.arguments, **given)
            assert case.inspect(result) == case.expected
            assert call_entries(await heard(stub, case.name, 2 if case.name == "reserve" else 1)) == case.message

    run(main())


@pytest.mark.parametrize("case", PENDING_CASES, ids=lambda c: c.method)
def test_what_a_method_says_at_once_and_hears_later(stub: StubAgent, case: Case) -> None:
    async def main() -> None:
        stub.agent.on_call = ignore_call
        async with await aio.connect(stub.path) as client:
            pending = getattr(client, case.method)(**case.arguments)
            call = await heard(stub, case.name)
            assert call_entries(call) == case.message
            assert not pending.done()
            with pytest.raises(kvferry.ExpiredError):
                await pending.result(0)
            stub.run_on_agent(lambda agent: agent.answer(call["id"], **case.answer))
            assert case.inspect(await pending.result(TIMEOUT)) == case.expected
            assert await pending.wait_until_unused(TIMEOUT)
            other = getattr(client, case.method)(**case.arguments)
            call = await heard(stub, case.name, 2)
            other.cancel()
            assert (await heard(stub, "abort"))["target"] == call["id"]
            stub.run_on_agent(lambda agent: agent.answer(call["id"], code=2, held=True))
            with pytest.raises(Error) as failed:
                await other.result(TIMEOUT)
            assert failed.value.code == Code.CANCELLED
            assert not await other.wait_until_unused(0)
            stub.run_on_agent(lambda agent: agent.return_memory(call["id"]))
            assert await other.wait_until_unused(TIMEOUT)

    run(main())


def test_pages_are_the_agents_memory(stub: StubAgent) -> None:
    async def main() -> None:
        async with await aio.connect(stub.path) as client:
            async with await client.reserve(2) as pages:
                pages[1].array()[:] = 7
                assert stub.page(pages[1].number) == b"\x07" * 4096
                assert client.pool_array()[pages[1].number, 9] == 7
                await pages.wait_until_unused(1.0)
            assert stub.agent.held_pages == {}
            assert not client.pin_memory().done or "torch" in sys.modules

    run(main())


def test_handles_end_with_their_blocks(stub: StubAgent) -> None:
    async def main() -> None:
        async with await aio.connect(stub.path) as client, await client.reserve(1) as pages:
            async with await client.share(["k"], pages) as shared:
                with pytest.raises(kvferry.InvalidError, match="stop_sharing"):
                    await pages.release()
            assert (await heard(stub, "withdraw"))["target"] == shared.number
            async with await client.begin_prefill(keys=["k"], request="r") as prefill:
                await prefill.save_layer(0, 256, pages)
                await prefill.preempt()
                await prefill.finish()
            async with await client.begin_prefill(keys=["k"], request="r") as prefill:
                pass
            assert (await heard(stub, "drop_prefill"))["prefill"] == prefill.number

    run(main())


def test_a_failed_put_has_its_result(stub: StubAgent) -> None:
    async def main() -> None:
        stub.agent.on_call = answer_case(Case("put", {}, {}, {"code": 4, "held": True}, lambda r: r, None))
        async with await aio.connect(stub.path) as client, await client.reserve(1) as pages:
            with pytest.raises(Error) as failed:
                await client.put(peer=PEER, keys=["k"], pages=pages)
            result = failed.value.result
            assert not await result.wait_until_unused(0)
            await result.withdraw_offer()
            put = (await heard(stub, "put"))["id"]
            stub.run_on_agent(lambda agent: agent.return_memory(put))
            assert await result.wait_until_unused(TIMEOUT)

    run(main())


@pytest.mark.parametrize("code", [Code.TOO_MANY, Code.INVALID])
def test_what_is_not_given_back_yet_may_be_given_back_again(stub: StubAgent, code: Code) -> None:
    async def main() -> None:
        async with await aio.connect(stub.path) as client:
            pages = await client.reserve(1)
            shared = await client.share(["k"], pages)
            prefill = await client.begin_prefill(keys=["k"], request="r")
            stub.agent.on_call = answer_code("finish_prefill", code)
            with pytest.raises(Error):
                await prefill.finish()
            assert not prefill.released
            for handle, op, back in (
                (shared, "withdraw", shared.stop_sharing),
                (pages, "release", pages.release),
                (prefill, "drop_prefill", prefill.abort),
            ):
                for _ in range(2):
                    stub.agent.on_call = answer_code(op, code)
                    with pytest.raises(Error) as failed:
                        await back()
                    assert failed.value.code == code
                    assert not handle.released
                stub.agent.on_call = answer_code(op, Code.NOT_FOUND)
                await back()
                assert handle.released
            pages = await client.reserve(1)
            with pytest.raises(kvferry.InvalidError):
                await pages.release(-1)
            assert not pages.released
            await pages.release()

    run(main())


def test_a_call_on_which_the_agent_hangs_up_holds_nobody_up(stub: StubAgent) -> None:
    async def main() -> None:
        stub.agent.on_call = ignore_call
        async with await aio.connect(stub.path) as client:
            pending = client.lend_blocks(request="r", blocks=[kvferry.Blocks([1])])
            for count in (1, 2, 3):
                await heard(stub, "finished", count)
                stub.disconnect()
            with pytest.raises(LostError, match="cut 3 times"):
                await pending.result(TIMEOUT)
            assert not await pending.wait_until_unused(0)
            stub.agent.on_call = execute
            assert await client.stats() == {}
            assert client.epoch == 1
        assert await pending.wait_until_unused(TIMEOUT)

    run(main())


@pytest.mark.parametrize("awaits", [False, True])
def test_a_fetch_hands_chunks_over(stub: StubAgent, awaits: bool) -> None:
    got: list[int] = []

    async def slow(first: int, chunks: list[Any]) -> None:
        await asyncio.sleep(0)
        got.append(first + len(chunks))

    async def main() -> None:
        async with await aio.connect(stub.path) as client:
            scatter = slow if awaits else (lambda first, chunks: got.append(first + len(chunks)))
            assert await client.fetch(list("abcd"), scatter) == kvferry.Prefix(4)
            assert got == [2, 4]
            with pytest.raises(ZeroDivisionError):
                await client.fetch(list("abcd"), lambda *_: 1 // 0)  # type: ignore[arg-type]
            assert stub.agent.shown[-1][2] == Code.FAULTED

    run(main())


def test_many_tasks_over_cuts(stub: StubAgent) -> None:
    async def work(client: aio.Client, n: int) -> None:
        for i in range(20):
            async with await client.reserve(1, timeout=TIMEOUT) as pages:
                pages[0].array()[:] = n
                await client.put(peer=PEER, keys=[f"{n}-{i}"], pages=pages)
                assert stub.page(pages[0].number) == bytes([n]) * 4096

    async def main() -> None:
        async with await aio.connect(stub.path) as client:
            tasks = [asyncio.create_task(work(client, n)) for n in range(8)]
            for n in range(3):
                await heard(stub, "put", 20 * (n + 1))
                stub.disconnect()
            await asyncio.gather(*tasks)
            assert stub.agent.held_pages == {}
            assert len(stub.agent.executed) == 8 * 20 * 3
            assert client.epoch == 1

    run(main())


def test_a_restart_is_a_miss_and_no_more(stub: StubAgent) -> None:
    async def main() -> None:
        async with await aio.connect(stub.path) as client:
            pages = await client.reserve(1)
            stub.agent.on_call = ignore_call
            waits = asyncio.create_task(client.get(["k"], timeout=TIMEOUT))
            await heard(stub, "get")
            stub.agent.on_call = execute
            await asyncio.to_thread(stub.kill)
            stub.start()
            with pytest.raises(LostError):
                await waits
            while not client.attached:  # The session was over before the new agent was there.
                await asyncio.sleep(0.001)
            assert client.info.life == INCARNATIONS[1]
            with pytest.raises(LostError):
                pages[0].array()
            await pages.release()
            async with await client.reserve(1) as pages:
                pages[0].array()[:] = 3
                assert stub.page(0) == b"\x03" * 4096

    run(main())


def test_a_task_that_is_cancelled_takes_its_call_back(stub: StubAgent) -> None:
    async def main() -> None:
        stub.agent.on_call = ignore_call
        async with await aio.connect(stub.path) as client:
            waits = asyncio.create_task(client.reserve(1))
            call = await heard(stub, "reserve")
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert (await heard(stub, "abort"))["target"] == call["id"]
            stub.run_on_agent(lambda agent: agent.answer(call["id"], pages=(0,), lengths=(1,)))
            assert (await heard(stub, "release"))["target"] == call["id"]

    run(main())


def test_an_agent_that_is_stopped_holds_nobody_up(stub: StubAgent) -> None:
    async def main() -> None:
        stub.agent.on_call = ignore_call
        async with await aio.connect(stub.path, reply_margin=0.05, default_timeout=0.05) as client:
            with pytest.raises(kvferry.ExpiredError):
                await client.reserve(1)
            with pytest.raises(TimeoutError):
                await client.fetch(["k"], lambda *_: None)
            await heard(stub, "abort", 2)

    run(main())


def test_an_agent_that_stays_away_is_a_miss_at_once(stub: StubAgent) -> None:
    async def main() -> None:
        async with await aio.connect(stub.path, grace=0.05) as client:
            await asyncio.to_thread(stub.kill)
            with pytest.raises(LostError):
                await client.get(["k"], timeout=TIMEOUT)
            with pytest.raises(LostError, match="no agent"):
                await client.stats()
            stub.start()
            await until(lambda: client.attached)
            await (await client.reserve(1)).release()

    run(main())


def test_nobody_is_there(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        with pytest.raises(Error, match="start kvferry agent") as failed:
            await aio.connect(tmp_path / "none", timeout=0.05)
        assert failed.value.code == Code.UNREACHABLE

    run(main())


def test_an_agent_that_has_no_room_says_so(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        with StubAgent(tmp_path, ModelAgent(refusal_code=8)) as stub, pytest.raises(Error, match="no room"):
            await aio.connect(stub.path)

    run(main())


def test_what_outlives_its_loop_is_given_back_with_its_client(stub: StubAgent) -> None:
    kept: list[aio.Client | aio.Pages] = []

    async def main() -> None:
        kept.append(await aio.connect(stub.path))
        assert isinstance(kept[0], aio.Client)
        kept.append(await kept[0].reserve(1))
        stub.agent.on_call = ignore_call
        kept[0].lend_blocks(request="r", blocks=[])  # Never answered.
        await heard(stub, "finished")
        stub.agent.on_call = execute

    run(main())
    assert stub.agent.held_pages
    with pytest.warns(ResourceWarning, match="dropped"):
        kept.clear()
        gc.collect()
    stub.wait_for(lambda agent: not agent.held_pages)


def test_what_is_forgotten_is_given_back(stub: StubAgent) -> None:
    async def main() -> None:
        client = await aio.connect(stub.path)
        pages: Any = await client.reserve(1)
        number = pages.number
        with pytest.warns(ResourceWarning, match="pages were dropped"):
            del pages
            gc.collect()
        assert (await heard(stub, "release"))["target"] == number
        with pytest.warns(ResourceWarning, match="client was dropped"):
            del client
            gc.collect()
        await asyncio.to_thread(stub.wait_for, lambda agent: not agent.connected)

    run(main())


def test_a_closed_client_serves_nobody(stub: StubAgent) -> None:
    async def main() -> None:
        stub.agent.on_call = ignore_call
        client = await aio.connect(stub.path)
        waits = asyncio.create_task(client.get(["k"], timeout=TIMEOUT))
        await heard(stub, "get")
        await client.close()
        await client.close()
        with pytest.raises(kvferry.ClosedError):
            await waits
        with pytest.raises(kvferry.ClosedError):
            await client.stats()

    run(main())
    assert not [t for t in threading.enumerate() if t.name == "kvferry"]
