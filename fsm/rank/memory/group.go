package memory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A class belongs to one peer, and a peer is one name. Names cost nothing: a host that shakes hands under one name after
// another has the share of a class with each, and pages that landed for a former name count for no class any more.
// Therefore the classes of peers with the same Origin form a group. The pages of a group are limited as well while a peer
// of another group is present. Pages that landed count for the group until they are free, whatever becomes of their class.

// group is what counts against one Origin. Its row is used again only if no class belongs to it.
type group struct {
	origin     effects.Origin
	members    int              // classes of the group
	present    int              // the members that are present
	usedByPool [PoolsMax]uint32 // the sum of Pool.usedByClass of the members
}

// groups are the groups of a rank. A class without a group is limited by its own share only: it belongs to the engine, or
// to a peer that this rank calls.
type groups struct {
	rows         table.Slab[group]
	byClass      []table.Handle // by class; 0: the class has no group
	presentCount int            // the number of groups with a member that is present
}

// OriginSlotsMax returns a number that is greater than every OriginSlotOf of so many classes, at any time. There are
// twice as many groups as classes, so a full table has groups without members.
func OriginSlotsMax(classes int) int { return 2 * classes }

// recycle returns no groups, in the memory of x.
func (x *groups) recycle(classes int) groups {
	return groups{rows: x.rows.Recycle(OriginSlotsMax(classes)), byClass: table.RecycleSlice(x.byClass, classes)}
}

// groupOf returns the group of a class, or nil.
func (x *groups) groupOf(class int) *group { return x.rows.Get(x.byClass[class]) }

// find returns the group of an origin, or zero.
func (x *groups) find(origin effects.Origin) table.Handle {
	for slot := range x.rows.Slots() {
		if h := x.rows.At(slot); h != 0 && x.rows.Get(h).origin == origin {
			return h
		}
	}
	return 0
}

// addPresent counts n more present members of the group of a class, or fewer if n is negative.
func (x *groups) addPresent(class, n int) {
	g := x.groupOf(class)
	if g == nil {
		return
	}
	was := g.present > 0
	g.present += n
	switch is := g.present > 0; {
	case is && !was:
		x.presentCount++
	case was && !is:
		x.presentCount--
	}
}

// isContested reports whether a peer of any other group is present.
func (x *groups) isContested(g *group) bool {
	return x.presentCount > 1 || x.presentCount == 1 && g.present == 0
}

// landedGroup counts the pages of a pool that landed for a group and are not free.
type landedGroup struct {
	group table.Handle
	count uint32
}

// landedOf returns the number of pages that landed for a group and are not free.
func (p *Pool) landedOf(group table.Handle) uint32 {
	if slot := int(group.Slot()); group != 0 && slot < len(p.landedByGroup) && p.landedByGroup[slot].group == group {
		return p.landedByGroup[slot].count
	}
	return 0
}

// countLandedGroup counts a page that landed for a group.
func (p *Pool) countLandedGroup(pg *page, group table.Handle) {
	if pg.landedFor.group = group; group == 0 {
		return
	}
	for len(p.landedByGroup) <= int(group.Slot()) {
		p.landedByGroup = append(p.landedByGroup, landedGroup{})
	}
	x := &p.landedByGroup[group.Slot()]
	if x.group != group { // What landed for the group that had the row before is forgotten.
		*x = landedGroup{group: group}
	}
	x.count++
}

// uncountLandedGroup stops counting a page for the group for which it landed.
func (p *Pool) uncountLandedGroup(pg *page) {
	if group := pg.landedFor.group; p.landedOf(group) > 0 {
		p.landedByGroup[group.Slot()].count--
	}
}

// addGroup inserts the group of an origin. If the table is full, it forgets the pages that landed for one of the groups
// without members: the group with the fewest such pages. A host needs many Origins to be forgotten in this way.
func (ps *Pools) addGroup(origin effects.Origin) table.Handle {
	x := &ps.groups
	if x.rows.Full() {
		forgotten, fewest := table.Handle(0), uint32(0)
		for slot := range x.rows.Slots() {
			h, landed := x.rows.At(slot), uint32(0)
			if x.rows.Get(h).members > 0 {
				continue
			}
			for i := range ps.pools {
				landed += ps.pools[i].landedOf(h)
			}
			if forgotten == 0 || landed < fewest {
				forgotten, fewest = h, landed
			}
		}
		x.rows.Remove(forgotten)
	}
	h, g := x.rows.Add()
	*g = group{origin: origin}
	return h
}

