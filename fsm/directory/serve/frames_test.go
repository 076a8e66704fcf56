package serve

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// A step ends its work on frames at the first of its two limits, whichever that is, and the log is not read again before all
// frames have been handled.
func TestEachLimitOfFramesEndsAStep(t *testing.T) {
	for _, x := range []struct {
		what          string
		frames, bytes int // of each frame
		steps         int
	}{
		{"as many small frames as a step may handle", followFrames, 10, 2},
		{"more small frames", followFrames + 1, 10, 2},
		{"three times as many small frames", 3*followFrames - 1, 10, 3},
		{"frames of half of the bytes", 3, followBytes / 2, 2},
		{"a frame of all bytes, and another one", 2, followBytes, 3},
		{"frames of more than all bytes", 3, followBytes + 1, 4},
		{"few small frames", 3, 10, 1},
	} {
		l := newLog(t)
		var frames []byte
		for range x.frames {
			frames = sharedlog.AppendFrame(frames, sharedlog.FrameReport, make([]byte, x.bytes))
		}
		before := l.reading
		l.readsUntil(99, sharedlog.Entry{Author: 2, Frames: frames})
		steps := 1
		for ; l.reading == before && steps < 10; steps++ {
			l.does(&effects.Tick{})
		}
		if steps != x.steps {
			t.Errorf("%s: the log is read again in step %d, want %d", x.what, steps, x.steps)
		}
	}
}

// readsUntil answers a read by entries of a log that has further entries, up to the given position.
func (l *log) readsUntil(end uint64, entries ...sharedlog.Entry) {
	a := sharedlog.Reply{Last: sharedlog.Position{Major: end}}
	for _, e := range entries {
		l.at++
		a.Entries = append(a.Entries, sharedlog.StoredEntry{At: sharedlog.Position{Major: l.at}, Entry: e.Append(nil)})
	}
	l.does(&effects.Replied{Corr: l.reading, Body: a.Append(nil)})
}
