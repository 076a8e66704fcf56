package attach

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// What a decode node still has comes back into pages of the prefill engine's.
func TestRecall(t *testing.T) {
	from, to := newRig(t, "sender", "pd_bidirectional: true"), newRig(t, "receiver", "pd_bidirectional: true",
		"pd_peer_query_port: 7500")
	a := from.attach()
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: 2})
	for i, page := range got.Pages {
		fill(a.page(page), byte(i+1))
	}
	want := bytes.Clone(a.page(got.Pages[1]))
	a.ok(protocol.CallPut, from.withKeys(to.peer(protocol.EngineCall{Target: got.ID, Request: []byte("r"),
		Last: true}), 2))
	for _, page := range got.Pages {
		clear(a.page(page))
	}
	back := a.call(protocol.CallRecall, from.withKeys(to.peer(protocol.EngineCall{Op: []byte("recall"), Target: got.ID,
		Request: []byte("r"), PatienceNS: patience}), 2))
	if back.Code != 0 || back.Hits != 2 || back.Pages[1] != got.Pages[1] || !bytes.Equal(a.page(back.Pages[1]), want) {
		t.Errorf("%d came back: %s", back.Hits, said(back))
	}
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
}

// Pages that an engine reserves count for the tenant of the key that it names, if the agent says that it limits tenants.
func TestReserveForTenants(t *testing.T) {
	if other := newRig(t, "sender").attach(); other.told.Tenants {
		t.Error("an agent without a limit says that it limits tenants")
	}
	a := newRigOf(t, "sender", "1MiB", "layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}\n"+
		"    tenant_share_pct: 50").attach()
	if !a.told.Tenants {
		t.Fatal("the agent does not say that it limits tenants")
	}
	reserve := func(tenant uint64, count uint32) protocol.EngineCall {
		return protocol.EngineCall{Count: count, Keys: [][]byte{protocol.AppendTenant(keys(1)[0], tenant)}, PatienceNS: 50e6}
	}
	half := a.told.Pages / 2
	large := a.ok(protocol.CallReserve, reserve(0xA, half))
	other := a.ok(protocol.CallReserve, reserve(0xB, 1))
	call := reserve(0xA, 1)
	call.Op = []byte("reserve")
	if got := a.call(protocol.CallReserve, call); got.Code != uint32(effects.NoMemory) || !strings.Contains(said(got), "tenant_share_pct") {
		t.Errorf("a reserve beyond the share ends as %d: %s", got.Code, said(got))
	}
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: other.ID})
	more := a.ok(protocol.CallReserve, reserve(0xA, 1)) // The tenant is alone.
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: more.ID})
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: large.ID})
}

// The end of a request of one tenant ends no get of another tenant under the same id, and a text that names no tenant is
// refused.
func TestEndOfATenant(t *testing.T) {
	from, to := newRig(t, "sender"), newRig(t, "receiver")
	a, b := from.attach(), to.attach()
	end := func(tenant string) *protocol.EngineAnswer {
		return a.call(protocol.CallEnd, to.peer(protocol.EngineCall{Op: []byte("end"), Request: []byte("r"),
			Code: uint32(effects.NoMemory), PatienceNS: patience, Tenant: []byte(tenant)}))
	}
	if got := end("salt"); got.Code != uint32(effects.Invalid) || !strings.Contains(said(got), "tenant") {
		t.Errorf("a tenant that is none ends as %d: %s", got.Code, said(got))
	}
	if got := end("000000000000000b"); got.Code != 0 {
		t.Errorf("it ends as %d: %s", got.Code, said(got))
	}
	wait := b.begin(protocol.CallGet, protocol.EngineCall{Keys: [][]byte{protocol.AppendTenant(keys(1)[0], 0xA)},
		Request: []byte("r"), PatienceNS: patience})
	if got := end("000000000000000a"); got.Code != 0 {
		t.Errorf("it ends as %d: %s", got.Code, said(got))
	}
	if got := b.answer(wait); effects.Code(got.Code) != effects.SenderFailed {
		t.Errorf("the get ends as %d: %s", got.Code, said(got))
	}
}