// SetOrigin puts a class into the group of the Origin that its peer counts against. The pages that the class has count
// for that group from now on. Pages that landed stay with the group for which they landed.
func (ps *Pools) SetOrigin(class int, origin effects.Origin) {
	if g := ps.groups.groupOf(class); g != nil && g.origin == origin {
		return
	}
	ps.leaveGroup(class)
	x := &ps.groups
	h := x.find(origin)
	if h == 0 {
		h = ps.addGroup(origin)
	}
	x.byClass[class] = h
	g := x.rows.Get(h)
	g.members++
	for i := range ps.pools {
		g.usedByPool[i] += ps.pools[i].usedByClass[class]
	}
	if ps.present[class] {
		x.addPresent(class, 1)
	}
}

// leaveGroup takes a class out of its group, if it has one. Requests that wait for memory are tried again, because the
// shares of other classes may have grown.
func (ps *Pools) leaveGroup(class int) {
	x := &ps.groups
	g := x.groupOf(class)
	if g == nil {
		return
	}
	for i := range ps.pools {
		g.usedByPool[i] -= ps.pools[i].usedByClass[class]
	}
	if ps.present[class] {
		x.addPresent(class, -1)
	}
	g.members--
	x.byClass[class] = 0
	ps.freedCount++
}

// addUsed counts n more pages of p as used by a class and its group.
func (ps *Pools) addUsed(p *Pool, class int, n uint32) {
	p.usedByClass[class] += n
	if g := ps.groups.groupOf(class); g != nil {
		g.usedByPool[p.index] += n
	}
}

// dropUsed counts n pages fewer.
func (ps *Pools) dropUsed(p *Pool, class int, n uint32) {
	p.usedByClass[class] -= n
	if g := ps.groups.groupOf(class); g != nil {
		g.usedByPool[p.index] -= n
	}
}

// FitsOrigin reports whether the group of a class may have n more pages of p. The limit holds while a peer of another
// group is present, and counts pages that are granted, in quarantine or promised, and pages that landed.
func (ps *Pools) FitsOrigin(p *Pool, class int, n uint32) bool {
	g := ps.groups.groupOf(class)
	return g == nil || p.originShare >= p.TotalPages() || !ps.groups.isContested(g) || ps.OriginUse(p, class)+n <= p.originShare
}

// OriginUse returns the number of pages of p that count for the group of a class.
func (ps *Pools) OriginUse(p *Pool, class int) uint32 {
	if g := ps.groups.groupOf(class); g != nil {
		return g.usedByPool[p.index] + p.landedOf(ps.groups.byClass[class])
	}
	return 0
}

// OriginLimit returns the limit of pages of peers with the same Origin, while a peer with another one is present.
func (p *Pool) OriginLimit() uint32 { return min(p.TotalPages(), p.originShare) }

// OriginSlots returns a number that is greater than every number that OriginSlotOf and FindOrigin return.
func (ps *Pools) OriginSlots() int { return int(ps.groups.rows.Slots()) }

// OriginSlotOf returns a number that classes have in common if their peers have the same Origin; -1 if the class is in no
// group.
func (ps *Pools) OriginSlotOf(class int) int { return int(ps.groups.byClass[class].Slot()) }

// FindOrigin returns that number for an Origin; -1 if no class is known to have the Origin.
func (ps *Pools) FindOrigin(origin effects.Origin) int { return int(ps.groups.find(origin).Slot()) }

// recountGroups counts what each group has again: the present members and the used pages by the classes of the group, and
// the landed pages by the pages.
func (ps *Pools) recountGroups(r *table.Recount) {
	x := &ps.groups
	slots := int(x.rows.Slots())
	for slot := range slots {
		if g := x.rows.Get(x.rows.At(int32(slot))); g != nil && g.present > 0 {
			r.Add(0, 1)
		}
	}
	r.Report("origins that are present", 1, func(int) int { return x.presentCount }, table.Bounded)
	for class, h := range x.byClass {
		if h != 0 && ps.present[class] {
			r.Add(int(h.Slot()), 1)
		}
	}
	r.Report("present peers by origin", slots, func(slot int) int {
		if g := x.rows.Get(x.rows.At(int32(slot))); g != nil {
			return g.present
		}
		return 0
	}, table.Bounded)
	for i := range ps.pools {
		p := &ps.pools[i]
		for class, h := range x.byClass {
			if h != 0 {
				r.Add(int(h.Slot()), int(p.usedByClass[class]))
			}
		}
		r.Report("granted and promised pages by origin", slots, func(slot int) int {
			if g := x.rows.Get(x.rows.At(int32(slot))); g != nil {
				return int(g.usedByPool[i])
			}
			return 0
		}, table.Bounded)
		for k := range p.pages {
			if h := p.pages[k].landedFor.group; x.rows.Get(h) != nil {
				r.Add(int(h.Slot()), 1)
			}
		}
		r.Report("landed pages by origin", slots, func(slot int) int {
			return int(p.landedOf(x.rows.At(int32(slot))))
		}, table.Bounded)
	}
}
