package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file lands single layers of chunks. Layers land under grants as any page does, but into places of bundles
// instead of entries of the store.

// Layers is a batch of layers of chunks.
type Layers struct {
	Keys       [][]byte
	LastTokens uint32 // tokens of a layer's page; checked when the message arrives
	Operation  uint64 // the number of the batch; the sender counts it up
	// Opened is the grant under which the first layers of these chunks came; 0 if no layers have come yet.
	Opened effects.GrantID
}

// PlanLayers plans each layer of a batch, as Plan does for chunks. A layer of a chunk that is ready needs no page. If
// PlanLayers fails, the result is the index of the key at fault, and nothing was begun. The code is then one of the
// following:
//
//   - Malformed: the key is not a layer's key.
//   - Withdrawn: layers of the chunk that came before are missing, or an older message got the grant for this layer.
//   - TooMany: there is no room for another bundle now.
//   - Invalid: the layer has no vacant place in the bundle.
//
// A sender opens a chunk in one operation after another. If a former operation opened a bundle, that bundle has none of
// the layers that the sender counts on, and PlanLayers ends it. Example: the network delays an AllocRequest; meanwhile
// the sender retries over another connection, is refused, and goes on with the next operation; then the delayed request
// arrives and opens a bundle.
func (l *Landings) PlanLayers(v *env.Env, s *store.Store, of *bundle.Run, b *Layers) (p *Plan, code effects.Code, at int) {
	p = &l.plan
	p.Spots, p.Lengths, p.Hashes, p.begun = p.Spots[:0], p.Lengths[:0], p.Hashes[:0], p.begun[:0]
	p.Unpromised = false
	length := uint32(l.cfg.TokenBytes * uint64(b.LastTokens))
	claimable, claimed := s.ClaimsLeft(of.Class), store.Entry(0)
	for i, key := range b.Keys {
		name, layer, err := l.Bundles.Name(key, l.cfg.KeyBytes)
		if err != nil {
			l.UnplanLayers(v, s, p)
			return p, effects.Malformed, i
		}
		p.Hashes = append(p.Hashes, s.Hash(key))
		hash := s.Hash(name)
		into := l.Bundles.Open(of, hash)
		if into != 0 {
			operation, grant := l.Bundles.Opened(into)
			switch {
			case grant == 0, grant == b.Opened:
			case b.Opened != 0 || b.Operation < operation:
				l.UnplanLayers(v, s, p)
				return p, effects.Withdrawn, i
			default:
				l.EndBundle(v, s, into)
				into = 0
			}
		}
		if into == 0 {
			if h := s.Find(hash, name); h != 0 {
				_, ready := s.Ready(h)
				switch {
				case ready && h != claimed && claimable == 0:
					p.Unpromised = true
				case ready:
					if h != claimed {
						claimable, claimed = claimable-1, h
					}
					p.Spots = append(p.Spots, Spot{entry: h, Ready: true, Repeat: -1})
					continue
				}
			}
			code = effects.Withdrawn
			if b.Opened == 0 {
				into, code = l.Bundles.Begin(v, s, of, b.Operation, hash, name), effects.TooMany
			}
			if into == 0 {
				l.UnplanLayers(v, s, p)
				return p, code, i
			}
			p.begun = append(p.begun, into)
		}
		place := l.Bundles.Plan(into, layer)
		if place == 0 {
			code = effects.Invalid
			if l.Bundles.UnderGrant(into, layer) {
				// An older message got that grant, and nothing will land under it.
				code = effects.Withdrawn
			}
			l.UnplanLayers(v, s, p)
			return p, code, i
		}
		p.Spots = append(p.Spots, Spot{entry: place, Repeat: -1, Page: len(p.Lengths)})
		p.Lengths = append(p.Lengths, length)
	}
	return p, effects.OK, 0
}

// Opens reports whether a plan of layers begins bundles, so that it needs pages that are not promised yet.
func (p *Plan) Opens() bool { return len(p.begun) > 0 }

// FitsLayers reports whether a class may have all pages of the bundles that a plan has begun, and whether these pages
// are free or can be made free. If so, FitsLayers promises these pages to the bundles.
func (l *Landings) FitsLayers(v *env.Env, s *store.Store, p *Plan, class int) bool {
	if !v.Pools.MayGrant(class) {
		return false
	}
	if !p.Opens() {
		return true
	}
	n := uint32(len(p.begun)) * l.Bundles.Layers()
	if !v.Pools.FitsShare(v.Pool, class, n) {
		return false
	}
	stay, last := uint32(0), store.Entry(0)
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Ready && x.entry != last {
			stay, last = stay+s.Touch(v, x.entry, v.Pool), x.entry
		}
	}
	if !s.MakeRoom(v, v.Pool, n, stay) {
		return false
	}
	for _, h := range p.begun {
		l.Bundles.Promise(v, h)
	}
	return true
}

// UnplanLayers undoes a plan before pages were promised to the plan.
func (l *Landings) UnplanLayers(v *env.Env, s *store.Store, p *Plan) {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Fills() {
			l.Bundles.Unplan(x.entry)
		}
	}
	for _, h := range p.begun {
		l.Bundles.Undo(v, s, h)
	}
	p.begun = p.begun[:0]
}

// RedeemLayers releases the promises of the pages that a plan needs, so that the next grant can take these pages.
func (l *Landings) RedeemLayers(v *env.Env, p *Plan) {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Fills() {
			l.Bundles.Redeem(v, x.entry)
		}
	}
}

// granted records the grant in the bundle places that it covers.
func (l *Landings) granted(v *env.Env, x *Landing) {
	for _, at := range x.fills {
		l.Bundles.Granted(v, at, x.ID)
	}
}

// clearLayers ends each bundle of which a layer did not land under a grant that has ended.
func (l *Landings) clearLayers(v *env.Env, s *store.Store, x *Landing) {
	for position, at := range x.fills {
		x.fills[position] = 0
		if v.Pools.Under(x.ID, position) {
			x.fills[position] = l.Bundles.Ungrant(at)
		}
	}
	for _, h := range x.fills {
		if h != table.Handle(0) {
			l.EndBundle(v, s, h)
		}
	}
}

// EndBundle ends a bundle that is not whole, if it still exists, and revokes the grants on its pages. A layer that
// lands after this is not taken.
func (l *Landings) EndBundle(v *env.Env, s *store.Store, h table.Handle) {
	if !l.Bundles.Stands(h) {
		return
	}
	first := len(l.grants)
	l.grants = l.Bundles.Grants(h, l.grants)
	l.Bundles.End(v, s, h)
	for _, id := range l.grants[first:] {
		if x := l.Find(id); x != nil && !x.Revoking {
			l.Revoke(v, x)
		}
	}
	l.grants = l.grants[:first]
}

// EndBundles ends bundles of runs that are over, as many as the work budget of the step allows. EndBundles reports
// whether there are more.
func (l *Landings) EndBundles(v *env.Env, s *store.Store) (more bool) {
	for h := l.Bundles.Condemned(); h != 0; h = l.Bundles.Condemned() {
		if !v.Work.Left() {
			return true
		}
		l.EndBundle(v, s, h)
	}
	return false
}
