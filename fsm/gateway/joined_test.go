package gateway_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A joined world has a real rank behind a gateway, and plain engines with memory of their own: a producer P and a
// consumer D. Bytes are texts: what each page holds. Everything that is under way happens in any order, each store by
// itself. What is promised is looked at by what pages hold, and by who may touch them when.
type joined struct {
	t     *rapid.T
	rank  *rank.Rank
	g     *gateway.Gateway
	out   gateway.Effects
	fx    effects.Effects
	now   effects.Time
	todo  []func() // events for the rank, in their order
	later []func() // what is under way anywhere, in any order

	memory [layersOfAll * blocksOfAll]string // of the rank's engine
	free   []uint32
	jobs   []*work
	agents map[gateway.Agent]*theirs
	grants map[effects.GrantID]effects.Incarnation
	proofs map[uint64]effects.GrantID
	ids    uint64
	moves  map[effects.Corr]*move
	ways   map[effects.Link]gateway.Route

	p, d     plain
	calm     bool // nobody dies or aborts, and time hardly passes while anybody can do something
	received int
	written  int
	finished map[string]bool // at P: three blocks of each
}

const (
	layersOfAll = 2
	blocksOfAll = 8
	start       = effects.Time(effects.Second) // A clock that says 0 says nothing.
)

// A work is a command of the rank's engine. Its blocks are the rank's until they are back.
type work struct {
	ticket  effects.Ticket
	request string
	blocks  []uint32
	first   int
	lends   bool
	told    bool
	code    effects.Code
	back    bool
}

// A theirs is an agent of the gateway's, as the world has it.
type theirs struct {
	writable bool
	made     bool
	gone     bool
}

// A plain is an engine, of one rank.
type plain struct {
	name   string
	life   int
	memory [layersOfAll * blocksOfAll]string
	had    map[string]int // completions
	wants  map[string][]uint32
}

func (p *plain) agent() string { return fmt.Sprintf("%s.%d", p.name, p.life) }

// A move is a transfer of the rank's.
type move struct {
	e     effects.Transfer
	pairs []effects.Pair
	left  int
	dead  bool // its agent is
	told  bool
}

func page(layer int, block uint32) int { return layer*blocksOfAll + int(block) }

// content is what a request computes for a position of a layer.
func content(request string, position, layer int) string {
	return fmt.Sprintf("%s layer %d position %d", request, layer, position)
}

