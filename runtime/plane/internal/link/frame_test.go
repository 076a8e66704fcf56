package link

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

func drawBuffer(t *rapid.T) effects.Buffer {
	return effects.Buffer{ID: effects.BufferID(draw16(t)), Pages: rapid.Uint32().Draw(t, "pages"),
		PageBytes: rapid.Uint64().Draw(t, "page bytes")}
}

func draw16(t *rapid.T) [16]byte { return [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")) }

func drawRequest(t *rapid.T) TransferRequest {
	a := TransferRequest{Transfer: rapid.Uint64().Draw(t, "transfer"), Slot: rapid.Uint32().Draw(t, "slot"),
		Grant: effects.GrantID(rapid.Uint64().Draw(t, "grant"))}
	for range rapid.IntRange(1, 9).Draw(t, "pairs") {
		a.Pairs = append(a.Pairs, effects.Pair{
			Local: effects.Page{Index: rapid.Uint32().Draw(t, "from"),
				Generation: effects.Generation(rapid.Uint64().Draw(t, "life")), Length: rapid.Uint32().Draw(t, "length")},
			Remote: effects.RemotePage{Index: rapid.Uint32().Draw(t, "to"),
				Generation: effects.Generation(rapid.Uint64().Draw(t, "life"))},
		})
	}
	return a
}

func mustBody(t *rapid.T, frame []byte, want Kind) []byte {
	kind, body, _, err := ReadFrame(bytes.NewReader(frame), nil, len(frame))
	if err != nil || kind != want {
		t.Fatalf("read kind %d, %v; want kind %d", kind, err, want)
	}
	if _, _, _, err := ReadFrame(bytes.NewReader(frame), nil, len(frame)-1); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a frame beyond the limit: %v", err)
	}
	if _, _, _, err := ReadFrame(bytes.NewReader(frame[:len(frame)-1]), nil,
		len(frame)); !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		t.Fatalf("a frame cut short: %v", err)
	}
	return body
}

func TestFramesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Hello{From: draw16(t), To: draw16(t), Proof: draw16(t), Session: draw16(t), Buffer: drawBuffer(t)}
		h.From[0] |= 1 // Zero is not a valid incarnation.
		if got, err := ParseHello(mustBody(t, AppendHello(nil, KindJoin, h), KindJoin)); err != nil || got != h {
			t.Fatalf("hello: %+v, %v", got, err)
		}
		code := effects.Code(rapid.IntRange(0, int(effects.Failed)-1).Draw(t, "code")) // Failed is never sent.
		w := Welcome{Code: code, From: draw16(t), Buffer: drawBuffer(t), Proof: draw16(t)}
		if got, err := parseWelcome(mustBody(t, AppendWelcome(nil, w), KindWelcome)); err != nil || got != w {
			t.Fatalf("welcome: %+v, %v", got, err)
		}
		a := drawRequest(t)
		if got, err := parseRequest(mustBody(t, appendRequest(nil, KindPush, a), KindPush), 9); err != nil ||
			!reflect.DeepEqual(got, a) {
			t.Fatalf("push: %+v, %v", got, err)
		}
		if got, err := parseRequest(mustBody(t, appendRequest(nil, KindRead, a), KindRead), 9); err != nil ||
			!reflect.DeepEqual(got, a) {
			t.Fatalf("read: %+v, %v", got, err)
		}
		if a.Gather = drawGather(t, a.Pairs); a.Gather.Layers > 0 {
			got, err := parseGather(mustBody(t, appendRequest(nil, KindGather, a), KindGather), 36)
			if err != nil || !reflect.DeepEqual(got, a) {
				t.Fatalf("gather: %+v, %v", got, err)
			}
		}
		n := rapid.Uint64().Draw(t, "number")
		if got, err := parseCancel(mustBody(t, appendCancel(nil, n), KindCancel)); err != nil || got != n {
			t.Fatalf("cancel: %d, %v", got, err)
		}
		if got, code, err := parseDone(mustBody(t, appendDone(nil, n, w.Code), KindDone)); err != nil || got != n ||
			code != w.Code {
			t.Fatalf("done: %d, %s, %v", got, code, err)
		}
	})
}

// drawGather draws the parts of which pairs consist, and gives the pairs lengths that divide by them.
func drawGather(t *rapid.T, pairs []effects.Pair) (g effects.Gather) {
	g.Layers, g.Stripes = rapid.Uint32Range(1, 4).Draw(t, "layers"), rapid.Uint32Range(1, 3).Draw(t, "stripes")
	for i := range pairs {
		length := g.Stripes * rapid.Uint32Range(0, 100).Draw(t, "bytes")
		pairs[i].Local.Length = length * g.Layers
		for range g.Layers {
			g.Pages = append(g.Pages, effects.Page{Index: rapid.Uint32().Draw(t, "layer"), Length: length,
				Generation: effects.Generation(rapid.Uint64().Draw(t, "life"))})
		}
	}
	return g
}

