package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

const registerText = `enable_pd: true
pd_role: both
pd_peer_host: 127.0.0.1
pd_peer_init_port: 1
pd_peer_alloc_port: 2
transfer_channel: %s
chunk_size: 4
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
extra_config:
  kvferry:
    layout: {num_layers: %d, num_kv_heads: %d, head_size: 16, dtype: half}
    register: {engine_id: %s, tp_size: %d, tp_rank: %d, pp_size: %d, pp_rank: %d, kv_heads: 4, cell_heads: 1,
      blocks: 16, first_layer: %d%s}
`

// A worker is one rank of an engine whose model has 4 KV heads and 4 layers. Groups are those of its layers; none: all
// are of one.
type worker struct {
	Engine                     string
	Ranks, Rank, Stages, Stage int
	Groups                     string
}

func (w worker) config(tb testing.TB, channel string) *config.Config {
	tb.Helper()
	layers, groups := 4/w.Stages, ""
	if w.Groups != "" {
		groups = ", groups: " + w.Groups
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, registerText, channel, layers, 4/w.Ranks, w.Engine, w.Ranks, w.Rank,
		w.Stages, w.Stage, layers*w.Stage, groups), nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	return cfg
}

// An engineRank is a worker with its node.
type engineRank struct {
	worker
	*runtime.Node
}

// engineOf opens all ranks of an engine, by stage.
func engineOf(tb testing.TB, channel, name string, ranks, stages int) (all []engineRank) {
	tb.Helper()
	for stage := range stages {
		for rank := range ranks {
			all = append(all, rankOf(tb, channel, worker{Engine: name, Ranks: ranks, Rank: rank, Stages: stages, Stage: stage}))
		}
	}
	return all
}

func rankOf(tb testing.TB, channel string, w worker) engineRank {
	tb.Helper()
	return engineRank{w, open(tb, w.config(tb, channel))}
}

func producerPeerOf(n *runtime.Node) (p runtime.ProducerPeer) {
	for _, s := range n.Servers() {
		p.Host = s.Addr.Host
		switch s.Channel { //nolint:exhaustive // It serves no more.
		case effects.ChannelInit:
			p.InitPort = s.Addr.Port
		case effects.ChannelRegister:
			p.Port = s.Addr.Port
		}
	}
	return p
}

// heads calls f with the bytes that a worker has of each layer and head of the model in a block.
func (w worker) heads(tb testing.TB, n *runtime.Node, block int, f func(layer, head int, b []byte)) {
	tb.Helper()
	layers, heads := 4/w.Stages, 4/w.Ranks
	for region := range layers {
		b, err := n.BlockBytes(region, block)
		if err != nil {
			tb.Fatal(err)
		}
		size := len(b) / heads
		for i := range heads {
			f(w.Stage*layers+region, w.Rank*heads+i, b[i*size:(i+1)*size])
		}
	}
}

func cacheName(request string, position, layer, head int) string {
	return fmt.Sprintf("%s position %d layer %d head %d", request, position, layer, head)
}

// computes has a worker fill blocks of a request from a position on.
func (w worker) computes(tb testing.TB, n *runtime.Node, request string, first int, blocks []uint32) {
	tb.Helper()
	for i, block := range blocks {
		w.heads(tb, n, int(block), func(layer, head int, b []byte) {
			contentOf(b, cacheName(request, first+i, layer, head))
		})
	}
}

// countWrong counts the parts of blocks that are not what was computed.
func (w worker) countWrong(tb testing.TB, n *runtime.Node, request string, first int, blocks []uint32) (wrong int) {
	tb.Helper()
	for i, block := range blocks {
		w.heads(tb, n, int(block), func(layer, head int, b []byte) {
			if !isContent(b, cacheName(request, first+i, layer, head)) {
				wrong++
			}
		})
	}
	return wrong
}

func blocksOf(first int, list []uint32) []runtime.Blocks {
	return []runtime.Blocks{{First: uint64(first), Logical: list}}
}

