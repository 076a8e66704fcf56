package replica

import "github.com/kvferry/kvferry/protocol/sharedlog"

// truncationMarks determines the position in the log from which on the entries have as many bytes as the log is to
// keep: a position is recorded each time a certain number of bytes has been read. All directories that share a log read
// all of it, so each directory that appends can request the truncation.
type truncationMarks struct {
	limit int
	// totalBytes counts the bytes that were read so far, including the overhead of the log for each entry.
	totalBytes int
	ring       []mark
	oldest     int // index of the oldest row; rows is a ring
}

type mark struct {
	at         sharedlog.Position
	totalBytes int // value of total after the entry at this position
}

const (
	maxMarks = 64
	// storedOverhead is the overhead in bytes of an entry in the log.
	storedOverhead = 128
)

func newTruncationMarks(limit int) truncationMarks { return truncationMarks{limit: limit} }

// recordRead records an entry that was read.
func (m *truncationMarks) recordRead(at sharedlog.Position, bytes int) {
	m.totalBytes += bytes + storedOverhead
	n := len(m.ring)
	if n > 0 && m.totalBytes-m.ring[(m.oldest+n-1)%n].totalBytes < m.limit/maxMarks {
		return
	}
	if n < maxMarks+1 {
		m.ring = append(m.ring, mark{at, m.totalBytes})
		return
	}
	m.ring[m.oldest] = mark{at, m.totalBytes}
	m.oldest = (m.oldest + 1) % n
}

// truncateBefore returns the first mark after which the log holds no more bytes than it is to keep. The zero position
// means that nothing is to be deleted.
func (m *truncationMarks) truncateBefore() sharedlog.Position {
	if m.totalBytes <= m.limit {
		return sharedlog.Position{}
	}
	for i := range m.ring {
		if x := &m.ring[(m.oldest+i)%len(m.ring)]; m.totalBytes-x.totalBytes <= m.limit {
			return x.at
		}
	}
	return sharedlog.Position{}
}

// clearMarks removes all marks, because the log began anew.
func (m *truncationMarks) clearMarks() { m.totalBytes, m.ring, m.oldest = 0, m.ring[:0], 0 }
