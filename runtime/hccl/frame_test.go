package hccl

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

var (
	someRank = comm.Rank{Server: "node-a", Device: 3, Address: netip.MustParseAddr("192.168.1.10"), Port: 16666,
		Pod: &comm.Pod{ID: 7, Device: 67108867}}
	someHello = hello{from: effects.Incarnation{1}, to: effects.Incarnation{2}, proof: [16]byte{3}, session: [16]byte{4},
		boot: [16]byte{5}, rank: someRank, regions: 2}
	someWord = welcome{from: effects.Incarnation{2}, boot: [16]byte{5}, link: comm.HCCS,
		rank: comm.Rank{Server: "b", Address: netip.MustParseAddr("fd00::1")},
		pools: []plane.ServedPool{somePool, {Buffer: effects.Buffer{ID: effects.BufferID{7}, Pages: 2, PageBytes: 100},
			Region: plane.Region{Base: 0x2000, Bytes: 200}}}, regions: 2}
	somePool = plane.ServedPool{Buffer: effects.Buffer{ID: effects.BufferID{6}, Pages: 4, PageBytes: 100},
		Region: plane.Region{Host: true, Base: 0x1000, Bytes: 400}}
	someAccept = accept{epoch: 9, code: effects.OK, moreRevoked: true, revoked: []effects.GrantID{80, 90}, root: []byte("root")}
)

// bodyOf returns the body of a frame.
func bodyOf(t *testing.T, frame []byte, want kind) []byte {
	t.Helper()
	k, body, _, err := framing.ReadFrame(bytes.NewReader(frame), nil, frameMax)
	if err != nil || kind(k) != want {
		t.Fatalf("kind %d, %v", k, err)
	}
	return body
}

