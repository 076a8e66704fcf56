package replica

import "github.com/kvferry/kvferry/protocol/sharedlog"

// marks determines the position in the log from which on the entries have as many bytes as the log is to keep: a
// position is recorded each time a certain number of bytes has been read. All directories that share a log read all
// of it, so each directory that appends can request the truncation.
type marks struct {
	most int
	// total counts the bytes that were read so far, including the overhead of the log for each entry.
	total int
	rows  []mark
	first int // index of the oldest row; rows is a ring
}

type mark struct {
	at   sharedlog.Position
	read int // value of total after the entry at this position
}

const (
	marksMost = 64
	// entryCosts is the overhead in bytes of an entry in the log.
	entryCosts = 128
)

func newMarks(most int) marks { return marks{most: most} }

// read records an entry that was read.
func (m *marks) read(at sharedlog.Position, bytes int) {
	m.total += bytes + entryCosts
	n := len(m.rows)
	if n > 0 && m.total-m.rows[(m.first+n-1)%n].read < m.most/marksMost {
		return
	}
	if n < marksMost+1 {
		m.rows = append(m.rows, mark{at, m.total})
		return
	}
	m.rows[m.first] = mark{at, m.total}
	m.first = (m.first + 1) % n
}

// before returns the first mark after which the log holds no more bytes than it is to keep. The zero position means
// that nothing is to be deleted.
func (m *marks) before() sharedlog.Position {
	if m.total <= m.most {
		return sharedlog.Position{}
	}
	for i := range m.rows {
		if x := &m.rows[(m.first+i)%len(m.rows)]; m.total-x.read <= m.most {
			return x.at
		}
	}
	return sharedlog.Position{}
}

// clear removes all marks, because the log began anew.
func (m *marks) clear() { m.total, m.rows, m.first = 0, m.rows[:0], 0 }
