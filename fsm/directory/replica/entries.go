package replica

import (
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// sealEntry makes an entry of the waiting frames, as many as fit, unless an entry is still unconfirmed.
func (l *Log) sealEntry() {
	if len(l.sealedEntry) > 0 {
		return
	}
	n, rest := 0, l.queuedFrames
	for n == 0 || n < l.config.EntryBytes {
		_, _, after, ok := sharedlog.CutFrame(rest)
		if !ok || n > 0 && len(l.queuedFrames)-len(after) > l.config.EntryBytes {
			break
		}
		n, rest = len(l.queuedFrames)-len(after), after
	}
	// Skipping a number shows all readers that frames are missing. The full syncs that the readers then request come
	// after the dropped frames.
	if l.frameDropped {
		l.frameDropped = false
		l.nextEntry++
	}
	e := sharedlog.Entry{Author: l.config.Incarnation, Number: l.nextEntry, Frames: l.queuedFrames[:n]}
	l.nextEntry++
	l.sealedEntry = e.Append(l.sealedEntry)
	l.queuedFrames = append(l.queuedFrames[:0], rest...)
}

// A Frame is a report of another directory.
type Frame struct {
	Kind         sharedlog.FrameKind
	Body         []byte // valid until the next call of Next or Step
	Author       uint64
	Gaps         uint64 // number of the author's last gap before the frame
	FirstOfEntry bool   // first frame of an entry
}

// Next returns the next frame that was read. When all frames were returned, ok is false, and further frames arrive by
// Step.
func (l *Log) Next() (f Frame, ok bool) {
	for l.frameOffset == l.frameEnd {
		if l.entryOffset == len(l.unread) {
			l.unread, l.entryOffset, l.frameOffset, l.frameEnd = table.TrimBytes(l.unread), 0, 0, 0
			return f, false
		}
		x, rest, _ := sharedlog.CutStoredEntry(l.unread[l.entryOffset:])
		l.entryOffset = len(l.unread) - len(rest)
		if frames, writer := l.followEntry(x.Entry); frames > 0 {
			l.author, l.firstOfEntry = writer, true
			l.frameEnd = l.entryOffset - sharedlog.EntryTailBytes
			l.frameOffset = l.frameEnd - frames
		}
	}
	k, body, rest, _ := sharedlog.CutFrame(l.unread[l.frameOffset:l.frameEnd])
	f = Frame{Kind: k, Body: body, Author: l.author.incarnation, Gaps: l.author.gaps, FirstOfEntry: l.firstOfEntry}
	l.frameOffset, l.firstOfEntry = l.frameEnd-len(rest), false
	return f, true
}

// followEntry decodes an entry that was read. It returns the length of the frames to return and the author of the
// entry. The length is 0 for entries of this directory, for entries that were read before, and for content that no
// directory appends.
func (l *Log) followEntry(stored []byte) (frames int, writer author) {
	var e sharedlog.Entry
	if len(stored) > l.config.maxEntryBytes() {
		return 0, writer
	}
	if err := e.Decode(stored); err != nil || e.Author == l.config.Incarnation {
		if err == sharedlog.ErrVersion { // Decode wraps no error.
			l.otherVersions++
		}
		return 0, writer
	}
	h := l.findAuthor(e.Author)
	if h == 0 {
		h = l.addAuthor(&e)
	}
	t := l.authors.Get(h)
	if e.Number < t.nextEntry {
		return 0, writer
	}
	if e.Number > t.nextEntry {
		l.gapCount++
		l.missedCount++
		t.gaps = l.gapCount
	}
	t.nextEntry = e.Number + 1
	l.authors.Unlink(&l.authorOrder, h)
	l.authors.PushBack(&l.authorOrder, h)
	return len(e.Frames), *t
}

// maxEntryBytes returns the largest size in bytes of an entry of a directory.
func (c *Config) maxEntryBytes() int {
	return max(c.EntryBytes, sharedlog.FrameBytes(c.FrameBytes)) + entryOverhead
}

// findAuthor returns the followed author with an incarnation, or 0 if there is none.
func (l *Log) findAuthor(incarnation uint64) table.Handle {
	for h := l.authorOrder.Front(); h != 0; h = l.authors.Next(h) {
		if l.authors.Get(h).incarnation == incarnation {
			return h
		}
	}
	return 0
}

// addAuthor begins to follow an author, from the first entry that was read. Earlier entries may have been missed, so a
// new gap number is used. If the table is full, the author read longest ago is removed.
func (l *Log) addAuthor(e *sharedlog.Entry) table.Handle {
	if l.authors.Full() {
		h := l.authorOrder.Front()
		l.authors.Unlink(&l.authorOrder, h)
		l.authors.Remove(h)
	}
	h, t := l.authors.Add()
	l.gapCount++
	*t = author{incarnation: e.Author, nextEntry: e.Number, gaps: l.gapCount}
	l.authors.PushBack(&l.authorOrder, h)
	return h
}

// entryOverhead is an upper bound of the bytes of an entry around the frames, and of a frame around the body.
const entryOverhead = 64

// VisitKeptTables reports the sizes of the tables and buffers, with their limits.
func (l *Log) VisitKeptTables(visit func(name string, n, most int)) {
	visit("authors", l.authors.Len(), l.config.Authors)
	visit("bytes to append", l.PendingBytes(), l.config.BufferBytes+l.config.maxEntryBytes())
}