func newJoined(t *rapid.T) *joined {
	geo := &geometry.Geometry{
		Ranks: 1, Stages: 1, Heads: 1, CellHeads: 1, Blocks: blocksOfAll, PerLogical: 1, BlockTokens: 4,
	}
	for i := range uint32(layersOfAll) {
		geo.Layers = append(geo.Layers, geometry.Layer{Number: i})
	}
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
	cfg := rank.Config{Role: rank.RoleBoth, Planes: []rank.Plane{{Name: "plain"}}}
	cfg.Layout, cfg.LocalID, cfg.Pages, cfg.Leased = layout, "r", uint32(geo.CountPages()), true
	cfg.Geometry, cfg.EngineID = geo, "r"
	cfg.RegistrationLease, cfg.RegisterTimeout = 60*effects.Second, 30*effects.Second
	machine, err := rank.New(cfg, rapid.Uint64().Draw(t, "seed"), start)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := layout.PageBytes()
	if err != nil {
		t.Fatal(err)
	}
	meta := metadata("r", "", bytes)
	own, err := geometry.ParseRegions(&meta, &geometry.Worker{Ranks: 1, Stages: 1, Heads: 1, CellHeads: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := &joined{
		t: t, rank: machine, now: start, agents: map[gateway.Agent]*theirs{gateway.Front: {made: true}},
		grants: map[effects.GrantID]effects.Incarnation{}, proofs: map[uint64]effects.GrantID{},
		moves: map[effects.Corr]*move{}, ways: map[effects.Link]gateway.Route{}, finished: map[string]bool{},
		p: plain{name: "P"}, d: plain{name: "D", had: map[string]int{}, wants: map[string][]uint32{}},
	}
	for i := range uint32(blocksOfAll) {
		w.free = append(w.free, i)
	}
	w.g = gateway.New(gateway.Config{
		Own: own, Metadata: meta, FrontMetadata: meta, Hash: "h", Host: "here", Plane: "plain", Layout: layout, Window: 8,
		RegistrationTimeout: 30 * effects.Second, EnginesMax: 4, RegistrationsMax: 8, PendingMax: 8, RanksMax: 2, AgentsMax: 4,
		TriesMax: 3, Wire: protocol.DefaultLimits(),
	})
	return w
}

func metadata(id, agent string, bytes uint64) protocol.NixlMetadata {
	return protocol.NixlMetadata{
		EngineID: []byte(id), Agent: []byte(agent), BaseAddrs: []uint64{1 << 20, 1 << 21}, NumBlocks: blocksOfAll,
		BlockLens: []uint64{bytes, bytes}, BlockStrides: []uint64{bytes, bytes}, Layout: []byte("LBHNC"), BlockSize: 4,
		PerLogical: 1, Backend: []byte("B"), DCPSize: 1, PCPSize: 1,
	}
}

func (w *joined) id() uint64 { w.ids++; return w.ids }

// step has the rank take an event.
func (w *joined) step(ev effects.Event) {
	w.fx.Reset()
	w.rank.Step(w.now, ev, &w.fx)
	for i := range w.fx.Len() {
		w.carry(w.fx.At(i))
	}
}

// gw has the gateway do something, and carries out what comes of it.
func (w *joined) gw(f func(out *gateway.Effects)) {
	w.out.Reset()
	f(&w.out)
	out := w.out
	w.out = gateway.Effects{}
	for _, a := range slices.Concat(out.MakeAgents, out.MakeWriters) {
		w.agents[a] = &theirs{writable: slices.Contains(out.MakeAgents, a)}
		w.later = append(w.later, func() {
			w.agents[a].made = true
			w.gw(func(out *gateway.Effects) { w.g.OnAgentMade(w.now, a, uint16(a), effects.OK, out) })
		})
	}
	for _, l := range out.Loads {
		w.later = append(w.later, func() {
			w.gw(func(out *gateway.Effects) { w.g.OnAgentLoaded(w.now, l.LoadID, string(l.Metadata), effects.OK, out) })
		})
	}
	for _, s := range out.Notifications {
		s.Body = slices.Clone(s.Body)
		w.later = append(w.later, func() { w.said(s) })
	}
	for _, q := range out.Queries {
		w.later = append(w.later, func() { w.asked(q) })
	}
	for _, a := range out.DestroyAgents {
		w.destroys(a)
	}
	for _, n := range out.DoneExpulsions {
		id := w.proofs[n]
		delete(w.proofs, n)
		w.todo = append(w.todo, func() { w.step(&effects.Revoked{Grant: id}) })
	}
	for _, ev := range out.Events {
		w.todo = append(w.todo, func() { w.step(ev) })
	}
}

// destroys ends an agent, at some time: what is under way by it ends with it.
func (w *joined) destroys(a gateway.Agent) {
	w.later = append(w.later, func() {
		x := w.agents[a]
		if x.gone {
			return
		}
		if !x.made {
			w.destroys(a)
			return
		}
		x.gone = true
		for corr, m := range w.moves {
			if w.ways[m.e.Link].Agent == a && !m.dead {
				m.dead = true
				w.ends(corr, m)
			}
		}
		w.gw(func(out *gateway.Effects) { w.g.OnAgentDestroyed(w.now, a, effects.OK, out) })
	})
}

func (w *joined) ends(corr effects.Corr, m *move) {
	delete(w.moves, corr)
	code := effects.OK
	if m.dead {
		code = effects.Faulted
	}
	if m.told {
		w.todo = append(w.todo, func() { w.step(&effects.Settled{Corr: corr, Code: code}) })
		return
	}
	w.todo = append(w.todo, func() { w.step(&effects.TransferDone{Corr: corr, Code: code, Settled: true, At: w.now}) })
}

// asked answers a question to a side channel.
func (w *joined) asked(q gateway.Query) {
	bytes := w.g2bytes()
	of := &w.p
	if q.Addr.Host == "D" {
		of = &w.d
	}
	m := metadata(of.name, of.agent(), bytes)
	h := protocol.NixlHello{Hash: []byte("h"), Metadata: m.Append(nil)}
	w.gw(func(out *gateway.Effects) { w.g.OnQueryReply(w.now, q.QueryID, h.Append(nil), effects.OK, out) })
}

func (w *joined) g2bytes() uint64 {
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}
	n, err := layout.PageBytes()
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// said gives an engine a note.
func (w *joined) said(s gateway.Notification) {
	if w.agents[s.Agent].gone {
		return // It was lost with its agent.
	}
	limits := protocol.DefaultLimits()
	reg, done := protocol.PushRegistration{}, protocol.PushCompletion{}
	switch protocol.NotificationKindOf(s.Body) {
	case protocol.NixlRegistration:
		if err := reg.Decode(s.Body, &limits); err != nil {
			w.t.Fatal(err)
		}
		if s.To == w.p.agent() {
			w.produces(s.Agent, string(reg.RequestID), reg.Blocks[0])
		}
	case protocol.NixlCompletion:
		if err := done.Decode(s.Body, &limits); err != nil {
			w.t.Fatal(err)
		}
		if s.To == w.d.agent() {
			w.has(string(done.RequestID))
		}
	case protocol.NixlHeartbeat:
	}
}

// produces has P write into the rank's blocks when it has finished the request, each page at some time.
func (w *joined) produces(agent gateway.Agent, request string, into []uint64) {
	base, life := string(protocol.TrimRequestSuffix([]byte(request))), w.p.life
	if !w.finished[base] {
		w.later = append(w.later, func() {
			if w.p.life == life {
				w.produces(agent, request, into)
			}
		})
		return
	}
	left := layersOfAll * len(into)
	for layer := range layersOfAll {
		for i, block := range into {
			text := content(base, 3-len(into)+i, layer)
			w.later = append(w.later, func() {
				if w.p.life != life || w.agents[agent].gone {
					return // Its writes fail.
				}
				w.lands(page(layer, uint32(block)), text)
				if left--; left == 0 {
					m := protocol.PushCompletion{RequestID: []byte(request), Ranks: 1}
					w.later = append(w.later, func() {
						if !w.agents[agent].gone {
							w.gw(func(out *gateway.Effects) { w.g.OnNotification(w.now, agent, w.p.agent(), m.Append(nil), out) })
						}
					})
				}
			})
		}
	}
}

// lands stores into a page of the rank's. It must be a reception's, and not back (S1).
func (w *joined) lands(at int, text string) {
	for _, j := range w.jobs {
		if !j.back && !j.lends && slices.Contains(j.blocks, uint32(at%blocksOfAll)) {
			w.memory[at] = text
			return
		}
	}
	w.t.Fatalf("%q is stored into page %d, which is nobody's reception", text, at)
}

// has looks at what D was told: every page of the request is what was computed (S2).
func (w *joined) has(request string) {
	into, wanted := w.d.wants[request]
	if w.d.had[request]++; !wanted || w.d.had[request] > 1 {
		w.t.Fatalf("D is told of %s %d times, wanted %v", request, w.d.had[request], wanted)
	}
	base := string(protocol.TrimRequestSuffix([]byte(request)))
	for layer := range layersOfAll {
		for i, block := range into {
			// It has the last ones of three.
			if got, want := w.d.memory[page(layer, block)], content(base, 3-len(into)+i, layer); got != want {
				w.t.Fatalf("D's block %d holds %q, and it is told that it holds %q", block, got, want)
			}
		}
	}
}

// carry carries out an effect of the rank's.
func (w *joined) carry(e effects.Effect) {
	switch e := e.(type) {
	case *effects.Open:
		x := *e
		w.gw(func(out *gateway.Effects) { w.g.HandleOpen(&x, out) })
	case *effects.Close:
		x := e.Conn
		w.gw(func(out *gateway.Effects) { w.g.HandleClose(x, out) })
	case *effects.Send:
		x := *e
		x.Body = slices.Clone(e.Body)
		w.gw(func(out *gateway.Effects) { w.g.HandleSend(w.now, &x, out) })
	case *effects.Reply:
		x := effects.Reply{Request: e.Request, Body: slices.Clone(e.Body)}
		w.gw(func(out *gateway.Effects) { w.g.HandleReply(w.now, &x, out) })
	case *effects.Import:
		w.imports(e)
	case *effects.Drop:
		link := e.Link
		for corr, m := range w.moves {
			if m.e.Link == link {
				m.dead = true
				w.ends(corr, m)
			}
		}
		delete(w.ways, link)
		w.todo = append(w.todo, func() { w.step(&effects.Dropped{Link: link}) })
	case *effects.Grant:
		w.grants[e.ID] = e.Peer
	case *effects.Revoke:
		n := w.id()
		w.proofs[n] = e.Grant
		who := w.grants[e.Grant]
		w.gw(func(out *gateway.Effects) { w.g.Expel(w.now, who, n, out) })
	case *effects.Transfer:
		w.transfers(e)
	case *effects.Cancel, *effects.Publish, *effects.Observe, *effects.Confirm:
	case *effects.Deliver:
		w.delivered(e)
	case *effects.Return:
		for _, j := range w.jobs {
			if j.ticket == e.Ticket {
				w.returns(j)
			}
		}
	default:
		w.t.Fatalf("%T", e)
	}
}

func (w *joined) imports(e *effects.Import) {
	x := &effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	if len(e.Blob) >= 8 {
		if way, ok := w.g.FindRoute(binary.BigEndian.Uint64(e.Blob)); ok && way.Incarnation == e.Peer {
			x.Code, x.Link = effects.OK, effects.Link(w.id())
			w.ways[x.Link] = way
		}
	}
	w.todo = append(w.todo, func() { w.step(x) })
}

// transfers has each page stored into D's memory at some time. What is read must be lent (S4).
func (w *joined) transfers(e *effects.Transfer) {
	m := &move{e: *e, pairs: slices.Clone(e.Pairs), left: len(e.Pairs)}
	way, ok := w.ways[e.Link]
	if !ok || way.Regions == nil || w.agents[way.Agent].gone {
		m.dead = true
		w.ends(e.Corr, m)
		return
	}
	w.moves[e.Corr] = m
	life, corr := w.d.life, e.Corr
	for _, pair := range m.pairs {
		w.later = append(w.later, func() {
			if m.dead {
				return
			}
			if w.d.life != life { // The engine died: the agent fails, and goes.
				if !m.told {
					m.told = true
					w.todo = append(w.todo, func() {
						w.step(&effects.TransferDone{Corr: corr, Code: effects.Faulted, At: w.now})
					})
				}
				w.gw(func(out *gateway.Effects) { w.g.OnWriterFailed(way.Agent, out) })
				w.destroys(way.Agent)
				return
			}
			lent := slices.ContainsFunc(w.jobs, func(j *work) bool {
				return j.lends && !j.back && slices.Contains(j.blocks, pair.Local.Index%blocksOfAll)
			})
			if !lent {
				w.t.Fatalf("page %d is read, and is not lent", pair.Local.Index)
			}
			w.d.memory[pair.Remote.Index] = w.memory[pair.Local.Index]
			if m.left--; m.left == 0 {
				w.ends(corr, m)
			}
		})
	}
}

func (w *joined) delivered(e *effects.Deliver) {
	for _, j := range w.jobs {
		if j.ticket != e.Ticket {
			continue
		}
		if j.told {
			w.t.Fatalf("ticket %d has two outcomes", e.Ticket)
		}
		j.told, j.code = true, e.Code
		if e.Code == effects.OK && j.lends {
			w.written++
		}
		if e.Code == effects.OK && !j.lends { // S2
			w.received++
			for layer := range layersOfAll {
				for i, block := range j.blocks {
					if got, want := w.memory[page(layer, block)], content(j.request, j.first+i, layer); got != want {
						w.t.Fatalf("block %d holds %q, and %s is received", block, got, want)
					}
				}
			}
		}
		if !e.Held {
			w.returns(j)
		}
	}
}

func (w *joined) returns(j *work) {
	if j.back {
		w.t.Fatalf("blocks of ticket %d come back twice", j.ticket)
	}
	j.back = true
	w.free = append(w.free, j.blocks...)
	for _, block := range j.blocks { // They are another's now.
		for layer := range layersOfAll {
			w.memory[page(layer, block)] = "another's"
		}
	}
}

func (w *joined) take(n int) []uint32 {
	if len(w.free) < n {
		return nil
	}
	list := slices.Clone(w.free[:n])
	w.free = slices.Clone(w.free[n:])
	return list
}

func (w *joined) command(j *work, body effects.CommandBody) {
	j.ticket = effects.Ticket(w.id())
	w.jobs = append(w.jobs, j)
	w.step(&effects.Command{Ticket: j.ticket, Body: body})
}

// engines have the engines do something.
func (w *joined) engines() {
	n := rapid.IntRange(0, 9).Draw(w.t, "engine")
	if w.calm && n > 6 {
		return
	}
	request := fmt.Sprintf("q%d", len(w.jobs)+len(w.finished)+len(w.d.wants))
	switch n {
	case 0, 1: // Ours wants what P computes.
		have := rapid.IntRange(0, 2).Draw(w.t, "have")
		blocks := w.take(3 - have)
		if blocks == nil {
			return
		}
		at := gateway.PlainRank{Host: "P", Port: 1, Stages: 1, Ranks: 1}.Addr()
		w.command(&work{request: request, blocks: blocks, first: have}, &register.Register{
			Request: []byte(request + "-00000001"), Engine: []byte("P"), Ranks: 1, Stages: 1,
			Producers: []register.Peer{{Host: at.Host, InitPort: at.Port, Port: at.Port}},
			Blocks:    []geometry.Blocks{{First: uint64(have), Logical: blocks}},
			Timeout:   effects.Duration(rapid.IntRange(10, 20).Draw(w.t, "patience")) * effects.Second,
		})
	case 2, 3: // P has finished what somebody wants.
		for _, j := range w.jobs {
			if !j.lends && !w.finished[j.request] && rapid.Bool().Draw(w.t, "finishes") {
				w.finished[j.request] = true
				return
			}
		}
	case 4: // Ours has finished.
		// One more than the request has may be there: what is behind its end holds nothing.
		if blocks := w.take(rapid.IntRange(3, 4).Draw(w.t, "lent")); blocks != nil {
			w.lend(request, blocks)
		}
	case 5, 6: // D wants what ours computes.
		w.wants(request)
	case 7:
		for _, j := range w.jobs {
			if !j.told && rapid.Bool().Draw(w.t, "aborts") {
				w.step(&effects.Command{Ticket: effects.Ticket(w.id()), Body: &engine.Abort{Target: j.ticket}})
				return
			}
		}
	case 8:
		w.p.life++
		w.finished = map[string]bool{}
	case 9:
		w.d.life++
	}
}

func (w *joined) lend(request string, blocks []uint32) {
	for layer := range layersOfAll {
		for i, block := range blocks[:3] {
			w.memory[page(layer, block)] = content(request, i, layer)
		}
	}
	w.command(&work{request: request, blocks: blocks, lends: true}, &register.Finished{
		Request: []byte(request + "-00000002"), Blocks: []geometry.Blocks{{Logical: blocks, End: 3}},
	})
}

// wants has D register for a request that ours lends, or will.
func (w *joined) wants(request string) {
	for _, j := range w.jobs {
		if j.lends && !j.told && rapid.Bool().Draw(w.t, "that") {
			request = j.request
		}
	}
	id := request + "-00000003"
	if w.d.wants[id] != nil {
		return
	}
	n := rapid.IntRange(1, 3).Draw(w.t, "blocks")
	from := uint32(rapid.IntRange(0, blocksOfAll-n).Draw(w.t, "into"))
	var list []uint32
	var ids []uint64
	for i := range uint32(n) {
		// Its blocks are written by one request at a time.
		for _, other := range w.d.wants {
			if slices.Contains(other, from+i) {
				return
			}
		}
		list, ids = append(list, from+i), append(ids, uint64(from+i))
	}
	w.d.wants[id] = list
	m := protocol.PushRegistration{
		RequestID: []byte(id), EngineID: []byte("D"), Host: []byte("D"), Port: 2, TPSize: 1, Blocks: [][]uint64{ids},
		Remote: protocol.PushProducer{EngineID: []byte("r"), PPSize: 1},
	}
	agent := w.d.agent()
	for range rapid.IntRange(1, 2).Draw(w.t, "times") { // Notes come twice, too.
		w.later = append(w.later, func() {
			w.gw(func(out *gateway.Effects) { w.g.OnNotification(w.now, gateway.Front, agent, m.Append(nil), out) })
		})
	}
}

// happens has something happen that is under way.
func (w *joined) happens() bool {
	if len(w.todo) > 0 {
		f := w.todo[0]
		w.todo = w.todo[1:]
		f()
		return true
	}
	if len(w.later) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(w.later)-1).Draw(w.t, "happens")
	f := w.later[i]
	w.later = slices.Delete(w.later, i, i+1)
	f()
	return true
}

func (w *joined) passes(d effects.Duration) {
	w.now = w.now.Add(d)
	if at, ok := w.rank.Deadline(); ok && at <= w.now {
		w.step(&effects.Tick{})
	}
}

// TestJoined runs a real rank with plain engines. At the end all its blocks are back, whatever the engines do.
func TestJoined(t *testing.T) {
	received, written, told := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newJoined(t)
		most := 2000
		if w.calm = rapid.Bool().Draw(t, "calm"); w.calm {
			most = 10
		}
		for range rapid.IntRange(10, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				w.engines()
			case 2:
				w.passes(effects.Duration(rapid.IntRange(1, most).Draw(t, "ms")) * effects.Millisecond)
			default:
				w.happens()
			}
		}
		for range 400 { // Everything has its time.
			for range 60 {
				if !w.happens() {
					break
				}
			}
			w.passes(effects.Second)
		}
		for _, j := range w.jobs {
			if w.calm { // Who can have something has it.
				id := j.request + "-00000003"
				if j.lends && w.d.wants[id] != nil && (j.code != effects.OK || w.d.had[id] != 1) {
					t.Fatalf("%s is lent, ends with %v, and D is told %d times", j.request, j.code, w.d.had[id])
				}
				if !j.lends && w.finished[j.request] && j.code != effects.OK {
					t.Fatalf("%s is finished, and ends with %v", j.request, j.code)
				}
			}
			if !j.told || !j.back {
				t.Fatalf("%s (lends %v): told %v, back %v", j.request, j.lends, j.told, j.back)
			}
		}
		received, written = received+w.received, written+w.written
		for _, n := range w.d.had {
			told += n
		}
	})
	t.Logf("%d requests were received, %d written, %d told of", received, written, told)
	if received == 0 || written == 0 || told == 0 {
		t.Error("nothing was ever moved, in one direction at the least")
	}
}