// An engine says how a request ended, and another one that waits for it hears so.
func TestEnd(t *testing.T) {
	from, to := newRig(t, "sender"), newRig(t, "receiver")
	a, b := from.attach(), to.attach()
	wait := b.begin(protocol.CallGet, protocol.EngineCall{Keys: keys(1), Request: []byte("r"), PatienceNS: patience})
	a.ok(protocol.CallEnd, to.peer(protocol.EngineCall{Request: []byte("r"), Code: uint32(effects.NoMemory),
		Reason: []byte("no pages"), PatienceNS: patience}))
	if end := b.answer(wait); effects.Code(end.Code) != effects.SenderFailed || string(end.Said) != "no pages" {
		t.Error(said(end))
	}
	b.ok(protocol.CallAbandon, protocol.EngineCall{Request: []byte("r"), Reason: []byte("other names")})
	if end := a.call(protocol.CallEnd, protocol.EngineCall{Request: []byte("s")}); effects.Code(end.Code) !=
		effects.Invalid {
		t.Error(said(end))
	}
}

// A request goes layer by layer, is preempted, and ends; another is dropped.
func TestPrefill(t *testing.T) {
	const layout = "layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}\n    peer_share_pct: 100"
	from, to := newRigOf(t, "sender", "1MiB", layout, "use_layerwise: true"), newRigOf(t, "receiver", "1MiB", layout,
		"use_layerwise: true")
	a, b := from.attach(), to.attach()
	if a.told.Layers != 2 {
		t.Fatalf("%d layers", a.told.Layers)
	}
	const chunks, tokens = 2, 32
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: chunks * 2})
	for i, page := range got.Pages {
		fill(a.page(page), byte(i+1))
	}
	run := a.ok(protocol.CallBeginPrefill, from.withKeys(to.peer(protocol.EngineCall{Request: []byte("r")}), chunks))
	if again := a.call(protocol.CallSaveLayer, protocol.EngineCall{Prefill: got.ID}); effects.Code(again.Code) !=
		effects.NotFound {
		t.Errorf("pages are taken for a prefill: %s", said(again))
	}
	a.ok(protocol.CallSaveLayer, protocol.EngineCall{Prefill: run.ID, Target: got.ID, Tokens: tokens})
	a.ok(protocol.CallPreemptPrefill, protocol.EngineCall{Prefill: run.ID})
	for layer := range uint32(2) {
		a.ok(protocol.CallSaveLayer, protocol.EngineCall{Prefill: run.ID, Target: got.ID, Layer: layer, Tokens: tokens})
	}
	end := a.ok(protocol.CallFinishPrefill, protocol.EngineCall{Prefill: run.ID, PatienceNS: patience})
	if end.Held {
		a.returned(end.ID)
	}
	here := b.ok(protocol.CallGet, protocol.EngineCall{Keys: keys(chunks), Request: []byte("r"), Layered: true,
		PatienceNS: patience})
	for i, page := range here.Pages {
		if !bytes.Equal(b.page(page)[:here.Lengths[i]], a.page(got.Pages[i])[:here.Lengths[i]]) {
			t.Errorf("page %d is another", i)
		}
	}
	if len(here.Pages) != chunks*2 {
		t.Errorf("%d pages", len(here.Pages))
	}
	a.ok(protocol.CallAwaitReturn, protocol.EngineCall{Target: got.ID, PatienceNS: patience})
	dropped := a.ok(protocol.CallBeginPrefill, from.withKeys(to.peer(protocol.EngineCall{Request: []byte("s")}), 1))
	a.ok(protocol.CallDropPrefill, protocol.EngineCall{Prefill: dropped.ID})
	if again := a.call(protocol.CallDropPrefill, protocol.EngineCall{Prefill: run.ID}); effects.Code(again.Code) !=
		effects.NotFound {
		t.Errorf("a prefill that has ended is dropped: %s", said(again))
	}
	b.ok(protocol.CallAbandon, protocol.EngineCall{Request: []byte("r")})
	b.ok(protocol.CallRelease, protocol.EngineCall{Target: here.ID})
	a.ok(protocol.CallBeginPrefill, from.withKeys(to.peer(protocol.EngineCall{Request: []byte("u")}), 1)) // Left open.
	a.ok(protocol.CallDetach, protocol.EngineCall{})
	b.ok(protocol.CallDetach, protocol.EngineCall{})
	from.quiet()
	to.quiet()
	if n := from.node.Stats().Layers; n != 0 {
		t.Errorf("%d prefills are left of an engine that has detached", n)
	}
}

