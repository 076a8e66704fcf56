package demo

import "sync"

// An admission keeps the chunks on their way to one decode process within what its pool can hold, as
// the scheduler of a real deployment would. First come, first served.
type admission struct {
	mu    sync.Mutex
	freed sync.Cond
	free  int
	next  uint64 // whose turn it is
	last  uint64
}

func newAdmission(chunks int) *admission {
	a := &admission{free: chunks}
	a.freed.L = &a.mu
	return a
}

func (a *admission) enter(chunks int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	turn := a.last
	a.last++
	for a.next != turn || a.free < chunks {
		a.freed.Wait()
	}
	a.free -= chunks
	a.next++
	a.freed.Broadcast()
}

func (a *admission) leave(chunks int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += chunks
	a.freed.Broadcast()
}
