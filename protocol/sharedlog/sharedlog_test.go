package sharedlog

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

var positions = rapid.Custom(func(t *rapid.T) Position {
	return Position{rapid.Uint64().Draw(t, "major"), rapid.Uint64Range(0, 3).Draw(t, "minor")}
})

var texts = rapid.SliceOfN(rapid.Byte(), 1, 40)

// What was written is read, and nothing else is: no prefix of it, and none with a byte that was changed.
func TestForms(t *testing.T) {
	whole := func(t *rapid.T, b []byte, decode func([]byte) error) {
		if err := decode(b); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if n := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); decode(b[:n]) == nil {
			t.Errorf("%x is read up to %d", b, n)
		}
		other := bytes.Clone(b)
		other[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if decode(other) == nil {
			t.Errorf("%x is read, and was %x", other, b)
		}
		if err := decode(b); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("requests", rapid.MakeCheck(func(t *rapid.T) {
		x := Request{After: positions.Draw(t, "after"), Limit: rapid.Uint32().Draw(t, "most")}
		if rapid.Bool().Draw(t, "appends") {
			x = Request{
				Entry: texts.Draw(t, "entry"), Keep: rapid.Uint32().Draw(t, "keep"), Before: positions.Draw(t, "before"),
			}
		}
		var y Request
		whole(t, x.Append(nil), y.Decode)
		if !bytes.Equal(x.Entry, y.Entry) || x.Keep != y.Keep || x.Before != y.Before ||
			x.After != y.After || x.Limit != y.Limit {
			t.Errorf("%+v is read as %+v", x, y)
		}
	}))
	t.Run("answers", rapid.MakeCheck(func(t *rapid.T) {
		x := Reply{Last: positions.Draw(t, "last")}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			x.Entries = append(x.Entries, StoredEntry{positions.Draw(t, "at"), texts.Draw(t, "entry")})
		}
		var y Reply
		whole(t, x.Append(nil), y.Decode)
		if x.Last != y.Last || len(x.Entries) != len(y.Entries) {
			t.Fatalf("%+v is read as %+v", x, y)
		}
		for i, e := range x.Entries {
			if e.At != y.Entries[i].At || !bytes.Equal(e.Entry, y.Entries[i].Entry) {
				t.Errorf("%+v is read as %+v", x, y)
			}
		}
	}))
	t.Run("entries", rapid.MakeCheck(func(t *rapid.T) {
		x := Entry{Author: rapid.Uint64().Draw(t, "teller"), Number: rapid.Uint64().Draw(t, "nth")}
		var frames [][]byte
		for range rapid.IntRange(0, 3).Draw(t, "frames") {
			s := Subject{rapid.Uint64().Draw(t, "by"), rapid.Uint32().Draw(t, "rank"), texts.Draw(t, "instance")}
			frames = append(frames, s.Append(nil))
			x.Frames = AppendFrame(x.Frames, FrameUnfollowed, frames[len(frames)-1])
		}
		var y Entry
		whole(t, x.Append(nil), y.Decode)
		if x.Author != y.Author || x.Number != y.Number {
			t.Errorf("%+v is read as %+v", x, y)
		}
		rest := y.Frames
		for _, want := range frames {
			kind, body, after, ok := CutFrame(rest)
			var s Subject
			if rest = after; !ok || kind != FrameUnfollowed || !bytes.Equal(body, want) || s.Decode(body) != nil ||
				!bytes.Equal(s.Append(nil), want) {
				t.Errorf("a frame is %v %x, want %x", kind, body, want)
			}
		}
		if len(rest) != 0 {
			t.Errorf("%x is left", rest)
		}
	}))
}

// Lengths that are not there are not believed, though the sum is right.
func TestLengthsAreWithinTheBytes(t *testing.T) {
	entry := AppendFrame(nil, FrameReport, []byte("x"))
	entry[4] = 200
	x := Entry{Frames: entry}
	if new(Entry).Decode(x.Append(nil)) == nil {
		t.Error("an entry is read whose frame ends beyond it")
	}
	a := Reply{Entries: []StoredEntry{{Entry: []byte("x")}}}
	b := a.Append(nil)
	b = b[:len(b)-checksumBytes]
	b[17+16] = 255
	if new(Reply).Decode(appendChecksum(b, 0)) == nil {
		t.Error("an answer is read whose entry ends beyond it")
	}
	if new(Subject).Decode(make([]byte, 12)) == nil {
		t.Error("a subject is read that names nobody")
	}
	for _, p := range []Proven{{0, FrameReport, []byte("x")}, {1, FrameProven, []byte("x")}, {1, FrameReport, nil}} {
		if new(Proven).Decode(p.Append(nil)) == nil {
			t.Errorf("%+v is read", p)
		}
	}
	p, q := Proven{1 << 63, FrameFollowed, []byte("x")}, Proven{}
	if q.Decode(p.Append(nil)) != nil || q.Principal != p.Principal || q.Kind != p.Kind || !bytes.Equal(q.Body, p.Body) {
		t.Errorf("%+v is read as %+v", p, q)
	}
}