// A prefill that was forgotten is over for its engine; one of the same name, which another has begun since, goes on.
func TestAPrefillIsNoOtherOfItsName(t *testing.T) {
	const layout = "layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}\n    peer_share_pct: 100\n" +
		"    layerwise: {run_ttl: 1}"
	from, to := newRigOf(t, "sender", "1MiB", layout, "use_layerwise: true"), newRigOf(t, "receiver", "1MiB", layout,
		"use_layerwise: true")
	a, b := from.attach(), from.attach()
	begin := from.withKeys(to.peer(protocol.EngineCall{Request: []byte("r")}), 1)
	var former []*protocol.EngineAnswer
	for range 2 {
		former = append(former, begunAnew(a, begin)) // The second waits for the first one's end.
	}
	second := begunAnew(b, begin)
	for _, run := range former {
		end := a.call(protocol.CallFinishPrefill, protocol.EngineCall{Prefill: run.ID, PatienceNS: patience})
		if effects.Code(end.Code) != effects.NotFound {
			t.Errorf("a prefill that is forgotten ends as %s", said(end))
		}
	}
	a.ok(protocol.CallDetach, protocol.EngineCall{})
	got := b.ok(protocol.CallReserve, protocol.EngineCall{Count: 2})
	for layer := range uint32(2) {
		b.ok(protocol.CallSaveLayer, protocol.EngineCall{Prefill: second.ID, Target: got.ID, Layer: layer, Tokens: 16})
	}
	end := b.ok(protocol.CallFinishPrefill, protocol.EngineCall{Prefill: second.ID, PatienceNS: patience})
	if end.Sent != 1 {
		t.Errorf("%d chunks went", end.Sent)
	}
	b.ok(protocol.CallDetach, protocol.EngineCall{})
	from.quiet()
}

// begunAnew begins a prefill as soon as a former one of its name is forgotten.
func begunAnew(c *client, begin protocol.EngineCall) *protocol.EngineAnswer {
	for {
		begin.Done = c.done()
		if run := c.call(protocol.CallBeginPrefill, begin); run.Code == 0 {
			return run
		} else if effects.Code(run.Code) != effects.Invalid {
			c.t.Fatal(said(run))
		}
	}
}

const sharerText = `enable_p2p: true
p2p_host: 127.0.0.1
p2p_init_ports: [1]
p2p_lookup_ports: [2]
%schunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  p2p_sync_get_timeout_s: 30
  p2p_lookup_timeout_s: 20
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    engine_share_pct: 100
    peer_share_pct: 100
`

