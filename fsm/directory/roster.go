package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A roster is the workers that are known, and their instances.
type roster struct {
	seed      uint64 `snap:"share"` // of the names' hashes
	ofOne     int    `snap:"share"` // workers of one instance
	onlyBeats bool   `snap:"share"` // workers that send no heartbeats are not expected to be heard
	instances table.Slab[instance]
	byName    table.Index
	workers   table.Slab[worker]
	byRank    table.Index   // of instance and rank
	expected  [2]table.List // workers that are to be heard again, those heard longest ago first: here, and by others
	quiet     [2]table.List // likewise workers that need not be heard again
	taken     []Want        `snap:"skip"` // workers that are heard here from this step on, as others are to hear
	gone      []Want        `snap:"skip"` // workers that were heard here and were forgotten since, likewise
	origins   origins
	conns     connections
}

func newRoster(c *Config, seed uint64) roster {
	return roster{
		seed: seed, ofOne: c.OfOne, onlyBeats: c.OnlyBeats,
		instances: table.NewSlab[instance](c.Instances), workers: table.NewSlab[worker](c.Workers),
		origins: newOrigins(c), conns: newConnections(c),
	}
}

func (r *roster) nameHash(name []byte) uint64 { return table.Hash(r.seed, name) }

func (r *roster) rankHash(name []byte, rank uint32) uint64 {
	return table.Hash(r.seed^(uint64(rank)+1)*0x9E3779B97F4A7C15, name)
}

// find is the worker of a name and rank; 0: it is not known.
func (r *roster) find(s *Sender) table.Handle {
	for p := r.byRank.Seek(r.rankHash(s.Instance, uint32(s.Worker))); p.Found(); p = r.byRank.Next(p) {
		w := r.workers.Get(p.Handle())
		if w.rank == uint32(s.Worker) && r.instances.Get(w.instance).name == string(s.Instance) {
			return p.Handle()
		}
	}
	return 0
}

func (r *roster) instance(name []byte) table.Handle {
	for p := r.byName.Seek(r.nameHash(name)); p.Found(); p = r.byName.Next(p) {
		if r.instances.Get(p.Handle()).name == string(name) {
			return p.Handle()
		}
	}
	return 0
}

// of is the instance of a worker.
func (r *roster) of(w *worker) *instance { return r.instances.Get(w.instance) }

// hear notes that something came from a worker.
func (r *roster) hear(now effects.Time, h table.Handle, w *worker, s *Sender) {
	w.heard = now
	r.workers.Unlink(r.heardBy(w), h)
	r.workers.PushBack(r.heardBy(w), h)
	if w.by == 0 {
		r.conns.hear(now, h, w, s.Source)
	}
}

// heardBy is the list of workers that are known in the same way, and are to be heard again or not.
func (r *roster) heardBy(w *worker) *table.List {
	lists := &r.expected
	if r.onlyBeats && !w.beats {
		lists = &r.quiet
	}
	if w.by == 0 {
		return &lists[0]
	}
	return &lists[1]
}

// beats notes whether a worker sends heartbeats. The caller hears it next, which puts it at the end of its list.
func (r *roster) beats(h table.Handle, w *worker, does bool) {
	r.workers.Unlink(r.heardBy(w), h)
	w.beats = does
	r.workers.PushBack(r.heardBy(w), h)
}

// comes notes by which way a worker is known from now on.
func (r *roster) comes(h table.Handle, w *worker, s *Sender) {
	r.workers.Unlink(r.heardBy(w), h)
	if s.By == 0 && w.by != 0 {
		r.takes(w)
	}
	if w.by, w.gaps = s.By, s.Gaps; w.by != 0 {
		r.conns.forget(w)
	}
	r.workers.PushBack(r.heardBy(w), h)
}

// takes notes a worker of which others are to hear by this directory.
func (r *roster) takes(w *worker) {
	r.taken = append(r.taken, Want{Instance: r.of(w).name, Worker: w.rank})
}

