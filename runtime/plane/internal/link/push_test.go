package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// anySlot is a receiver that ignores what it receives.
type anySlot struct{ Receiver }

func (anySlot) HasPermit(uint32) bool { return true }

type discardSink struct{}

func (discardSink) Post(effects.Event) {}

// A push of pages that its peer does not have is refused before its grant is checked, and so is one that gathers from
// such pages.
func TestPushOfUnknownPagesIsRefused(t *testing.T) {
	pool, err := plane.NewPool(plane.PoolConfig{Pages: 2, PageBytes: 128, Sink: discardSink{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	in := &IncomingLink{plane: &Plane{env: plane.Env{Pool: pool, Bounds: plane.Bounds{Transfers: 1, PagesPerBatch: 8}}},
		receiver: anySlot{}, hello: Hello{Buffer: effects.Buffer{Pages: 4, PageBytes: 64}}}
	layers := func(a, b uint32) TransferRequest {
		return TransferRequest{Pairs: []effects.Pair{{Local: effects.Page{Length: 128}}}, Gather: effects.Gather{
			Layers: 2, Stripes: 1, Pages: []effects.Page{{Index: a, Length: 64}, {Index: b, Length: 64}}}}
	}
	long := layers(0, 1)
	long.Pairs[0].Local.Length, long.Gather.Pages[1].Length = 130, 66
	for _, c := range []struct {
		name string
		ask  TransferRequest
		code effects.Code
	}{
		{"a page", TransferRequest{Pairs: []effects.Pair{{Local: effects.Page{Index: 3, Length: 64}}}}, effects.Withdrawn},
		{"a page too many", TransferRequest{Pairs: []effects.Pair{{Local: effects.Page{Index: 4, Length: 64}}}}, effects.Invalid},
		{"a page too long", TransferRequest{Pairs: []effects.Pair{{Local: effects.Page{Index: 3, Length: 65}}}}, effects.Invalid},
		{"layers", layers(2, 3), effects.Withdrawn},
		{"a layer too many", layers(3, 4), effects.Invalid},
		{"a layer too long", long, effects.Invalid},
	} {
		if _, code := in.admitPush(c.ask); code != c.code {
			t.Errorf("%s: %s, want %s", c.name, code, c.code)
		}
	}
}
