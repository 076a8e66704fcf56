"""The connector of vLLM, over doubles: notices of failures, incompatible engines, and reused request ids."""

from __future__ import annotations

import logging

import pytest

from agents_double import AgentsDouble, EnginePair, prompt
from kvferry.codes import Code
from kvferry.tenants import tenant_of_salt
from kvferry.vllm.agreement import Agreement
from kvferry.vllm.chunk_names import ChunkNames
from vllm_engine import Request

# No wait in these tests ends by this timeout: notices arrive at once.
LONG = 600


def decode_request(pair: EnginePair, name: str, tokens: list[int], params: dict[str, object] | None) -> int:
    """Let a decode engine compute a request; return how many tokens of its prompt it computed itself."""
    request = pair.add_decode(name, tokens, params)
    pair.decode.run(lambda: not pair.decode.requests)
    return request.computed_tokens


def test_a_prefill_that_fails_is_told_with_its_reason(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire, load_patience=LONG), prompt(1, 33)
    wire.refuse_after = 1
    assert decode_request(pair, "r", tokens, pair.run_prefill("r", tokens)) == 33 - 16
    assert wire.request_ends["r"][0] == Code.PEER_LOST
    assert "put" in wire.request_ends["r"][1]
    pair.close_all()


def test_a_request_that_was_sent_well_is_told_too(wire: AgentsDouble) -> None:
    """Otherwise a decode engine with other chunk names would wait for its own names."""
    pair, tokens = EnginePair(wire, load_patience=LONG), prompt(1, 33)
    params = pair.run_prefill("r", tokens)
    assert decode_request(pair, "r", [7, *tokens[1:]], params) == 33
    assert wire.request_ends["r"] == (Code.OK, "")
    pair.close_all()


def test_notices_name_the_tenant_of_a_request(wire: AgentsDouble) -> None:
    """Agents keep requests of two tenants with one id apart."""
    pair, tokens = EnginePair(wire, load_patience=LONG), prompt(1, 33)
    pair.run_prefill("sent", tokens, cache_salt="salt-of-a")
    wire.refuse_after = 0
    pair.run_prefill("failed", prompt(2, 33), cache_salt="salt-of-a")
    pair.prefill.run(lambda: {"sent", "failed"} <= set(wire.request_ends))
    gone = pair.decode.add(
        Request(
            "gone-0b",
            prompt(3, 33),
            {**pair.transfer_params("gone"), "do_remote_prefill": True},
            cache_salt="salt-of-a",
        )
    )
    pair.decode.step(finish=False)
    pair.decode.abort(gone)
    pair.decode.run(lambda: "gone" in wire.abandoned_requests)
    assert wire.named_tenants == {name: {tenant_of_salt("salt-of-a")} for name in ("sent", "failed", "gone")}
    pair.close_all()


@pytest.mark.parametrize("first", [True, False])
def test_an_id_that_is_used_again_is_another_attempt(wire: AgentsDouble, first: bool) -> None:
    """Agents accept no more chunks of a request after its last batch. Waiters for the old name are notified."""
    pair = EnginePair(wire, load_patience=LONG)
    for i in range(3):
        tokens = prompt(i, 33)
        if first:
            assert decode_request(pair, f"r{i}", tokens, prefill_again(pair, i, tokens)) == 1
        else:
            request = pair.decode.add(
                Request(f"r{i}-0b", tokens, {**pair.transfer_params("one"), "do_remote_prefill": True})
            )
            pair.decode.step()
            prefill_again(pair, i, tokens)
            pair.decode.run(lambda: not pair.decode.requests)
            assert request.computed_tokens == (33 if i else 1)
    names = {name for name, _ in wire.request_ends.items()}
    assert "one" in names
    assert len(names) == 3
    pair.close_all()


def prefill_again(pair: EnginePair, i: int, tokens: list[int]) -> dict[str, object]:
    """Prefill a request whose id was used before."""
    request = pair.prefill.add(Request(f"r{i}-0a", tokens, pair.transfer_params("one")))
    pair.prefill.run(lambda: request.request_id not in pair.prefill.requests)
    params = pair.prefill.outputs[request.request_id]
    assert params is not None
    return params


def test_engines_that_do_not_agree_compute_at_once(wire: AgentsDouble, caplog: pytest.LogCaptureFixture) -> None:
    """Both engines log the difference once."""
    pair, tokens = EnginePair(wire, load_patience=LONG), prompt(1, 33)
    params = pair.run_prefill("r", tokens)
    params["agreement"]["model"] = "another"
    params["agreement"]["form"] = "kvferry.vllm/1"
    with caplog.at_level(logging.WARNING):
        for name in ("r", "s"):
            assert decode_request(pair, name, tokens, params) == 33
    pair.decode.run(lambda: "r" in wire.abandon_reasons)
    said = [record.getMessage() for record in caplog.records if "cannot be used here" in record.getMessage()]
    assert len(said) == 1
    for word in ("model is 'double' here and 'another' there", "form is 'kvferry.vllm/"):
        assert word in said[0]
        assert word in wire.abandon_reasons["r"]
    pair.close_all()


@pytest.mark.parametrize("theirs", [None, 3, {}, {"model": "another"}])
def test_an_engine_that_says_nothing_of_itself_is_believed(theirs: object) -> None:
    assert not Agreement(ChunkNames("m", 1, 0, "half", "l", 16), 8).find_difference(theirs)


def test_what_differs_is_named_field_by_field() -> None:
    ours = Agreement(ChunkNames("m", 2, 0, "half", "l", 16), 8, weights="a")
    same = Agreement(ChunkNames("m", 2, 1, "half", "l", 16), 8, weights="a")
    assert not ours.find_difference(same.facts)
    other = Agreement(ChunkNames("n", 2, 0, "half", "l", 32), 8)
    assert ours.find_difference(other.facts) == (
        "chunk is 16 here and 32 there, model is 'm' here and 'n' there, weights is 'a' here and unknown there"
    )


def test_a_request_that_ends_before_its_prompt_is_computed_is_told(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire, load_patience=LONG), prompt(1, 33)
    waiting = pair.add_decode("r", tokens)
    pair.decode.step()
    request = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step(finish=False)
    pair.prefill.abort(request)
    pair.prefill.run(lambda: "r" in wire.request_ends)
    pair.decode.run(lambda: not pair.decode.requests)
    assert waiting.computed_tokens == 33
    pair.close_all()