// fits says whether there is room for one worker more, once another one is gone; nil: none goes.
func (r *roster) fits(s *Sender, gone *worker) bool {
	in, origin := r.instance(s.Instance), r.origins.class(s.Origin)
	workers, frees, alone := r.workers.Len(), -1, false
	if gone != nil {
		workers--
		frees, alone = gone.class(), r.of(gone).workers == 1
	}
	if workers >= r.workers.Max() || !r.origins.workers.MayAfter(origin, frees) {
		return false
	}
	if in != 0 && (!alone || gone.instance != in) {
		of := r.instances.Get(in).workers
		if gone != nil && gone.instance == in {
			of--
		}
		return of < r.ofOne
	}
	instances := r.instances.Len()
	if frees = -1; alone {
		instances--
		frees = int(r.of(gone).origin.Slot())
	}
	return instances < r.instances.Max() && r.origins.instances.MayAfter(origin, frees)
}

// givesWay is the worker that leaves for another one: of those that are not connected, and of which the first few are
// looked at, the one that has not been for longest; 0: none would make room.
func (r *roster) givesWay(s *Sender, looks int) table.Handle {
	for h := r.conns.apart.Front(); h != 0 && looks > 0; h = r.conns.partings.Next(h) {
		wh := r.conns.partings.Get(h).worker
		if r.fits(s, r.workers.Get(wh)) {
			return wh
		}
		looks--
	}
	return 0
}

// add makes a worker known, for which there must be room.
func (r *roster) add(now effects.Time, s *Sender, a *Address) (table.Handle, *worker) {
	origin := r.origins.join(s.Origin)
	in := r.instance(s.Instance)
	if in == 0 {
		h, i := r.instances.Add()
		*i = instance{name: string(s.Instance), origin: r.origins.join(s.Origin)}
		r.origins.instances.Take(int(origin.Slot()))
		r.byName.Add(r.nameHash(s.Instance), h)
		in = h
	}
	r.instances.Get(in).workers++
	r.origins.workers.Take(int(origin.Slot()))
	h, w := r.workers.Add()
	*w = worker{
		instance: in, rank: uint32(s.Worker), is: s.Incarnation, origin: origin, heard: now, by: s.By,
		gaps: s.Gaps,
	}
	w.moves(a)
	r.byRank.Add(r.rankHash(s.Instance, w.rank), h)
	r.workers.PushBack(r.heardBy(w), h)
	if w.by == 0 {
		r.conns.hear(now, h, w, s.Source)
	}
	return h, w
}

// moves has a worker that has nothing count to the address that it is heard from now, if that has room for it.
func (r *roster) moves(w *worker, s *Sender) {
	if r.origins.rows.Get(w.origin).id == s.Origin || !r.origins.workers.MayAfter(r.origins.class(s.Origin), w.class()) {
		return
	}
	origin := r.origins.join(s.Origin)
	r.origins.workers.Give(w.class())
	r.origins.leave(w.origin)
	w.origin = origin
	r.origins.workers.Take(w.class())
}

// remove makes one unknown that has nothing.
func (r *roster) remove(h table.Handle, w *worker) {
	i := r.of(w)
	name := []byte(i.name)
	r.byRank.Remove(r.rankHash(name, w.rank), h)
	if i.workers--; i.workers == 0 {
		r.byName.Remove(r.nameHash(name), w.instance)
		r.origins.instances.Give(int(i.origin.Slot()))
		r.origins.leave(i.origin)
		r.instances.Remove(w.instance)
	}
	r.conns.forget(w)
	r.origins.workers.Give(w.class())
	r.origins.leave(w.origin)
	r.workers.Unlink(r.heardBy(w), h)
	r.workers.Remove(h)
}

// heard is the worker that is to be heard here and was longest ago, and when; ok is false if there is none.
func (r *roster) heard() (h table.Handle, at effects.Time, ok bool) {
	if h = r.expected[0].Front(); h == 0 {
		return 0, 0, false
	}
	return h, r.workers.Get(h).heard, true
}
