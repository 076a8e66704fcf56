package demo

import "sync"

// An admission limits the chunks in flight to one decode process to the capacity of the process's pool, as the
// scheduler of a real deployment would. It admits requests in the order of their arrival.
type admission struct {
	mu        sync.Mutex
	freed     sync.Cond
	free      int
	admitTurn uint64 // the turn of the request to admit next
	nextTurn  uint64
}

func newAdmission(chunks int) *admission {
	a := &admission{free: chunks}
	a.freed.L = &a.mu
	return a
}

func (a *admission) acquireChunks(chunks int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	turn := a.nextTurn
	a.nextTurn++
	for a.admitTurn != turn || a.free < chunks {
		a.freed.Wait()
	}
	a.free -= chunks
	a.admitTurn++
	a.freed.Broadcast()
}

func (a *admission) releaseChunks(chunks int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += chunks
	a.freed.Broadcast()
}
