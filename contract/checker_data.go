package contract

import "github.com/kvferry/kvferry/effects"

// dataState is the Checker's state of the data plane.
type dataState struct {
	fenced   bool
	links    map[effects.Link]linkRecord
	grants   map[effects.GrantID]grantRecord
	pages    map[pageID]pageRecord
	landings map[effects.Landing]bool  // true: confirmed
	reads    map[effects.Corr][]pageID // the pages that each read fills, until the read is settled
	copies   map[effects.Corr]copyRecord
	verifies map[effects.Corr][]effects.Page
	revokes  int // number of revocations that have not completed
	drops    int // number of drops that have not completed
	crossed  [CrossingCount]uint64
}

// A pageID identifies a page of a local pool.
type pageID struct {
	pool  effects.PoolID
	index uint32
}

// A pageRecord is the newest generation of a local page, and the accesses to the page.
type pageRecord struct {
	generation effects.Generation
	length     uint32
	writeGrant effects.GrantID // the grant to store; 0: none
	readGrants int             // number of grants to read
	filler     effects.Corr    // the read or copy that stores into the page; 0: none
	scatters   int             // number of scatters that read the page
	copies     int             // number of copies and comparisons that read the page
}

// A linkRecord is the state of a Link that Imported returned.
type linkRecord struct {
	transfers               int // number of transfers that are not completed
	lost, dropping, dropped bool
}

// A grantRecord is the state of a Grant.
type grantRecord struct {
	peer              effects.Incarnation
	read              bool
	pages             []pageID
	revoking, revoked bool
}

func newDataState(fenced bool) dataState {
	return dataState{fenced: fenced, links: map[effects.Link]linkRecord{}, grants: map[effects.GrantID]grantRecord{},
		pages: map[pageID]pageRecord{}, landings: map[effects.Landing]bool{},
		reads: map[effects.Corr][]pageID{}, copies: map[effects.Corr]copyRecord{},
		verifies: map[effects.Corr][]effects.Page{}}
}

func (p *dataState) checkImported(ev *effects.Imported) error {
	if ev.Code != effects.OK {
		if ev.Link != 0 {
			return newBreach(Driver, "an import that ended as %v gives link %d", ev.Code, ev.Link)
		}
		return nil
	}
	if _, used := p.links[ev.Link]; used || ev.Link == 0 {
		return newBreach(Driver, "link %d was given before or is zero", ev.Link)
	}
	p.links[ev.Link] = linkRecord{}
	return nil
}

func (p *dataState) checkDrop(id effects.Link) error {
	l, ok := p.links[id]
	if !ok || l.dropping {
		return newBreach(Machine, "it drops link %d, which it does not have", id)
	}
	l.dropping = true
	p.links[id] = l
	p.drops++
	return nil
}

func (p *dataState) checkDropped(id effects.Link) error {
	l := p.links[id]
	switch {
	case !l.dropping || l.dropped:
		return newBreach(Driver, "link %d is dropped, which nobody wanted or was done before", id)
	case l.transfers > 0:
		return newBreach(Driver, "link %d is dropped before its %d transfers were completed", id, l.transfers)
	}
	l.dropped = true
	p.links[id] = l
	p.drops--
	return nil
}

// checkLinkLost checks a LinkLost. A LinkLost may arrive after Drop if the event was in the mailbox by then, but not
// after Dropped. For the same reason a transfer that crossed with the loss may still be open, and fails.
func (p *dataState) checkLinkLost(id effects.Link) error {
	if id == 0 { // A peer that imported this node.
		return nil
	}
	l, ok := p.links[id]
	switch {
	case !ok || l.dropped:
		return newBreach(Driver, "the loss of link %d is told, which never was or is gone", id)
	case l.lost:
		return newBreach(Driver, "the loss of link %d is told twice", id)
	}
	if l.dropping {
		p.crossed[LossAfterDrop]++
	}
	l.lost = true
	p.links[id] = l
	return nil
}

func (p *dataState) checkTransfer(e *effects.Transfer) error {
	l, ok := p.links[e.Link]
	switch {
	case !ok || l.dropping:
		return newBreach(Machine, "it transfers on link %d, which it does not have", e.Link)
	case l.lost:
		return newBreach(Machine, "it transfers on link %d, of whose loss it was told", e.Link)
	case len(e.Pairs) == 0:
		return newBreach(Machine, "it transfers nothing on link %d", e.Link)
	}
	if !e.Gather.Fits(e.Pairs) || e.Gather.Layers > 0 && e.Read {
		return newBreach(Machine, "it transfers %d pages of %d layers and %d stripes, of %d pages that do not fit that",
			len(e.Pairs), e.Gather.Layers, e.Gather.Stripes, len(e.Gather.Pages))
	}
	for i := range e.Pairs {
		if err := p.checkLocalPage(e, e.Pairs[i].Local); err != nil {
			return err
		}
	}
	for _, page := range e.Gather.Pages {
		if err := p.checkLocalPage(e, page); err != nil {
			return err
		}
	}
	if e.Read {
		if err := p.checkRead(e); err != nil {
			return err
		}
	}
	l.transfers++
	p.links[e.Link] = l
	return nil
}

