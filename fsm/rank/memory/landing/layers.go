package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// How layers of chunks land: under grants as any page, and into places of bundles instead of entries of the store.

// Layers are a batch of them.
type Layers struct {
	Keys       [][]byte
	LastTokens uint32 // checked on arrival
	Operation  uint64 // the number of the batch, which its sender counts up
	// Opened is the grant under which the first layers of their chunks came; 0: none has come.
	Opened effects.GrantID
}

// PlanLayers finds out what becomes of each layer of a batch, as Plan does of chunks. Layers of a chunk that is ready
// need no page. It says Withdrawn if layers of a chunk are missing that came before, TooMany if there is no room for
// bundles now, and at which key; then nothing was begun.
//
// A sender opens a chunk in one operation after the other. So a bundle that a former operation opened has none of the
// layers that the sender counts on: an AllocRequest may be delayed by the network until its sender has asked again over
// another connection, was refused, and has gone on. Such a bundle ends.
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
			if l.Bundles.UnderGrant(into, layer) { // An older message got that grant, and nothing will land under it.
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

// Opens says that a plan of layers begins bundles: so it needs pages that nobody has.
func (p *Plan) Opens() bool { return len(p.begun) > 0 }

// FitsLayers says whether a class may have all pages of the bundles that a plan has begun, and has them free. It
// promises them then.
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

// UnplanLayers takes a plan back whose pages were not promised.
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

// RedeemLayers has the next grant take the pages that were promised for a plan.
func (l *Landings) RedeemLayers(v *env.Env, p *Plan) {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Fills() {
			l.Bundles.Redeem(v, x.entry)
		}
	}
}

// granted notes the grant in the places that it is over.
func (l *Landings) granted(v *env.Env, x *Landing) {
	for _, at := range x.fills {
		l.Bundles.Granted(v, at, x.ID)
	}
}

// clearLayers ends the bundles of which a layer did not land under a grant that has ended.
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

// EndBundle ends a bundle that is not whole, if it is there still, and takes back what is granted of it: what of that
// lands all the same is not taken.
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

// EndBundles ends those whose runs are over, as many as this step has work for, and says whether there are more.
func (l *Landings) EndBundles(v *env.Env, s *store.Store) (more bool) {
	for h := l.Bundles.Condemned(); h != 0; h = l.Bundles.Condemned() {
		if !v.Work.Left() {
			return true
		}
		l.EndBundle(v, s, h)
	}
	return false
}