// registration is that of one rank for what a producer of all these ranks is to write.
func (w worker) registration(tb testing.TB, n *runtime.Node, of worker,
	at map[[2]uint32]runtime.ProducerPeer, id string,
	first int, blocks []uint32) runtime.Registration {
	tb.Helper()
	r := runtime.Registration{
		Request: id + "-00000001", Engine: of.Engine, Ranks: of.Ranks, Stages: of.Stages, Blocks: blocksOf(first, blocks),
	}
	near, err := geometry.ProducersOf(n.Geometry(), uint32(of.Ranks), uint32(of.Stages))
	if err != nil {
		tb.Fatal(err)
	}
	for stage, rank := range near.All() {
		r.Producers = append(r.Producers, at[[2]uint32{stage, rank}])
	}
	return r
}

// peersOf are where the ranks of an engine listen.
func peersOf(all []engineRank) map[[2]uint32]runtime.ProducerPeer {
	at := map[[2]uint32]runtime.ProducerPeer{}
	for _, w := range all {
		at[[2]uint32{uint32(w.Stage), uint32(w.Rank)}] = producerPeerOf(w.Node)
	}
	return at
}

// outcome is what a channel gives in time.
func outcome[T any](tb testing.TB, from <-chan T) (x T) {
	tb.Helper()
	select {
	case x = <-from:
	case <-within(tb).Done():
		tb.Fatal("no outcome")
	}
	return x
}

func awaitReturned(tb testing.TB, c <-chan struct{}) {
	tb.Helper()
	outcome(tb, c)
}

// endAll demands that nothing is held, and closes.
func endAll(tb testing.TB, all ...engineRank) {
	tb.Helper()
	for _, w := range all {
		if s := w.Stats(); s.PagesFree != s.PagesTotal || s.Receptions+s.LeasedBatches+s.Registrations+s.Grants != 0 {
			waitFor(tb, w.Node, "the end of what is said of registrations", nothingRegistered)
		}
	}
	for _, w := range all {
		mustClose(tb, w.Node)
	}
}

// A request's blocks come whole, whichever side is first, between engines of equal and unequal parallelism and from two
// stages, over both planes: each byte is where its position, layer and head belong. The decode engine has a prefix
// already, which nobody touches.
func TestRegisteredPush(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		for _, is := range []struct{ prefill, stages, decode int }{{1, 1, 1}, {2, 1, 1}, {1, 1, 2}, {2, 2, 1}, {4, 1, 2}} {
			t.Run(fmt.Sprintf("%s, %d x %d to %d", channel, is.prefill, is.stages, is.decode), func(t *testing.T) {
				producers := engineOf(t, channel, "p", is.prefill, is.stages)
				consumers := engineOf(t, channel, "d", is.decode, 1)
				for i, id := range []string{"asked-first", "finished-first"} {
					from, into := []uint32{7, 2, 9, 4}, []uint32{11, 3, 8}
					var lent []*runtime.Lending
					var taken []*runtime.Reception
					lends := func() {
						for _, w := range producers {
							w.computes(t, w.Node, id, 0, from)
							l, err := w.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
								Request: id + "-00000002", Blocks: blocksOf(0, from)})
							if err != nil {
								t.Fatal(err)
							}
							lent = append(lent, l)
						}
					}
					registers := func() {
						for _, w := range consumers {
							w.computes(t, w.Node, "prefix", 0, []uint32{1})
							r, err := w.Consumer().Register(t.Context(),
								w.registration(t, w.Node, producers[0].worker, peersOf(producers), id, 1, into))
							if err != nil {
								t.Fatal(err)
							}
							taken = append(taken, r)
						}
					}
					if i == 0 {
						registers()
						waitFor(t, producers[0].Node, "a registration", hasRegistration)
						lends()
					} else {
						lends()
						registers()
					}
					for i, r := range taken {
						w := consumers[i]
						if got := outcome(t, r.Done()); got.Err != nil || got.InUse || got.Pages != 3*4*4/is.decode {
							t.Fatalf("%s: rank %d has %+v", id, i, got)
						}
						awaitReturned(t, r.Returned())
						if n := w.countWrong(t, w.Node, id, 1, into); n != 0 {
							t.Errorf("%s: rank %d has %d wrong parts", id, i, n)
						}
						if n := w.countWrong(t, w.Node, "prefix", 0, []uint32{1}); n != 0 {
							t.Errorf("%s: the prefix has %d wrong parts", id, n)
						}
					}
					pages := 0
					for _, l := range lent {
						got := outcome(t, l.Done())
						if got.Err != nil {
							t.Errorf("%s: %+v", id, got)
						}
						awaitReturned(t, l.Returned())
						pages += got.Pages
					}
					if pages != 3*4*4 {
						t.Errorf("%s: %d pages were written", id, pages)
					}
				}
				endAll(t, slices.Concat(consumers, producers)...)
			})
		}
	}
}

