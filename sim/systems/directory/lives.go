package directory

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// lives records the present incarnation of each worker and each directory, as stated in their messages, and the workers
// of which a message of an earlier incarnation arrived after a message of the present one. A directory that receives a
// late message cannot tell which incarnation has ended, until the earlier incarnation has been silent for some time. If
// that time is longer than the run, the directory never finds out.
type lives struct {
	now     map[who]protocol.UUID
	late    map[who]bool
	tellers map[string]uint64 // log author, by the name of a directory's node
	told    bool              // a log entry of a directory's earlier incarnation was read after the incarnation had ended
	endless bool              // a directory waits for a silent worker longer than the run
}

// sent records a registration, a heartbeat or a log entry when it is sent.
func (b *lives) sent(from string, body []byte) {
	if is, life, ok := makesKnown(body); ok {
		if b.now == nil {
			b.now, b.late = map[who]protocol.UUID{}, map[who]bool{}
		}
		b.now[is] = life
	}
	if e, ok := entered(body); ok {
		if b.tellers == nil {
			b.tellers = map[string]uint64{}
		}
		b.tellers[from] = e.Author
	}
}

// came records the same messages when a directory or the log receives them.
func (b *lives) came(body []byte) {
	if is, life, ok := makesKnown(body); ok && b.late != nil && b.now[is] != life {
		b.late[is] = true
	}
	e, ok := entered(body)
	if !ok {
		return
	}
	b.told = b.told || !slices.Contains(slices.Collect(maps.Values(b.tellers)), e.Author)
	for rest := e.Frames; len(rest) > 0; {
		var kind sharedlog.FrameKind
		var frame []byte
		var told sharedlog.Report
		kind, frame, rest, _ = sharedlog.CutFrame(rest)
		if kind == sharedlog.FrameReport && told.Decode(frame) == nil {
			b.came(told.Body)
		}
	}
}

// lost reports whether a directory may take an earlier incarnation of a worker for the present one until the end of the
// run.
func (b *lives) lost(is who) bool { return b.endless && (b.told || b.late[is]) }

// makesKnown decodes a registration or a heartbeat and returns the worker and its incarnation.
func makesKnown(body []byte) (is who, life protocol.UUID, ok bool) {
	var r protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	switch {
	case r.Decode(body, nil) == nil:
		return whoIs(r.Worker), r.Incarnation, true
	case h.Decode(body, nil) == nil:
		return whoIs(h.Worker), h.Incarnation, true
	}
	return who{}, protocol.UUID{}, false
}

// entered decodes an entry that a directory writes to the log.
func entered(body []byte) (e sharedlog.Entry, ok bool) {
	var r sharedlog.Request
	ok = r.Decode(body) == nil && e.Decode(r.Entry) == nil
	return e, ok
}
