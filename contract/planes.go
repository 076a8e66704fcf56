package contract

import "github.com/kvferry/kvferry/effects"

// dataState is the Checker's state of the data plane.
type planes struct {
	fenced   bool
	links    map[effects.Link]imported
	grants   map[effects.GrantID]grant
	pages    map[place]life
	landings map[effects.Landing]bool // true: confirmed
	reads    map[effects.Corr][]place // the pages that each read fills, until the read is settled
	copies   map[effects.Corr]copyOf
	revokes  int // number of revocations that have not completed
	drops    int // number of drops that have not completed
	crossed  [Crossings]uint64
}

// A place identifies a page of a local pool.
type place struct {
	pool  effects.PoolID
	index uint32
}

// A pageRecord is the newest generation of a local page, and the accesses to the page.
type life struct {
	generation effects.Generation
	length     uint32
	grant      effects.GrantID // the grant to store; 0: none
	lent       int             // number of grants to read
	filling    effects.Corr    // the read or copy that stores into the page; 0: none
	scattered  int             // number of scatters that read the page
	copied     int             // number of copies that read the page
}

// A linkRecord is the state of a Link that Imported returned.
type imported struct {
	moving               int // number of transfers that are not completed
	lost, dropping, gone bool
}

// A grantRecord is the state of a Grant.
type grant struct {
	peer              effects.Incarnation
	read              bool
	pages             []place
	revoking, revoked bool
}

func newPlanes(fenced bool) planes {
	return planes{fenced: fenced, links: map[effects.Link]imported{}, grants: map[effects.GrantID]grant{},
		pages: map[place]life{}, landings: map[effects.Landing]bool{},
		reads: map[effects.Corr][]place{}, copies: map[effects.Corr]copyOf{}}
}

func (p *planes) imported(ev *effects.Imported) error {
	if ev.Code != effects.OK {
		if ev.Link != 0 {
			return broken(Driver, "an import that ended as %v gives link %d", ev.Code, ev.Link)
		}
		return nil
	}
	if _, used := p.links[ev.Link]; used || ev.Link == 0 {
		return broken(Driver, "link %d was given before or is zero", ev.Link)
	}
	p.links[ev.Link] = imported{}
	return nil
}

func (p *planes) dropping(id effects.Link) error {
	l, ok := p.links[id]
	if !ok || l.dropping {
		return broken(Machine, "it drops link %d, which it does not have", id)
	}
	l.dropping = true
	p.links[id] = l
	p.drops++
	return nil
}

func (p *planes) dropped(id effects.Link) error {
	l := p.links[id]
	switch {
	case !l.dropping || l.gone:
		return broken(Driver, "link %d is dropped, which nobody wanted or was done before", id)
	case l.moving > 0:
		return broken(Driver, "link %d is dropped before its %d transfers were completed", id, l.moving)
	}
	l.gone = true
	p.links[id] = l
	p.drops--
	return nil
}

// checkLinkLost checks a LinkLost. A LinkLost may arrive after Drop if the event was in the mailbox by then, but not
// after Dropped. For the same reason a transfer that crossed with the loss may still be open, and fails.
func (p *planes) lost(id effects.Link) error {
	if id == 0 { // A peer that imported this node.
		return nil
	}
	l, ok := p.links[id]
	switch {
	case !ok || l.gone:
		return broken(Driver, "the loss of link %d is told, which never was or is gone", id)
	case l.lost:
		return broken(Driver, "the loss of link %d is told twice", id)
	}
	if l.dropping {
		p.crossed[LossBehindDrop]++
	}
	l.lost = true
	p.links[id] = l
	return nil
}

func (p *planes) transferring(e *effects.Transfer) error {
	l, ok := p.links[e.Link]
	switch {
	case !ok || l.dropping:
		return broken(Machine, "it transfers on link %d, which it does not have", e.Link)
	case l.lost:
		return broken(Machine, "it transfers on link %d, of whose loss it was told", e.Link)
	case len(e.Pairs) == 0:
		return broken(Machine, "it transfers nothing on link %d", e.Link)
	}
	if !e.Gather.Fits(e.Pairs) || e.Gather.Layers > 0 && e.Read {
		return broken(Machine, "it transfers %d pages of %d layers and %d stripes, of %d pages that do not fit that",
			len(e.Pairs), e.Gather.Layers, e.Gather.Stripes, len(e.Gather.Pages))
	}
	for i := range e.Pairs {
		if err := p.reading(e, e.Pairs[i].Local); err != nil {
			return err
		}
	}
	for _, page := range e.Gather.Pages {
		if err := p.reading(e, page); err != nil {
			return err
		}
	}
	if e.Read {
		if err := p.filling(e); err != nil {
			return err
		}
	}
	l.moving++
	p.links[e.Link] = l
	return nil
}

