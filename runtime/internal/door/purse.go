package door

import (
	"net/netip"
	"sync"
)

// A Purse is a number of bytes that guests share. One address has at most half of it, so that no single one can keep
// all others from speaking.
type Purse struct {
	mu    sync.Mutex
	size  int
	spent int
	of    map[netip.Prefix]int
}

// NewPurse returns one of size bytes.
func NewPurse(size int) *Purse { return &Purse{size: size, of: map[netip.Prefix]int{}} }

// Take takes n bytes for an address, or says that there is no room for them.
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

// Give gives n bytes back.
func (p *Purse) Give(who netip.Prefix, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent -= n
	if p.of[who] -= n; p.of[who] == 0 {
		delete(p.of, who)
	}
}
