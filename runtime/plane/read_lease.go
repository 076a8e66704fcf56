package plane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A readLease is a peer's permission to read pages. The pool keeps the lease until the lease is revoked and no holder
// is left.
type readLease struct {
	peer    effects.Incarnation
	pages   []effects.Page // sorted by index
	revoked bool
	// fence admits the reads that this process makes for the peer. The fences of the pages take no part: many readers
	// may read a page, and nobody stores into the page meanwhile (M1).
	fence readFence
}

// findPage returns the leased page with that index, and false if the lease does not cover the page.
func (l *readLease) findPage(index uint32) (effects.Page, bool) {
	i, ok := slices.BinarySearchFunc(l.pages, index,
		func(p effects.Page, index uint32) int { return cmp.Compare(p.Index, index) })
	if !ok {
		return effects.Page{}, false
	}
	return l.pages[i], true
}

// grantRead gives a peer the right to read pages in their present generation. Any number of read leases may cover a
// page. As with write grants, a lease that names no peer admits nothing.
func (p *Pool) grantRead(e *effects.Grant) {
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustBeNewGrant(e.ID)
	l := &readLease{peer: e.Peer, pages: slices.Clone(e.Pages)}
	slices.SortFunc(l.pages, func(a, b effects.Page) int { return cmp.Compare(a.Index, b.Index) })
	for _, page := range l.pages {
		p.mustHavePage(page)
		switch s := &p.pageStates[page.Index]; {
		case s.grant != 0 || s.revokingGrant != 0:
			panic(fmt.Sprintf("BUG: read lease %[2]d covers page %[1]d, while write grant %[3]d of that page is in force or "+
				"in quarantine",
				page.Index, e.ID, max(s.grant, s.revokingGrant)))
		case p.generations[page.Index] != uint64(page.Generation):
			panic(fmt.Sprintf("BUG: a read lease names generation %[2]d of page %[1]d; the page is in generation %[3]d",
				page.Index, page.Generation, p.generations[page.Index]))
		}
		p.pageStates[page.Index].readLeases++
		p.readPermits.setLeasedBytes(page.Index, max(page.Length, p.readPermits.leasedBytes(page.Index)))
	}
	p.leases[e.ID] = l
	p.readPermits.issuePermit(e.ID, e.Peer)
}

// revokeRead ends a read lease (M3). Changing the permit at once stops the reads of peers that copy without this
// process, at any point of a read and even if the peer is frozen. Only holds of this process have to be waited for,
// and holds are short.
func (p *Pool) revokeRead(id effects.GrantID, l *readLease) {
	l.revoked = true
	p.readPermits.withdrawPermit(id)
	if l.fence.close() == 0 {
		p.finishReadRevoke(id, l)
	}
}

func (p *Pool) finishReadRevoke(id effects.GrantID, l *readLease) {
	for _, page := range l.pages {
		s := &p.pageStates[page.Index]
		if s.readLeases--; s.readLeases == 0 {
			p.readPermits.setLeasedBytes(page.Index, 0)
		}
	}
	delete(p.leases, id)
	p.sink.Post(&effects.Revoked{Grant: id})
}

// A ReadClaim is a read that the pool has admitted, for a peer to which this process must send the bytes.
type ReadClaim struct {
	pool    *Pool
	leaseID effects.GrantID
	lease   *readLease
	pages   []effects.Page
}

// ClaimRead admits a read by peer of Length bytes of each page, under a read lease. Either all pages are admitted or
// none. The claim keeps the slice. Any number of claims may exist at a time, and a claim need not be ended. The codes
// are:
//
//   - OK.
//   - Withdrawn: the lease has ended, or does not cover a page.
//   - Refused: another peer has the lease.
//   - Stale: a page is named in another generation than was leased.
//   - TooLarge: a page is to be read beyond the leased bytes.
//   - NotFound: the pool has no such page.
func (p *Pool) ClaimRead(
	peer effects.Incarnation, id effects.GrantID, pages []effects.Page,
) (*ReadClaim, effects.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.leases[id]
	if l == nil || l.revoked {
		return nil, effects.Withdrawn
	}
	if l.peer != peer {
		return nil, effects.Refused
	}
	for _, page := range pages {
		if page.Pool != p.id || page.Index >= p.pages {
			return nil, effects.NotFound
		}
		switch leased, ok := l.findPage(page.Index); {
		case !ok:
			return nil, effects.Withdrawn
		case leased.Generation != page.Generation:
			return nil, effects.Stale
		case page.Length > leased.Length:
			return nil, effects.TooLarge
		}
	}
	return &ReadClaim{pool: p, leaseID: id, lease: l, pages: pages}, effects.OK
}

// Hold returns the bytes of page i, to be read in a single bounded step, or nil if the lease was revoked. After a
// successful Hold the caller must call Release soon, and must not look at the bytes afterwards. The caller must not
// wait for a peer in between, because Revoke completes only when all holders have left (M3).
func (l *ReadClaim) Hold(i int) []byte {
	if !l.lease.fence.hold() {
		return nil
	}
	page := l.pages[i]
	return l.pool.wholePage(page.Index)[:page.Length]
}

// Release leaves a page, which Hold has entered.
func (l *ReadClaim) Release() {
	if !l.lease.fence.release() {
		return
	}
	// This was the last holder, and the lease was revoked meanwhile.
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.finishReadRevoke(l.leaseID, l.lease)
}
