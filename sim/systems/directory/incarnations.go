package directory

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// incarnations records the present incarnation of each worker and each directory, as stated in the messages that they
// sent, and the workers of which a message of an earlier incarnation arrived after the present one had sent its first.
// A directory that receives a late message cannot tell which incarnation has ended, until the earlier incarnation has
// been silent for some time. If that time is longer than the run, the directory never finds out.
type incarnations struct {
	current            map[workerID]protocol.UUID
	heardLate          map[workerID]bool // workers of which a message of another incarnation arrived late
	authors            map[string]uint64 // log author, by the name of a directory's node
	lateEntry          bool              // an entry arrived whose author is not the latest author of any directory's node
	keepsSilentWorkers bool              // a directory waits for a silent worker longer than the run (keepSilentWorkers)
}

// recordSent records a registration, a heartbeat or a log entry when it is sent.
func (b *incarnations) recordSent(from string, body []byte) {
	if id, incarnation, ok := decodeRegistration(body); ok {
		if b.current == nil {
			b.current, b.heardLate = map[workerID]protocol.UUID{}, map[workerID]bool{}
		}
		b.current[id] = incarnation
	}
	if e, ok := decodeEntry(body); ok {
		if b.authors == nil {
			b.authors = map[string]uint64{}
		}
		b.authors[from] = e.Author
	}
}

// recordArrival records the same messages, and the reports in log entries, when a directory or the log receives them.
func (b *incarnations) recordArrival(body []byte) {
	if id, incarnation, ok := decodeRegistration(body); ok && b.heardLate != nil && b.current[id] != incarnation {
		b.heardLate[id] = true
	}
	e, ok := decodeEntry(body)
	if !ok {
		return
	}
	b.lateEntry = b.lateEntry || !slices.Contains(slices.Collect(maps.Values(b.authors)), e.Author)
	for rest := e.Frames; len(rest) > 0; {
		var kind sharedlog.FrameKind
		var frame []byte
		var report sharedlog.Report
		kind, frame, rest, _ = sharedlog.CutFrame(rest)
		if kind, frame, _ = unwrapFrame(kind, frame); kind == sharedlog.FrameReport && report.Decode(frame) == nil {
			b.recordArrival(report.Body)
		}
	}
}

// mayStayStale reports whether a directory may take an earlier incarnation of a worker for the present one until the
// end of the run.
func (b *incarnations) mayStayStale(id workerID) bool {
	return b.keepsSilentWorkers && (b.lateEntry || b.heardLate[id])
}

// decodeRegistration decodes a registration or a heartbeat and returns the worker and its incarnation.
func decodeRegistration(body []byte) (id workerID, incarnation protocol.UUID, ok bool) {
	var r protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	switch {
	case r.Decode(body, nil) == nil:
		return workerIDOf(r.Worker), r.Incarnation, true
	case h.Decode(body, nil) == nil:
		return workerIDOf(h.Worker), h.Incarnation, true
	}
	return workerID{}, protocol.UUID{}, false
}

// decodeEntry decodes an entry that a directory writes to the log.
func decodeEntry(body []byte) (e sharedlog.Entry, ok bool) {
	var r sharedlog.Request
	ok = r.Decode(body) == nil && e.Decode(r.Entry) == nil
	return e, ok
}
