package replica

import "github.com/kvferry/kvferry/protocol/sharedlog"

// Marks say from where on the log has as many bytes as it is to keep: each time that some more of it was read, its
// position is marked. All directories that share a log read all of it, so each that appends can have it cut.
type marks struct {
	most  int
	total int // bytes that were read so far, with what the log needs for each entry
	rows  []mark
	first int // of them, the oldest: they are a ring
}

type mark struct {
	at   sharedlog.Position
	read int // total behind it
}

const (
	marksMost  = 64
	entryCosts = 128 // bytes of an entry beside its own, in the log
)

func newMarks(most int) marks { return marks{most: most} }

// read notes an entry.
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

// before is the first mark behind which there are no more bytes than the log is to keep; zero: all may stay.
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

// clear begins anew, with a log that has.
func (m *marks) clear() { m.total, m.rows, m.first = 0, m.rows[:0], 0 }