// checkLocalPage checks a local page of a transfer.
func (p *dataState) checkLocalPage(e *effects.Transfer, local effects.Page) error {
	record := p.pages[pageID{local.Pool, local.Index}]
	if record.generation != local.Generation {
		return newBreach(Machine, "it transfers page %d in generation %d, which is not its newest published one",
			local.Index, local.Generation)
	}
	if record.filler != 0 && !e.Read {
		return newBreach(Machine, "it transfers page %d, into which %d stores", local.Index, record.filler)
	}
	return nil
}

func (p *dataState) checkTransferDone(o pendingEffect, ev *effects.TransferDone) error {
	l := p.links[o.link]
	switch {
	case l.lost && ev.Code == effects.OK:
		return newBreach(Driver, "transfer %d ends well after the loss of its link %d was told", ev.Corr, o.link)
	case o.read && ev.Code == effects.Mismatch:
		return newBreach(Driver, "read %d ends as %v, although it may take less than was granted", ev.Corr, ev.Code)
	}
	if l.lost {
		p.crossed[DoneAfterLoss]++
	}
	if ev.Settled {
		p.settleTransfer(ev.Corr)
	}
	l.transfers--
	p.links[o.link] = l
	return nil
}

func (p *dataState) checkPublish(pages []effects.Page) error {
	for _, page := range pages {
		at := pageID{page.Pool, page.Index}
		// On leased planes a grant also ends by the peer's message, of which no driver knows.
		record := p.pages[at]
		if page.Generation <= record.generation || p.fenced && record.writeGrant != 0 {
			return newBreach(Machine, "it publishes generation %d of page %d after %d, under grant %d",
				page.Generation, page.Index, record.generation, record.writeGrant)
		}
		if err := p.checkIdle(page.Index, record); err != nil {
			return err
		}
		p.pages[at] = pageRecord{generation: page.Generation, length: page.Length}
	}
	return nil
}

func (p *dataState) checkGrant(e *effects.Grant) error {
	if _, used := p.grants[e.ID]; used || e.ID == 0 {
		return newBreach(Machine, "it gives grant %d, which was given before or is zero", e.ID)
	}
	if e.Read {
		return p.checkReadGrant(e)
	}
	if err := p.checkPublish(e.Pages); err != nil {
		return err
	}
	g := grantRecord{peer: e.Peer}
	for _, page := range e.Pages {
		at := pageID{page.Pool, page.Index}
		p.pages[at] = pageRecord{generation: page.Generation, length: page.Length, writeGrant: e.ID}
		g.pages = append(g.pages, at)
	}
	p.grants[e.ID] = g
	return nil
}

func (p *dataState) checkRevoke(id effects.GrantID) error {
	g, ok := p.grants[id]
	if !ok || g.revoking {
		return newBreach(Machine, "it revokes grant %d, which it does not have or has revoked", id)
	}
	g.revoking = true
	p.grants[id] = g
	p.revokes++
	return nil
}

func (p *dataState) checkRevoked(id effects.GrantID) error {
	g := p.grants[id]
	if !g.revoking || g.revoked {
		return newBreach(Driver, "grant %d is revoked, which nobody wanted or was done before", id)
	}
	g.revoked = true
	p.grants[id] = g
	p.revokes--
	for _, at := range g.pages {
		record := p.pages[at]
		switch {
		case g.read:
			record.readGrants--
		case record.writeGrant == id:
			record.writeGrant = 0
		}
		p.pages[at] = record
	}
	return nil
}

// checkLanded checks that every page was under the grant until now, and records that the grant ends for these pages.
func (p *dataState) checkLanded(ev *effects.Landed) error {
	if _, used := p.landings[ev.Landing]; used || ev.Landing == 0 {
		return newBreach(Driver, "landing %d was told before or is zero", ev.Landing)
	}
	p.landings[ev.Landing] = false
	g, ok := p.grants[ev.Grant]
	switch {
	case !p.fenced:
		return newBreach(Driver, "landing %d on a plane where nobody can see one", ev.Landing)
	case !ok || g.read || g.peer != ev.Peer:
		return newBreach(Driver, "landing %d under grant %d, which that peer was not given", ev.Landing, ev.Grant)
	case g.revoked && len(ev.Pages) > 0:
		return newBreach(Driver, "landing %d brings %d pages of grant %d after Revoked", ev.Landing, len(ev.Pages), ev.Grant)
	}
	switch {
	case len(ev.Pages) == 0:
		p.crossed[EmptyLanding]++
	case g.revoking:
		p.crossed[LandingAfterRevoke]++
	}
	for _, page := range ev.Pages {
		at := pageID{page.Pool, page.Index}
		record := p.pages[at]
		switch {
		case record.writeGrant != ev.Grant || record.generation != page.Generation:
			return newBreach(Driver, "landing %d brings page %d in generation %d, which is not under grant %d",
				ev.Landing, page.Index, page.Generation, ev.Grant)
		case page.Length > record.length:
			return newBreach(Driver, "landing %d brings %d bytes of page %d; %d were granted", ev.Landing, page.Length, page.Index,
				record.length)
		}
		record.writeGrant = 0
		p.pages[at] = record
	}
	return nil
}

func (p *dataState) checkConfirm(id effects.Landing) error {
	confirmed, known := p.landings[id]
	if !known || confirmed {
		return newBreach(Machine, "it confirms landing %d, which never was or is confirmed", id)
	}
	p.landings[id] = true
	return nil
}