// What one engine stores or shares another finds, gets and fetches.
func TestSharing(t *testing.T) {
	from := newRigFrom(t, fmt.Sprintf(sharerText, "p2p_pull_mode: true\n"))
	to := newRigFrom(t, fmt.Sprintf(sharerText, "p2p_pull_mode: true\np2p_delay_pull: true\n"))
	a, b := from.attach(), to.attach()
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: 4})
	for i, page := range got.Pages {
		fill(a.page(page), byte(i+1))
	}
	names := keys(4)
	a.ok(protocol.CallStore, protocol.EngineCall{Target: got.ID, Keys: names[:2]})
	shared := a.ok(protocol.CallShare, protocol.EngineCall{Target: got.ID, First: 2, Keys: names[2:]})
	if shared.Hits != 2 {
		t.Errorf("%d are shared", shared.Hits)
	}
	if found := a.call(protocol.CallLookup, protocol.EngineCall{Keys: names}); effects.Code(found.Code) !=
		effects.Unsupported || string(found.Field) != "controller_reply_url" {
		t.Errorf("without a directory: %s", said(found))
	}
	ask := from.peer(protocol.EngineCall{Keys: names, Request: []byte("r"), PatienceNS: patience})
	ask.AllocPort = 0
	if kept := b.ok(protocol.CallKeep, ask); kept.Hits != 4 {
		t.Errorf("%d are kept", kept.Hits)
	}
	fetch := b.begin(protocol.CallSharedFetch, ask)
	for seen := 0; seen < 4; {
		for len(b.shows) == 0 {
			b.hear()
		}
		show := b.shows[0]
		b.shows = b.shows[1:]
		for i, page := range show.Pages {
			want := make([]byte, b.told.PageBytes)
			fill(want, byte(int(show.First)+i+1))
			if !bytes.Equal(b.page(page), want) {
				t.Errorf("chunk %d is another", int(show.First)+i)
			}
			seen++
		}
		b.write((&protocol.EngineShown{ID: fetch, First: show.First}).Append(nil))
	}
	if end := b.answer(fetch); end.Code != 0 || end.Hits != 4 {
		t.Errorf("%d were fetched: %s", end.Hits, said(end))
	}
	// Pages that are shared are not released before.
	release := a.begin(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	a.ok(protocol.CallWithdraw, protocol.EngineCall{Target: shared.ID, PatienceNS: patience})
	if end := a.answer(release); end.Code != 0 {
		t.Error(said(end))
	}
	got = a.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	a.ok(protocol.CallShare, protocol.EngineCall{Target: got.ID, Keys: keys(9)[8:]}) // Left with its pages.
	a.ok(protocol.CallDetach, protocol.EngineCall{})
	from.quiet()
}

// What is here is had at once, and where nobody has it, it is missing.
func TestSharedGet(t *testing.T) {
	from, to := newRigFrom(t, fmt.Sprintf(sharerText, "")), newRigFrom(t, fmt.Sprintf(sharerText, ""))
	a, b := from.attach(), to.attach()
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	fill(a.page(got.Pages[0]), 7)
	a.ok(protocol.CallStore, protocol.EngineCall{Target: got.ID, Keys: keys(1)})
	ask := from.peer(protocol.EngineCall{Keys: keys(2), Request: []byte("r"), PatienceNS: patience})
	ask.AllocPort = 0
	here := b.call(protocol.CallSharedGet, ask)
	if effects.Code(here.Code) != effects.NotFound || len(here.Pages) != 1 ||
		!bytes.Equal(b.page(here.Pages[0]), a.page(got.Pages[0])) {
		t.Fatalf("%d pages: %s", len(here.Pages), said(here))
	}
	b.ok(protocol.CallRelease, protocol.EngineCall{Target: here.ID}) // A prefix is held, beside its error.
}

const blocksText = `enable_pd: true
pd_role: both
pd_peer_host: 127.0.0.1
pd_peer_init_port: 1
pd_peer_alloc_port: 2
chunk_size: 4
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 2, head_size: 16, dtype: half}
    register: {engine_id: %s, tp_size: 1, tp_rank: 0, pp_size: 1, pp_rank: 0, kv_heads: 2, cell_heads: 2, blocks: 16}
`

