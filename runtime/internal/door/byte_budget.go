package door

import (
	"net/netip"
	"sync"
)

// A ByteBudget is a number of bytes that all connections share. A single address may have at most half of the budget,
// so that no host can keep all peers of the remaining hosts from sending.
type ByteBudget struct {
	mu        sync.Mutex
	size      int
	reserved  int
	byAddress map[netip.Prefix]int
}

// NewByteBudget returns a budget of size bytes.
func NewByteBudget(size int) *ByteBudget {
	return &ByteBudget{size: size, byAddress: map[netip.Prefix]int{}}
}

// Reserve takes n bytes for an address, and returns false if there is no room.
func (p *ByteBudget) Reserve(address netip.Prefix, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.size-p.reserved || n > p.size/2-p.byAddress[address] {
		return false
	}
	p.reserved += n
	p.byAddress[address] += n
	return true
}

// Release gives n bytes back.
func (p *ByteBudget) Release(address netip.Prefix, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved -= n
	if p.byAddress[address] -= n; p.byAddress[address] == 0 {
		delete(p.byAddress, address)
	}
}
