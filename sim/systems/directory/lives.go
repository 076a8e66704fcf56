package directory

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// lives are which life each worker and each directory is in, as they say themselves, and of whom a former life was
// heard behind the present one: the last word of that was late. Who hears it cannot know which of the two is over. He
// finds out when he has not heard the former one for a while, and where that while is longer than the run, never.
type lives struct {
	now     map[who]protocol.UUID
	late    map[who]bool
	tellers map[string]uint64 // by the name of a directory's node
	told    bool              // a directory's former life told others something behind the present one
	endless bool              // that while is longer than the run
}

// sent follows what makes somebody known, as he says it.
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

// came follows it as a directory hears it, or the log.
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

// lost says whether a directory may take a former life of a worker for the present one until the end of the run.
func (b *lives) lost(is who) bool { return b.endless && (b.told || b.late[is]) }

// makesKnown reads a registration or a heartbeat: of which worker it is, and of which life.
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

// entered reads what a directory wants to be in the log.
func entered(body []byte) (e sharedlog.Entry, ok bool) {
	var r sharedlog.Request
	ok = r.Decode(body) == nil && e.Decode(r.Entry) == nil
	return e, ok
}
