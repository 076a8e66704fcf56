package nixl

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

var (
	someHello = hello{from: effects.Incarnation{1}, to: effects.Incarnation{2}, proof: [16]byte{3}, session: [16]byte{4},
		boot: [16]byte{5}}
	someWord = welcome{from: effects.Incarnation{2}, boot: [16]byte{5}, base: 0x1000, probe: 0x9000, proof: [16]byte{7},
		buffer: effects.Buffer{ID: effects.BufferID{6}, Pages: 4, PageBytes: 100}}
	someAccept = accept{epoch: 9, more: true, revoked: []effects.GrantID{80, 90}, metadata: []byte("metadata")}
)

// body returns what a frame carries.
func body(t *testing.T, frame []byte, want kind) []byte {
	t.Helper()
	k, body, _, err := framing.ReadFrame(bytes.NewReader(frame), nil, maxFrame)
	if err != nil || kind(k) != want {
		t.Fatalf("kind %d, %v", k, err)
	}
	return body
}

func TestFramesComeBack(t *testing.T) {
	if h, err := parseHello(body(t, appendHello(nil, someHello), kindHello)); err != nil || h != someHello {
		t.Errorf("%+v, %v", h, err)
	}
	if w, err := parseWelcome(body(t, appendWelcome(nil, someWord), kindWelcome)); err != nil || w != someWord {
		t.Errorf("%+v, %v", w, err)
	}
	a, err := parseAccept(body(t, appendAccept(nil, someAccept), kindAccept))
	if err != nil || !reflect.DeepEqual(a, someAccept) {
		t.Errorf("%+v, %v", a, err)
	}
	if epoch, err := parseEpoch(body(t, appendEpoch(nil, kindGone, 6), kindGone)); err != nil || epoch != 6 {
		t.Errorf("%d, %v", epoch, err)
	}
	// A refusal carries nothing else.
	w, err := parseWelcome(body(t, appendWelcome(nil, welcome{code: effects.Stale}), kindWelcome))
	if err != nil || w.code != effects.Stale {
		t.Errorf("%+v, %v", w, err)
	}
	// The longest accept is parsed.
	long := accept{epoch: 1, revoked: make([]effects.GrantID, plane.MaxRevoked), metadata: make([]byte, maxMetadata)}
	if _, err := parseAccept(body(t, appendAccept(nil, long), kindAccept)); err != nil {
		t.Error(err)
	}
}

func TestMalformedFrames(t *testing.T) {
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	heads := framing.HeaderBytes
	greeted, word := appendHello(nil, someHello)[heads:], appendWelcome(nil, someWord)[heads:]
	answer := appendAccept(nil, someAccept)[heads:]
	empty, wraps, nobody, bare, zero := someWord, someWord, someHello, someAccept, someAccept
	empty.buffer.Pages = 0
	wraps.base, wraps.buffer.PageBytes = 1<<63|1, 1<<62
	nobody.from = effects.Incarnation{}
	bare.metadata, zero.epoch = nil, 0
	for name, err := range map[string]error{
		"short hello":       errorOf(parseHello(greeted[1:])),
		"another version":   errorOf(parseHello(change(greeted, 0, 2))),
		"nobody's hello":    errorOf(parseHello(appendHello(nil, nobody)[heads:])),
		"long welcome":      errorOf(parseWelcome(append(bytes.Clone(word), 0))),
		"no pages":          errorOf(parseWelcome(appendWelcome(nil, empty)[heads:])),
		"memory that wraps": errorOf(parseWelcome(appendWelcome(nil, wraps)[heads:])),
		"no epoch":          errorOf(parseEpoch(make([]byte, 8))),
		"short epoch":       errorOf(parseEpoch(make([]byte, 7))),
		"short accept":      errorOf(parseAccept(answer[:acceptBytes-1])),
		"half a grant":      errorOf(parseAccept(answer[:len(answer)-1])),
		"a mark of 2":       errorOf(parseAccept(change(answer, 9, 2))),
		"more grants":       errorOf(parseAccept(change(answer, 11, 255))),
		"more metadata":     errorOf(parseAccept(change(answer, 15, 255))),
		"no metadata":       errorOf(parseAccept(appendAccept(nil, bare)[heads:])),
		"accept of epoch 0": errorOf(parseAccept(appendAccept(nil, zero)[heads:])),
	} {
		if !errors.Is(err, framing.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// FuzzFrames: any bytes are refused as malformed, or mean the same after they were encoded again.
func FuzzFrames(f *testing.F) {
	for k, frame := range [][]byte{appendHello(nil, someHello), appendWelcome(nil, someWord),
		appendAccept(nil, someAccept), appendEpoch(nil, kindGone, 6)} {
		f.Add(uint8(k), frame[framing.HeaderBytes:])
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		var again []byte
		var err error
		switch which % 4 {
		case 0:
			var h hello
			h, err = parseHello(b)
			again = appendHello(nil, h)
		case 1:
			var w welcome
			if w, err = parseWelcome(b); w.code != effects.OK {
				return
			}
			again = appendWelcome(nil, w)
		case 2:
			var a accept
			if a, err = parseAccept(b); a.code != effects.OK {
				return
			}
			again = appendAccept(nil, a)
		case 3:
			var epoch uint64
			epoch, err = parseEpoch(b)
			again = appendEpoch(nil, kindGone, epoch)
		}
		if err != nil {
			if !errors.Is(err, framing.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(again[framing.HeaderBytes:], b) {
			t.Fatalf("%x is said again as %x", b, again[framing.HeaderBytes:])
		}
	})
}

// The verdict about the target's end of an epoch: the target's message counts for that epoch and all before, the end
// of its connection counts for all epochs if it is the word of the kernel, and nothing that is known is ever
// forgotten.
func TestTargetState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := newTargetState()
		var gone uint64
		deaf, ended, proven := false, false, false
		for range 8 {
			_, moved := p.statusOf(1)
			switch rng.IntN(4) {
			case 0:
				gone = max(gone, rng.Uint64N(4))
				p.updateState(func() { p.goneEpoch = gone })
			case 1:
				deaf = true
				p.updateState(func() { p.messagesEnded = true })
			case 2:
				if !ended {
					ended, proven = true, rng.IntN(2) == 0
				}
				p.updateState(func() { p.connEnded, p.provenGone = true, proven })
			case 3:
				p.updateState(func() {})
			}
			select {
			case <-moved:
			default:
				t.Fatal("who waits was not told")
			}
			for epoch := uint64(1); epoch < 4; epoch++ {
				want := statusUnknown
				switch {
				case gone >= epoch || proven:
					want = statusOver
				case ended:
					want = statusUnprovable
				case deaf:
					want = statusNeedsConnEnd
				}
				if got, _ := p.statusOf(epoch); got != want {
					t.Fatalf("epoch %d: %d; want %d", epoch, got, want)
				}
			}
		}
	}
}