// reading checks a local page of a transfer.
func (p *planes) reading(e *effects.Transfer, local effects.Page) error {
	is := p.pages[place{local.Pool, local.Index}]
	if is.generation != local.Generation {
		return broken(Machine, "it transfers page %d in generation %d, which is not its newest published one",
			local.Index, local.Generation)
	}
	if is.filling != 0 && !e.Read {
		return broken(Machine, "it transfers page %d, into which %d stores", local.Index, is.filling)
	}
	return nil
}

func (p *planes) done(o owed, ev *effects.TransferDone) error {
	l := p.links[o.link]
	switch {
	case l.lost && ev.Code == effects.OK:
		return broken(Driver, "transfer %d ends well after the loss of its link %d was told", ev.Corr, o.link)
	case o.read && ev.Code == effects.Mismatch:
		return broken(Driver, "read %d ends as %v, although it may take less than was granted", ev.Corr, ev.Code)
	}
	if l.lost {
		p.crossed[DoneBehindLoss]++
	}
	if ev.Settled {
		p.settled(ev.Corr)
	}
	l.moving--
	p.links[o.link] = l
	return nil
}

func (p *planes) published(pages []effects.Page) error {
	for _, page := range pages {
		at := place{page.Pool, page.Index}
		// On leased planes a grant also ends by the peer's message, of which no driver knows.
		was := p.pages[at]
		if page.Generation <= was.generation || p.fenced && was.grant != 0 {
			return broken(Machine, "it publishes generation %d of page %d after %d, under grant %d",
				page.Generation, page.Index, was.generation, was.grant)
		}
		if err := p.still(page.Index, was); err != nil {
			return err
		}
		p.pages[at] = life{generation: page.Generation, length: page.Length}
	}
	return nil
}

func (p *planes) granted(e *effects.Grant) error {
	if _, used := p.grants[e.ID]; used || e.ID == 0 {
		return broken(Machine, "it gives grant %d, which was given before or is zero", e.ID)
	}
	if e.Read {
		return p.lent(e)
	}
	if err := p.published(e.Pages); err != nil {
		return err
	}
	g := grant{peer: e.Peer}
	for _, page := range e.Pages {
		at := place{page.Pool, page.Index}
		p.pages[at] = life{generation: page.Generation, length: page.Length, grant: e.ID}
		g.pages = append(g.pages, at)
	}
	p.grants[e.ID] = g
	return nil
}

func (p *planes) revoking(id effects.GrantID) error {
	g, ok := p.grants[id]
	if !ok || g.revoking {
		return broken(Machine, "it revokes grant %d, which it does not have or has revoked", id)
	}
	g.revoking = true
	p.grants[id] = g
	p.revokes++
	return nil
}

func (p *planes) revoked(id effects.GrantID) error {
	g := p.grants[id]
	if !g.revoking || g.revoked {
		return broken(Driver, "grant %d is revoked, which nobody wanted or was done before", id)
	}
	g.revoked = true
	p.grants[id] = g
	p.revokes--
	for _, at := range g.pages {
		is := p.pages[at]
		switch {
		case g.read:
			is.lent--
		case is.grant == id:
			is.grant = 0
		}
		p.pages[at] = is
	}
	return nil
}

// landed checks that every page was under the grant until now, and records that the grant ends for these pages.
func (p *planes) landed(ev *effects.Landed) error {
	if _, used := p.landings[ev.Landing]; used || ev.Landing == 0 {
		return broken(Driver, "landing %d was told before or is zero", ev.Landing)
	}
	p.landings[ev.Landing] = false
	g, ok := p.grants[ev.Grant]
	switch {
	case !p.fenced:
		return broken(Driver, "landing %d on a plane where nobody can see one", ev.Landing)
	case !ok || g.read || g.peer != ev.Peer:
		return broken(Driver, "landing %d under grant %d, which that peer was not given", ev.Landing, ev.Grant)
	case g.revoked && len(ev.Pages) > 0:
		return broken(Driver, "landing %d brings %d pages of grant %d after Revoked", ev.Landing, len(ev.Pages), ev.Grant)
	}
	switch {
	case len(ev.Pages) == 0:
		p.crossed[EmptyLanding]++
	case g.revoking:
		p.crossed[LandingAfterAsked]++
	}
	for _, page := range ev.Pages {
		at := place{page.Pool, page.Index}
		is := p.pages[at]
		switch {
		case is.grant != ev.Grant || is.generation != page.Generation:
			return broken(Driver, "landing %d brings page %d in generation %d, which is not under grant %d",
				ev.Landing, page.Index, page.Generation, ev.Grant)
		case page.Length > is.length:
			return broken(Driver, "landing %d brings %d bytes of page %d; %d were granted", ev.Landing, page.Length, page.Index,
				is.length)
		}
		is.grant = 0
		p.pages[at] = is
	}
	return nil
}

func (p *planes) confirmed(id effects.Landing) error {
	confirmed, known := p.landings[id]
	if !known || confirmed {
		return broken(Machine, "it confirms landing %d, which never was or is confirmed", id)
	}
	p.landings[id] = true
	return nil
}
