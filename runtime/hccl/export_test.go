//go:build cgo && linux

package hccl

import "github.com/kvferry/kvferry/effects"

// Believe has a plane take a peer's pool to have so many pages, as if the peer had lied.
func (p *Plane) Believe(link effects.Link, pages uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[link].welcome.buffer.Pages = pages
}
