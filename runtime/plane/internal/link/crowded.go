package link

import "fmt"

// linksOfPeer is how many links one peer may have: one, and those of which it alone knows yet that they have ended.
const linksOfPeer = 4

// reserved is the part of the places that one address leaves to others, one in so many: names cost nothing, and each
// has a token.
const reserved = 8

// crowded says why there is no room for one link more: because of all, of its peer's, or of its address's. With the
// plane's mutex held.
func (p *Plane) crowded(in *Incoming) error {
	var oldest *Incoming
	own, near, most := 0, 0, p.env.Bounds.Links
	for _, other := range p.incoming {
		if other.address == in.address {
			near++
		}
		if other.hello.From != in.hello.From {
			continue
		}
		if own++; oldest == nil || other.number < oldest.number {
			oldest = other
		}
	}
	switch {
	case own >= linksOfPeer:
		oldest.Fail() // So that an honest peer gets in when it tries again.
		return fmt.Errorf("this peer has %d links already; the oldest is ended", own)
	case len(p.incoming) >= most:
		return fmt.Errorf("%d peers are linked; raise tables.peers", len(p.incoming))
	case in.address.IsValid() && near >= most-most/reserved:
		return fmt.Errorf("%d peers of address %v are linked; raise tables.peers", near, in.address)
	}
	return nil
}

// full reports whether the peer would have more under way than it may, with pages more. Landings count: each waits in
// the machine's mailbox, which a peer could fill otherwise with pushes that it asks for and cancels. Pages count, as a
// read may name one page as often as it likes.
func (in *Incoming) full(pages int) bool {
	b := in.plane.env.Bounds
	return len(in.pushes)+len(in.supplies)+in.landings >= b.Transfers ||
		uint64(in.pages+pages) > uint64(b.PagesPerBatch)+2*uint64(in.plane.env.Pool.Buffer().Pages)
}
