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

// LayerBatch is a batch of layers of chunks.
type LayerBatch struct {
	Keys       [][]byte
	Sums       []uint64 // checksums of the layers; empty if the sender states none
	LastTokens uint32   // tokens of a layer's page; checked when the message arrives
	Operation  uint64   // the number of the batch; the sender counts it up
	// Opened is the grant under which the first layers of these chunks came; 0 if no layers have come yet.
	Opened effects.GrantID
}

// PlanLayers plans each layer of a batch, as PlanKeys does for chunks. A layer of a chunk that is ready needs no page.
// If PlanLayers fails, the result is the index of the key at fault, and nothing was begun. The code is then one of the
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
func (l *Landings) PlanLayers(v *env.Env, s *store.Store, run *bundle.Run, b *LayerBatch) (p *Plan, code effects.Code, at int) {
	p = &l.planBuf
	p.Keys, p.Lengths, p.Sums, p.Hashes = p.Keys[:0], p.Lengths[:0], p.Sums[:0], p.Hashes[:0]
	p.begunBundles = p.begunBundles[:0]
	p.Unpromised, p.Tenant = false, tenantOf(b.Keys)
	length, realm := uint32(l.cfg.TokenBytes*uint64(b.LastTokens)), v.RealmOf(run.Class)
	claimable, claimed := s.ClaimsLeft(run.Class), store.Entry(0)
	for i, key := range b.Keys {
		name, layer, err := l.Bundles.ParseLayerKey(key, l.cfg.KeyBytes)
		if err != nil {
			l.UnplanLayers(v, s, p)
			return p, effects.Malformed, i
		}
		p.Hashes = append(p.Hashes, s.HashIn(realm, key))
		hash := s.HashIn(realm, name)
		bundleHandle := l.Bundles.FindBundle(run, hash)
		if bundleHandle != 0 {
			operation, grant := l.Bundles.OpenedBy(bundleHandle)
			switch {
			case grant == 0, grant == b.Opened:
			case b.Opened != 0 || b.Operation < operation:
				l.UnplanLayers(v, s, p)
				return p, effects.Withdrawn, i
			default:
				l.EndBundle(v, s, bundleHandle)
				bundleHandle = 0
			}
		}
		if bundleHandle == 0 {
			if h := s.Find(hash, name); h != 0 {
				_, ready := s.ReadyPage(h)
				switch {
				case ready && h != claimed && claimable == 0:
					p.Unpromised = true
				case ready:
					if h != claimed {
						claimable, claimed = claimable-1, h
					}
					p.Keys = append(p.Keys, KeyPlan{entry: h, Ready: true, DuplicateOf: -1})
					continue
				}
			}
			code = effects.Withdrawn
			if b.Opened == 0 {
				bundleHandle, code = l.Bundles.Begin(v, s, run, b.Operation, hash, name), effects.TooMany
			}
			if bundleHandle == 0 {
				l.UnplanLayers(v, s, p)
				return p, code, i
			}
			p.begunBundles = append(p.begunBundles, bundleHandle)
		}
		place := l.Bundles.PlanLayer(bundleHandle, layer)
		if place == 0 {
			code = effects.Invalid
			if l.Bundles.HasGrant(bundleHandle, layer) {
				// An older message got that grant, and nothing will land under it.
				code = effects.Withdrawn
			}
			l.UnplanLayers(v, s, p)
			return p, code, i
		}
		p.Keys = append(p.Keys, KeyPlan{entry: place, DuplicateOf: -1, Page: len(p.Lengths)})
		p.Lengths, p.Sums = append(p.Lengths, length), append(p.Sums, effects.SumAt(b.Sums, i))
	}
	return p, effects.OK, 0
}

// BeginsBundles reports whether a plan of layers begins bundles, so that it needs pages that are not promised yet.
func (p *Plan) BeginsBundles() bool { return len(p.begunBundles) > 0 }

// FitsLayers reports whether a class may have all pages of the bundles that a plan has begun, and whether these pages
// are free or can be made free. If so, FitsLayers promises these pages to the bundles.
func (l *Landings) FitsLayers(v *env.Env, s *store.Store, p *Plan, class int) bool {
	if !v.Pools.MayAddGrant(class) {
		return false
	}
	if !p.BeginsBundles() {
		return true
	}
	n := uint32(len(p.begunBundles)) * l.Bundles.LayersPerChunk()
	if !v.Pools.FitsShare(v.Pool, class, n) || !v.Pool.FitsTenant(p.Tenant, n) {
		return false
	}
	spared, last := uint32(0), store.Entry(0)
	for i := range p.Keys {
		if x := &p.Keys[i]; x.Ready && x.entry != last {
			spared, last = spared+s.TouchEntry(v, x.entry, v.Pool), x.entry
		}
	}
	if !s.MakeRoom(v, v.Pool, n, spared) {
		return false
	}
	for _, h := range p.begunBundles {
		l.Bundles.PromisePages(v, h)
	}
	return true
}

// UnplanLayers undoes a plan before pages were promised to the plan.
func (l *Landings) UnplanLayers(v *env.Env, s *store.Store, p *Plan) {
	for i := range p.Keys {
		if x := &p.Keys[i]; x.NeedsPage() {
			l.Bundles.UnplanLayer(x.entry)
		}
	}
	for _, h := range p.begunBundles {
		l.Bundles.UndoBegin(v, s, h)
	}
	p.begunBundles = p.begunBundles[:0]
}

// RedeemLayers releases the promises of the pages that a plan needs, so that the next grant can take these pages.
func (l *Landings) RedeemLayers(v *env.Env, p *Plan) {
	for i := range p.Keys {
		if x := &p.Keys[i]; x.NeedsPage() {
			l.Bundles.RedeemPage(v, x.entry)
		}
	}
}

// recordGrant records the grant in the bundle places that it covers.
func (l *Landings) recordGrant(v *env.Env, x *Landing) {
	for _, at := range x.fills {
		l.Bundles.RecordGrant(v, at, x.ID)
	}
}

// reclaimLayers ends each bundle of which a layer did not land under a grant that has ended.
func (l *Landings) reclaimLayers(v *env.Env, s *store.Store, x *Landing) {
	for position, at := range x.fills {
		x.fills[position] = 0
		if v.Pools.IsPageOpen(x.ID, position) {
			x.fills[position] = l.Bundles.RecordGrantEnd(at)
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
	if !l.Bundles.Exists(h) {
		return
	}
	first := len(l.grantBuf)
	l.grantBuf = l.Bundles.AppendGrants(h, l.grantBuf)
	l.Bundles.End(v, s, h)
	for _, id := range l.grantBuf[first:] {
		if x := l.Find(id); x != nil && !x.Revoking {
			l.RevokeGrant(v, x)
		}
	}
	l.grantBuf = l.grantBuf[:first]
}

// EndCondemnedBundles ends bundles of runs that are over, as many as the work budget of the step allows.
// EndCondemnedBundles reports whether there are more.
func (l *Landings) EndCondemnedBundles(v *env.Env, s *store.Store) (more bool) {
	for h := l.Bundles.NextCondemned(); h != 0; h = l.Bundles.NextCondemned() {
		if !v.Work.HasBudget() {
			return true
		}
		l.EndBundle(v, s, h)
	}
	return false
}
