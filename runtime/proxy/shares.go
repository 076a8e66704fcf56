package proxy

import (
	"fmt"
	"net/netip"
	"sync"
)

// shares divides an amount, such as bytes or requests in flight, among clients. A client is an IPv4 address, or the /64
// of an IPv6 address. A client may hold as much as remains free for further clients, so a single client gets half of
// the amount, two clients get a third each, and a client that comes later finds room. Example: an address has 512 of
// 1,024 requests in flight. The next request of this address is refused, and requests of different addresses are
// served.
//
// Invariant: used is the sum of held, and used <= size.
type shares struct {
	size       int64
	guaranteed int64 // the amount that a client may hold however little is free, so that no single request is too large

	mu       sync.Mutex
	used     int64
	byClient map[netip.Prefix]int64
}

func newShares(size, guaranteed int64) *shares {
	return &shares{size: size, guaranteed: guaranteed, byClient: map[netip.Prefix]int64{}}
}

// A shareError is returned to a client that gets no more of an amount.
type shareError struct {
	client          netip.Prefix
	own, used, size int64
	full            bool
}

// Error implements error.
func (e *shareError) Error() string {
	if e.full {
		return fmt.Sprintf("%d of %d are in use", e.used, e.size)
	}
	return fmt.Sprintf("clients of address %s have %d of %d, with %d in use: an address may have as much as remains "+
		"free", e.client, e.own, e.size, e.used)
}

// takeShare gives a client n more, or returns a *shareError.
func (s *shares) takeShare(client netip.Prefix, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, free := s.byClient[client], s.size-s.used
	if n > free || own+n > max(s.guaranteed, free-n) {
		return &shareError{client: client, own: own, used: s.used, size: s.size, full: n > free}
	}
	s.used += n
	s.byClient[client] = own + n
	return nil
}

// returnShare takes n back from a client.
func (s *shares) returnShare(client netip.Prefix, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.byClient[client] -= n; s.byClient[client] == 0 {
		delete(s.byClient, client)
	}
}

// inUse returns how much all clients hold together.
func (s *shares) inUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