// Blocks that one engine has finished are written into those that another registers.
func TestBlocks(t *testing.T) {
	p, d := newRigFrom(t, fmt.Sprintf(blocksText, "P")), newRigFrom(t, fmt.Sprintf(blocksText, "D"))
	a, b := p.attach(), d.attach()
	block := func(r *rig, c *client, n int) []byte {
		return c.page(uint64(r.node.Geometry().PageNumber(0, uint32(n), 0)))
	}
	fill(block(p, a, 3), 3)
	finished := a.begin(protocol.CallFinished, protocol.EngineCall{Request: []byte("q-01234567"), Groups: []uint64{0},
		Firsts: []uint64{0}, Ends: []uint64{0}, Blocks: [][]uint64{{3, 4}}, PatienceNS: patience})
	at := p.node.Servers()
	var init, own uint16
	for _, s := range at {
		switch s.Channel {
		case effects.ChannelInit:
			init = s.Addr.Port
		case effects.ChannelRegister:
			own = s.Addr.Port
		}
	}
	producers := [][]byte{fmt.Appendf(nil, "127.0.0.1:%d:%d", init, own)}
	b.ok(protocol.CallNotNeeded, protocol.EngineCall{Request: []byte("none-01234567"), Producers: producers,
		PatienceNS: patience})
	expect := b.begin(protocol.CallExpect, protocol.EngineCall{Request: []byte("x-89abcdef"), Producers: producers,
		PatienceNS: patience})
	got := b.ok(protocol.CallRegister, protocol.EngineCall{Request: []byte("q-89abcdef"), Engine: []byte("P"),
		Producers: producers, Ranks: 1, Stages: 1, Groups: []uint64{0}, Firsts: []uint64{0}, Ends: []uint64{0},
		Blocks: [][]uint64{{7, 8}}, PatienceNS: patience})
	if got.Hits == 0 || !bytes.Equal(block(d, b, 7), block(p, a, 3)) {
		t.Errorf("%d pages are registered: %s", got.Hits, said(got))
	}
	if end := a.answer(finished); end.Code != 0 || end.Sent == 0 {
		t.Errorf("%d pages were written: %s", end.Sent, said(end))
	}
	b.ok(protocol.CallAbort, protocol.EngineCall{Target: expect})
	if end := b.answer(expect); effects.Code(end.Code) != effects.Cancelled {
		t.Error(said(end))
	}
	lost := a.begin(protocol.CallFinished, protocol.EngineCall{Request: []byte("w-01234567"), Groups: []uint64{0},
		Firsts: []uint64{0}, Ends: []uint64{0}, Blocks: [][]uint64{{5}}, PatienceNS: patience})
	a.ok(protocol.CallAborted, protocol.EngineCall{Request: []byte("w-01234567")})
	if end := a.answer(lost); end.Code == 0 {
		t.Error("what was aborted is written")
	}
}

// A call that waits is aborted, and an offer is taken back.
func TestAbortAndTakeBack(t *testing.T) {
	from, to := newRig(t, "sender", "pd_pull_mode: true"), newRig(t, "receiver", "pd_pull_mode: true",
		"pd_delay_pull: true")
	a, b := from.attach(), to.attach()
	wait := b.begin(protocol.CallGet, protocol.EngineCall{Keys: keys(1), Request: []byte("r"), PatienceNS: patience})
	b.ok(protocol.CallAbort, protocol.EngineCall{Target: wait})
	if end := b.answer(wait); effects.Code(end.Code) != effects.Cancelled {
		t.Error(said(end))
	}
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	put := a.ok(protocol.CallPut, from.withKeys(to.peer(protocol.EngineCall{Target: got.ID, Request: []byte("r"),
		Last: true}), 1))
	release := a.begin(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	a.ok(protocol.CallTakeBack, protocol.EngineCall{Target: put.ID})
	a.returned(put.ID)
	if end := a.answer(release); end.Code != 0 {
		t.Error(said(end))
	}
}
