//go:build cgo && linux

package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Stats counts what a gateway has done since it was opened, and what is there now.
type Stats struct {
	Producers, Consumers int // now: engines that write here, and that are written to
	Agents               int // now: of ours, the front's included

	Asked    Results // questions of ours to side channels of engines
	Served   Results // questions of engines to side channels of ours
	Made     Results // agents of ours
	Loaded   Results // agents of engines that ours learnt
	Heard    Results // notes of engines; those that failed were too long, or too much waited
	Said     Results // notes of ours
	Writes   Results // transfers to engines
	Bytes    uint64  // of those that went well
	Expelled uint64  // peers whose agents were destroyed to revoke what they might have written
}

// Results counts one operation by how it ended.
type Results struct{ OK, Failed uint64 }

func (r *Results) add(ok bool) {
	if ok {
		r.OK++
	} else {
		r.Failed++
	}
}

// String has all counts by name; of operations those that went well, and those that failed.
func (s Stats) String() string {
	return fmt.Sprintf("producers=%d consumers=%d agents=%d asked=%v served=%v made=%v loaded=%v heard=%v said=%v "+
		"writes=%v bytes=%d expelled=%d", s.Producers, s.Consumers, s.Agents, s.Asked, s.Served, s.Made, s.Loaded, s.Heard,
		s.Said, s.Writes, s.Bytes, s.Expelled)
}

// String is how many went well, and how many failed.
func (r Results) String() string { return fmt.Sprintf("%d/%d", r.OK, r.Failed) }

// Stats returns the counters. It may be called from any goroutine.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

func (g *Gateway) count(f func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.stats)
}

// counted counts an end of a job. It is the machine's goroutine's.
func (g *Gateway) counted(j *job, code effects.Code) {
	g.count(func(s *Stats) {
		if s.Writes.add(code == effects.OK); code == effects.OK {
			s.Bytes += j.bytes
		}
	})
}
