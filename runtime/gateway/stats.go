//go:build cgo && linux

package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Stats counts what a gateway has done since it was opened, and what exists now.
type Stats struct {
	Producers, Consumers int // engines that write to this node now, and that this node writes to
	Agents               int // our agents that exist now, including the front's

	RequestsSent   Results // requests of ours to side channels of engines
	RequestsServed Results // requests of engines to side channels of ours
	AgentsMade     Results // agents of ours that were made
	AgentsLoaded   Results // agents of engines that ours loaded
	NotesReceived  Results // notes of engines; failed: too long, or too many were queued
	NotesSent      Results // notes of ours
	Writes         Results // transfers to engines
	Bytes          uint64  // of successful transfers
	Expelled       uint64  // peers whose agents were destroyed to revoke their grants
}

// Results counts an operation by outcome.
type Results struct{ OK, Failed uint64 }

func (r *Results) countOutcome(ok bool) {
	if ok {
		r.OK++
	} else {
		r.Failed++
	}
}

// String returns all counts by name. An operation has two counts: successes and failures.
func (s Stats) String() string {
	return fmt.Sprintf("producers=%d consumers=%d agents=%d queries=%v served=%v made=%v loaded=%v received=%v sent=%v "+
		"writes=%v bytes=%d expelled=%d", s.Producers, s.Consumers, s.Agents, s.RequestsSent, s.RequestsServed,
		s.AgentsMade, s.AgentsLoaded, s.NotesReceived, s.NotesSent, s.Writes, s.Bytes, s.Expelled)
}

// String returns the number of successes and the number of failures.
func (r Results) String() string { return fmt.Sprintf("%d/%d", r.OK, r.Failed) }

// Stats returns the counters. The method may be called from any goroutine.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

func (g *Gateway) updateStats(f func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.stats)
}

// countWrite counts the end of a job. Only the machine's goroutine calls countWrite.
func (g *Gateway) countWrite(j *writeJob, code effects.Code) {
	g.updateStats(func(s *Stats) {
		if s.Writes.countOutcome(code == effects.OK); code == effects.OK {
			s.Bytes += j.bytes
		}
	})
}

// VisitCounts implements runtime.CountingGateway.
func (g *Gateway) VisitCounts(visit func(operation string, ok, failed uint64)) {
	s := g.Stats()
	for _, x := range []struct {
		operation string
		results   Results
	}{
		{"request_sent", s.RequestsSent}, {"request_served", s.RequestsServed}, {"agent_made", s.AgentsMade}, {"agent_loaded", s.AgentsLoaded},
		{"note_received", s.NotesReceived}, {"note_sent", s.NotesSent}, {"write", s.Writes}, {"expulsion", Results{OK: s.Expelled}},
	} {
		visit(x.operation, x.results.OK, x.results.Failed)
	}
}

// CountEngines implements runtime.CountingGateway.
func (g *Gateway) CountEngines() (producers, consumers, agents int) {
	s := g.Stats()
	return s.Producers, s.Consumers, s.Agents
}