// A gather whose parts do not fit together, or do not have the right number of bytes, is malformed.
func TestGatherBounds(t *testing.T) {
	pair := effects.Pair{Local: effects.Page{Index: 1, Length: 12}}
	layer := effects.Page{Index: 2, Length: 6}
	good := effects.Gather{Layers: 2, Stripes: 3, Pages: []effects.Page{layer, layer}}
	behind := requestBytes + pairBytes
	for _, c := range []struct {
		name string
		bend func([]byte) []byte
	}{
		{"of no layers", func(b []byte) []byte { b[behind] = 0; return b }},
		{"of more layers than bytes", func(b []byte) []byte { b[behind] = 3; return b }},
		{"of four billion layers", func(b []byte) []byte { copy(b[behind:], "\xff\xff\xff\xff"); return b }},
		{"of no stripes", func(b []byte) []byte { b[behind+4] = 0; return b }},
		{"of stripes that do not divide", func(b []byte) []byte { b[behind+4] = 4; return b }},
		{"of four billion pairs", func(b []byte) []byte { copy(b[20:], "\xff\xff\xff\xff"); return b }},
		{"with a byte more", func(b []byte) []byte { return append(b, 0) }},
		{"with a byte less", func(b []byte) []byte { return b[:len(b)-1] }},
		{"that ends before its layers", func(b []byte) []byte { return b[:behind+gatherBytes-1] }},
		{"that ends in its head", func(b []byte) []byte { return b[:requestBytes-1] }},
	} {
		b := appendRequest(nil, KindGather, TransferRequest{Pairs: []effects.Pair{pair}, Gather: good})[headBytes:]
		if _, err := parseGather(b, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := parseGather(b, 1); !errors.Is(err, ErrMalformed) {
			t.Errorf("too many pages: %v", err)
		}
		if _, err := parseGather(c.bend(b), 2); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRequestBounds(t *testing.T) {
	pair := effects.Pair{Local: effects.Page{Index: 1}}
	for _, c := range []struct {
		name string
		ask  TransferRequest
		bend func([]byte) []byte
	}{
		{"no pairs", TransferRequest{Transfer: 1}, nil},
		{"too many pairs", TransferRequest{Pairs: []effects.Pair{pair, pair, pair}}, nil},
		{"count beyond the bytes", TransferRequest{Pairs: []effects.Pair{pair}}, func(b []byte) []byte { b[20] = 2; return b }},
		{"count of four billion", TransferRequest{Pairs: []effects.Pair{pair}},
			func(b []byte) []byte { copy(b[20:], "\xff\xff\xff\xff"); return b }},
		{"bytes beyond the count", TransferRequest{Pairs: []effects.Pair{pair}}, func(b []byte) []byte { return append(b, 0) }},
		{"cut short", TransferRequest{Pairs: []effects.Pair{pair}}, func(b []byte) []byte { return b[:requestBytes-1] }},
	} {
		b := appendRequest(nil, KindPush, c.ask)[headBytes:]
		if c.bend != nil {
			b = c.bend(b)
		}
		if _, err := parseRequest(b, 2); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// For any bytes, parsers stay within them, and what they accept they would encode in the same way.
func FuzzFrames(f *testing.F) {
	f.Add(AppendHello(nil, KindHello, Hello{From: effects.Incarnation{1}}))
	f.Add(AppendWelcome(nil, Welcome{}))
	f.Add(appendRequest(nil, KindPush, TransferRequest{Transfer: 1, Pairs: make([]effects.Pair, 2)}))
	f.Add(appendRequest(nil, KindRead, TransferRequest{Transfer: 2, Pairs: make([]effects.Pair, 1)}))
	f.Add(appendRequest(nil, KindGather, TransferRequest{Transfer: 3, Pairs: []effects.Pair{{Local: effects.Page{Length: 8}}},
		Gather: effects.Gather{Layers: 2, Stripes: 2, Pages: []effects.Page{{Length: 4}, {Length: 4}}}}))
	f.Add(appendCancel(nil, 1))
	f.Add(appendDone(nil, 1, effects.Stale))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, _, err := ReadFrame(bytes.NewReader(b), nil, maxFrame(64))
		if err != nil {
			return
		}
		var again []byte
		switch kind {
		case KindHello, KindJoin:
			var h Hello
			if h, err = ParseHello(body); err == nil {
				again = AppendHello(nil, kind, h)
			}
		case KindPush, KindRead:
			var a TransferRequest
			if a, err = parseRequest(body, 64); err == nil {
				again = appendRequest(nil, kind, a)
			}
		case KindGather:
			var a TransferRequest
			if a, err = parseGather(body, 64); err == nil {
				again = appendRequest(nil, kind, a)
			}
		case KindCancel:
			var n uint64
			if n, err = parseCancel(body); err == nil {
				again = appendCancel(nil, n)
			}
		case KindWelcome:
			_, _ = parseWelcome(body) // Unknown codes become Refused, so they are not encoded alike.
			return
		case KindDone:
			_, _, _ = parseDone(body)
			return
		default:
			return
		}
		if err == nil && !bytes.HasPrefix(b, again) {
			t.Fatalf("took %x and would write %x", b, again)
		}
	})
}
