//go:build cgo && linux

package hccl

import "fmt"

const (
	// linksOfPeer is how many links one peer may have: one, and those of which it alone knows yet that they have ended.
	linksOfPeer = 4
	// reserved is the part of the places that one address leaves to others, one in so many: names cost nothing, and each
	// has a token.
	reserved = 8
)

// crowded says why there is no room for one link more: because of all, of its peer's, or of its address's. A link
// counts until nothing of it may reach the pool any more. With the plane's mutex held.
func (p *Plane) crowded(in *incoming) error {
	var oldest *incoming
	own, near, most := 0, 0, p.cfg.Links
	for _, other := range p.incoming {
		if other.address == in.address {
			near++
		}
		if other.hello.from != in.hello.from {
			continue
		}
		if own++; !other.lost && (oldest == nil || other.number < oldest.number) {
			oldest = other
		}
	}
	switch {
	case own >= linksOfPeer && oldest != nil:
		err := fmt.Errorf("this peer has %d links already; the oldest is ended", own)
		oldest.lose(err) // So that an honest peer gets in when it tries again.
		return err
	case own >= linksOfPeer:
		return fmt.Errorf("this peer has %d links that may still reach the pool", own)
	case len(p.incoming) >= most:
		return fmt.Errorf("%d peers are linked, or may still reach the pool; raise hccl.links", len(p.incoming))
	case near >= most-most/reserved:
		return fmt.Errorf("%d peers of address %v are linked, or may still reach the pool; raise hccl.links",
			near, in.address)
	}
	return nil
}
