package door

import (
	"net/netip"
	"sync"
)

// A ByteBudget is a number of bytes that all connections share. One address may have at most half of it, so that no
// single host can keep all others from sending.
type Purse struct {
	mu    sync.Mutex
	size  int
	spent int
	of    map[netip.Prefix]int
}

// NewByteBudget returns a budget of size bytes.
func NewPurse(size int) *Purse { return &Purse{size: size, of: map[netip.Prefix]int{}} }

// Reserve takes n bytes for an address. It returns false if there is no room for them.
func (p *Purse) Take(who netip.Prefix, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.size-p.spent || n > p.size/2-p.of[who] {
		return false
	}
	p.spent += n
	p.of[who] += n
	return true
}

// Release gives n bytes back.
func (p *Purse) Give(who netip.Prefix, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent -= n
	if p.of[who] -= n; p.of[who] == 0 {
		delete(p.of, who)
	}
}