// Engines whose layers are of two groups: what is registered may leave one out, which nobody touches then, and each
// group begins where it says. The first of two stages has layers of the first group alone, the other one of both.
func TestRegisteredGroups(t *testing.T) {
	p0 := rankOf(t, "shm", worker{Engine: "p", Ranks: 1, Stages: 2, Groups: "[0, 0]"})
	p1 := rankOf(t, "shm", worker{Engine: "p", Ranks: 1, Stages: 2, Stage: 1, Groups: "[1, 0]"})
	d := rankOf(t, "shm", worker{Engine: "d", Ranks: 1, Stages: 1, Groups: "[0, 0, 1, 0]"})
	producers := []engineRank{p0, p1}
	groupOf := []int{0, 0, 1, 0} // by layer
	from := [2][]uint32{{7, 2, 9}, {1, 4, 3}}
	fills := func(w engineRank, id string, group, first int, blocks []uint32) {
		for i, block := range blocks {
			w.heads(t, w.Node, int(block), func(layer, head int, b []byte) {
				if groupOf[layer] == group {
					contentOf(b, cacheName(id, first+i, layer, head))
				}
			})
		}
	}
	for i, into := range [][]runtime.Blocks{
		{{Group: 0, First: 1, Logical: []uint32{5, 6}}, {Group: 1, First: 2, Logical: []uint32{8}}},
		{{Group: 1, First: 1, Logical: []uint32{5, 6}}},
		{{Group: 0, First: 2, Logical: []uint32{6}}},
	} {
		id := fmt.Sprint("groups-", i)
		lends := func() (all []*runtime.Lending) {
			for _, w := range producers {
				x := runtime.FinishedRequest{Request: id + "-00000002"}
				for group, blocks := range from {
					fills(w, id, group, 0, blocks)
					x.Blocks = append(x.Blocks, runtime.Blocks{Group: uint16(group), Logical: blocks})
				}
				l, err := w.Producer().LendBlocks(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, l)
			}
			return all
		}
		for block := range uint32(16) {
			fills(d, "before", 0, int(block), []uint32{block})
			fills(d, "before", 1, int(block), []uint32{block})
		}
		r := d.registration(t, d.Node, p0.worker, peersOf(producers), id, 0, nil)
		r.Blocks = into
		var lent []*runtime.Lending
		if i == 1 {
			lent = lends()
		}
		taken, err := d.Consumer().Register(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if i != 1 {
			waitFor(t, p0.Node, "a registration", hasRegistration)
			lent = lends()
		}
		if got := outcome(t, taken.Done()); got.Err != nil {
			t.Fatalf("%s: %+v", id, got)
		}
		for _, l := range lent {
			if got := outcome(t, l.Done()); got.Err != nil {
				t.Errorf("%s: %+v", id, got)
			}
			awaitReturned(t, l.Returned())
		}
		is := map[[2]int]int{} // positions, by group and block
		for _, b := range into {
			for at, block := range b.Logical {
				is[[2]int{int(b.Group), int(block)}] = int(b.First) + at
			}
		}
		for block := range 16 {
			d.heads(t, d.Node, block, func(layer, head int, b []byte) {
				want := cacheName("before", block, layer, head)
				if position, written := is[[2]int{groupOf[layer], block}]; written {
					want = cacheName(id, position, layer, head)
				}
				if !isContent(b, want) {
					t.Errorf("%s: layer %d, head %d of block %d is not %q", id, layer, head, block, want)
				}
			})
		}
	}
	endAll(t, d, p0, p1)
}

// Either side's word ends what is under way, once, and gives blocks back; afterwards the same blocks serve others.
func TestRegisteredEnds(t *testing.T) {
	producers, consumers := engineOf(t, "tcp", "p", 2, 1), engineOf(t, "tcp", "d", 1, 1)
	p, d := producers[0], consumers[0]
	at, blocks := peersOf(producers), []uint32{1, 2}
	register := func(ctx context.Context, id string) *runtime.Reception {
		r, err := d.Consumer().Register(ctx, d.registration(t, d.Node, p.worker, at, id, 0, blocks))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	finished := func(ctx context.Context, w engineRank, id string) *runtime.Lending {
		l, err := w.Producer().LendBlocks(ctx, runtime.FinishedRequest{Request: id + "-00000002", Blocks: blocksOf(0, blocks)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}

	t.Log("# the producer's engine aborts; who comes later hears so")
	r := register(t.Context(), "a")
	waitFor(t, p.Node, "a registration", hasRegistration)
	if err := p.Producer().AbortRequest("a-00000002", ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, outcome(t, r.Done()).Err, effects.Cancelled)
	awaitReturned(t, r.Returned())
	r = register(t.Context(), "a")
	wantCode(t, outcome(t, r.Done()).Err, effects.Cancelled)
	awaitReturned(t, r.Returned())

	t.Log("# the consumer's engine takes its registration back")
	ctx, cancel := context.WithCancel(t.Context())
	r = register(ctx, "b")
	waitFor(t, p.Node, "a registration", hasRegistration)
	cancel()
	got := outcome(t, r.Done())
	wantCode(t, got.Err, effects.Cancelled)
	awaitReturned(t, r.Returned())
	waitFor(t, p.Node, "the withdrawal", nothingRegistered)

	t.Log("# and so does the producer's with what it lends")
	ctx, cancel = context.WithCancel(t.Context())
	l := finished(ctx, p, "c")
	wantCode(t, outcome(t, finished(t.Context(), p, "d").Done()).Err, effects.Invalid) // The same blocks.
	cancel()
	wantCode(t, outcome(t, l.Done()).Err, effects.Cancelled)
	awaitReturned(t, l.Returned())

	t.Log("# a lease that nobody takes is over")
	lease, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	wantCode(t, outcome(t, finished(lease, p, "e").Done()).Err, effects.Expired)

	t.Log("# one rank of two has it: the other one's time is over, and nothing is received")
	l = finished(t.Context(), p, "f")
	brief, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	r = register(brief, "f")
	wantCode(t, outcome(t, r.Done()).Err, effects.Expired)
	awaitReturned(t, r.Returned())
	if got := outcome(t, l.Done()); got.Err != nil {
		t.Errorf("what one rank wrote: %+v", got)
	}
	awaitReturned(t, l.Returned())

	t.Log("# nobody needs it: it is given back, also where it comes later")
	l = finished(t.Context(), p, "g")
	all := runtime.RequestNotice{Request: "g-00000001", Producers: []runtime.ProducerPeer{at[[2]uint32{0, 0}],
		at[[2]uint32{0, 1}]}}
	if err := d.Consumer().Decline(within(t), all); err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, l.Done()); got.Err != nil && runtime.CodeOf(got.Err) != effects.Cancelled {
		t.Errorf("what nobody needs: %+v", got)
	}
	if got := outcome(t, finished(t.Context(), producers[1], "g").Done()); !got.NotNeeded || got.Err != nil {
		t.Errorf("what nobody needs, later: %+v", got)
	}

	t.Log("# what is expected ends with its registration")
	all.Request = "h-00000001"
	kept, err := d.Consumer().Expect(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range producers {
		w.computes(t, w.Node, "h", 0, blocks)
		_ = finished(t.Context(), w, "h")
	}
	r = register(t.Context(), "h")
	if err := outcome(t, kept); err != nil {
		t.Error(err)
	}
	if got := outcome(t, r.Done()); got.Err != nil || d.countWrong(t, d.Node, "h", 0, blocks) != 0 {
		t.Errorf("the last one: %+v", got)
	}
	endAll(t, slices.Concat(consumers, producers)...)
}

// What cannot be is said before a machine is asked, by its name; and who has another pool refuses.
func TestRegisterRefuses(t *testing.T) {
	d := engineOf(t, "shm", "d", 1, 1)[0]
	at := runtime.ProducerPeer{Host: "127.0.0.1", InitPort: 1, Port: 2}
	good := runtime.Registration{Request: "r", Producers: []runtime.ProducerPeer{at}, Ranks: 1, Stages: 1,
		Blocks: blocksOf(0, []uint32{1})}
	for field, change := range map[string]func(*runtime.Registration){
		"Request":   func(r *runtime.Registration) { r.Request = "" },
		"Timeout":   func(r *runtime.Registration) { r.Timeout = -1 },
		"Producers": func(r *runtime.Registration) { r.Producers = nil },
		"Producers[0].Host": func(r *runtime.Registration) {
			r.Producers = []runtime.ProducerPeer{{InitPort: 1, Port: 2}}
		},
		"Producers[0].InitPort": func(r *runtime.Registration) { r.Producers = []runtime.ProducerPeer{{Host: "h", Port: 2}} },
		"Producers[0].Port": func(r *runtime.Registration) {
			r.Producers = []runtime.ProducerPeer{{Host: "h", InitPort: 2}}
		},
		"Ranks":  func(r *runtime.Registration) { r.Ranks = 0 },
		"Stages": func(r *runtime.Registration) { r.Stages = 1 << 20 },
	} {
		r := good
		change(&r)
		_, err := d.Consumer().Register(t.Context(), r)
		wantField(t, err, field)
	}
	bad := good
	bad.Blocks = blocksOf(0, []uint32{16})
	r, err := d.Consumer().Register(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, outcome(t, r.Done()).Err, effects.Invalid)
	_, err = d.BlockBytes(4, 0)
	wantField(t, err, "region")
	_, err = d.BlockBytes(0, 16)
	wantField(t, err, "block")
	_, err = d.Sender().Reserve(t.Context(), 1)
	wantField(t, err, "register.engine_id")
	_, err = d.Receiver().Get(t.Context(), runtime.Get{Keys: keysOf("k", 1)})
	wantField(t, err, "register.engine_id")
	endAll(t, d)
	_, err = d.BlockBytes(0, 0)
	wantCode(t, err, effects.Closed)
	n := open(t, receiverConfig(t, "shm", nil))
	_, err = n.Consumer().Register(t.Context(), good)
	wantCode(t, err, effects.Unsupported)
	_, err = n.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{Request: "r"})
	wantCode(t, err, effects.Unsupported)
	_, err = n.BlockBytes(0, 0)
	wantCode(t, err, effects.Unsupported)
	mustClose(t, n)
}

// wantField demands an error about a field.
func wantField(tb testing.TB, err error, field string) {
	tb.Helper()
	if e := (*runtime.Error)(nil); !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
		tb.Errorf("got %v, want it to be about %s", err, field)
	}
}

// hasRegistration says that a producer has a registration.
func hasRegistration(s rank.Stats) bool { return s.Registrations > 0 }

// nothingRegistered says that nothing is registered or lent any more.
func nothingRegistered(s rank.Stats) bool {
	return s.PagesFree == s.PagesTotal && s.Receptions+s.LeasedBatches+s.Registrations+s.Grants == 0
}