func TestFramesComeBack(t *testing.T) {
	if h, err := parseHello(bodyOf(t, appendHello(nil, someHello), kindHello)); err != nil ||
		!reflect.DeepEqual(h, someHello) {
		t.Errorf("%+v, %v", h, err)
	}
	if w, err := parseWelcome(bodyOf(t, appendWelcome(nil, someWord), kindWelcome)); err != nil ||
		!reflect.DeepEqual(w, someWord) {
		t.Errorf("%+v, %v", w, err)
	}
	if a, err := parseAccept(bodyOf(t, appendAccept(nil, someAccept), kindAccept)); err != nil ||
		!reflect.DeepEqual(a, someAccept) {
		t.Errorf("%+v, %v", a, err)
	}
	epoch, root, err := parseOffer(bodyOf(t, appendOffer(nil, 5, []byte("r")), kindOffer))
	if err != nil || epoch != 5 || string(root) != "r" {
		t.Errorf("%d, %q, %v", epoch, root, err)
	}
	if epoch, err := parseEpoch(bodyOf(t, appendEpoch(nil, kindGone, 6), kindGone)); err != nil || epoch != 6 {
		t.Errorf("%d, %v", epoch, err)
	}
	// A refusal says nothing else.
	if w, err := parseWelcome(bodyOf(t, appendWelcome(nil, welcome{code: effects.Stale}), kindWelcome)); err != nil ||
		w.code != effects.Stale {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestFramesThatLie(t *testing.T) {
	change := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	heads := framing.HeaderBytes
	greeting, word := appendHello(nil, someHello)[heads:], appendWelcome(nil, someWord)[heads:]
	offer, answer := appendOffer(nil, 5, []byte("r"))[heads:], appendAccept(nil, someAccept)[heads:]
	empty, wraps, twins, long := someWord, someWord, someWord, somePool
	long.Base, long.PageBytes = 1<<63|1, 1<<62
	empty.pools, wraps.pools = nil, []plane.ServedPool{somePool, long}
	twins.pools = []plane.ServedPool{somePool, somePool}
	for name, err := range map[string]error{
		"short hello":       errorOf(parseHello(greeting[1:])),
		"other magic":       errorOf(parseHello(change(greeting, 0, 9))),
		"nobody":            errorOf(parseHello(append(greeting[:4:4], append(make([]byte, 16), greeting[20:]...)...))),
		"long server":       errorOf(parseHello(change(greeting, 84+39, serverMax+1))),
		"half a pod":        errorOf(parseHello(change(greeting, 84+22, 2))),
		"short welcome":     errorOf(parseWelcome(word[1:])),
		"no pages":          errorOf(parseWelcome(appendWelcome(nil, empty)[heads:])),
		"memory that wraps": errorOf(parseWelcome(appendWelcome(nil, wraps)[heads:])),
		"two of one name":   errorOf(parseWelcome(appendWelcome(nil, twins)[heads:])),
		"no regions":        errorOf(parseWelcome(change(word, len(word)-17, 0))),
		"long offer":        errorOfThree(parseOffer(append(bytes.Clone(offer), 0))),
		"short offer":       errorOfThree(parseOffer(offer[:4])),
		"much root":         errorOfThree(parseOffer(change(offer, 9, 255))),
		"offer of epoch 0":  errorOfThree(parseOffer(change(offer, 0, 0))),
		"short accept":      errorOf(parseAccept(answer[:20])),
		"long accept":       errorOf(parseAccept(append(bytes.Clone(answer), 0))),
		"many grants":       errorOf(parseAccept(change(answer, 11, 255))),
		"mark of accept":    errorOf(parseAccept(change(answer, 9, 2))),
		"accept of epoch 0": errorOf(parseAccept(change(answer, 0, 0))),
		"short epoch":       errorOf(parseEpoch(offer[:7])),
		"gone of epoch 0":   errorOf(parseEpoch(make([]byte, 8))),
	} {
		if !errors.Is(err, framing.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func errorOf[T any](_ T, err error) error              { return err }
func errorOfThree[T, U any](_ T, _ U, err error) error { return err }

// Parsers never read beyond the bytes, whatever these are, and encoding an accepted frame gives the same bytes.
func FuzzFrames(f *testing.F) {
	f.Add(appendHello(nil, someHello))
	f.Add(appendWelcome(nil, someWord))
	f.Add(appendOffer(nil, 1, nil))
	f.Add(appendAccept(nil, someAccept))
	f.Add(appendEpoch(nil, kindGone, 3))
	f.Add(appendEpoch(nil, kindFenced, 4))
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{rankBytes, welcomeBytes, acceptBytes} {
		b := framing.AppendHeader(nil, uint8(1+n%6), n)
		for range n {
			b = append(b, byte(random.Uint32()))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, body, _, err := framing.ReadFrame(bytes.NewReader(b), nil, frameMax)
		if err != nil {
			return
		}
		var again []byte
		switch kind(k) {
		case kindHello:
			h, err := parseHello(body)
			if err != nil {
				return
			}
			if other, err := parseHello(appendHello(nil, h)[framing.HeaderBytes:]); err != nil || !reflect.DeepEqual(h, other) {
				t.Fatalf("took %+v, wrote %+v, %v", h, other, err)
			}
		case kindWelcome:
			w, err := parseWelcome(body)
			if err != nil || w.code != effects.OK {
				return
			}
			if other, err := parseWelcome(appendWelcome(nil, w)[framing.HeaderBytes:]); err != nil ||
				!reflect.DeepEqual(w, other) {
				t.Fatalf("took %+v, wrote %+v, %v", w, other, err)
			}
		case kindOffer:
			epoch, root, err := parseOffer(body)
			if err != nil {
				return
			}
			again = appendOffer(nil, epoch, root)
		case kindAccept:
			a, err := parseAccept(body)
			if err != nil || a.code == effects.Refused { // An unknown code becomes Refused.
				return
			}
			again = appendAccept(nil, a)
		case kindFenced, kindGone:
			epoch, err := parseEpoch(body)
			if err != nil {
				return
			}
			again = appendEpoch(nil, kind(k), epoch)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("took %x and would write %x", b, again)
		}
	})
}
