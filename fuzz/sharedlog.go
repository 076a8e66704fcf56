package fuzz

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// SharedLog checks the decoders of the log that directories share. The input is decoded as it is, and as the content of
// an entry and of a reply with correct checksums.
var SharedLog = statelessTarget("SharedLog", checkSharedLog, sharedLogSeeds)

// sharedLogSeeds returns a message of each form, and frames, of which the last states more bytes than there are.
func sharedLogSeeds() [][]byte {
	subject := sharedlog.Subject{Follower: 7, Rank: 1, Instance: []byte("a")}
	frames := sharedlog.AppendFrame(sharedlog.AppendFrame(nil, sharedlog.FrameReport, []byte("hello")), sharedlog.FrameMissing,
		subject.Append(nil))
	entry := (&sharedlog.Entry{Author: 7, Number: 3, Frames: frames}).Append(nil)
	return [][]byte{
		frames, entry, (&sharedlog.Request{Entry: entry, Keep: 100}).Append(nil),
		(&sharedlog.Request{After: sharedlog.Position{Major: 1}, Limit: 9}).Append(nil),
		(&sharedlog.Reply{Entries: []sharedlog.StoredEntry{{Entry: entry}}}).Append(nil),
		{1, 255, 255, 255, 255, 0},
	}
}

func checkSharedLog(b []byte) error {
	var r sharedlog.Request
	var a sharedlog.Reply
	var e sharedlog.Entry
	if err := r.Decode(b); err == nil && !bytes.Equal(r.Append(nil), b) {
		return fmt.Errorf("a request of %+v is not what was read", r)
	}
	if err := a.Decode(b); err == nil && !bytes.Equal(a.Append(nil), b) {
		return fmt.Errorf("an answer of %+v is not what was read", a)
	}
	if err := e.Decode(b); err == nil && !bytes.Equal(e.Append(nil), b) {
		return fmt.Errorf("an entry of %+v is not what was read", e)
	}
	var again []byte
	rest, whole := b, true
	for len(rest) > 0 && whole {
		var k sharedlog.FrameKind
		var body []byte
		if k, body, rest, whole = sharedlog.CutFrame(rest); whole {
			again = sharedlog.AppendFrame(again, k, body)
		}
		var s sharedlog.Subject
		if s.Decode(body) == nil && !bytes.Equal(s.Append(nil), body) {
			return fmt.Errorf("a subject of %+v is not what was read", s)
		}
	}
	err := e.Decode((&sharedlog.Entry{Author: 1, Frames: b}).Append(nil))
	if whole != (err == nil) || err != nil && !errors.Is(err, sharedlog.ErrFormat) {
		return fmt.Errorf("frames that are whole: %v, are read with %w", whole, err)
	}
	if whole && !bytes.Equal(again, b) {
		return fmt.Errorf("the frames are %x, read were %x", again, b)
	}
	stored := sharedlog.Reply{Entries: []sharedlog.StoredEntry{{Entry: b}}}
	if err := a.Decode(stored.Append(nil)); err != nil || len(a.Entries) != 1 || !bytes.Equal(a.Entries[0].Entry, b) {
		return fmt.Errorf("an entry of %d bytes is read as %d: %w", len(b), len(a.Entries), err)
	}
	return nil
}
