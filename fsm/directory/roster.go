package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A roster is the table of known workers and their instances.
type roster struct {
	seed      uint64 `snap:"share"` // key of the hashes of names
	ofOne     int    `snap:"share"` // limit of workers of an instance
	onlyBeats bool   `snap:"share"` // workers without heartbeats never count as silent
	instances table.Slab[instance]
	byName    table.Index
	workers   table.Slab[worker]
	byRank    table.Index // by instance and rank
	// expected lists the workers that count as silent when no fact arrives for too long, heard longest ago first: [0]
	// workers that report to this directory, [1] workers known by reports of another directory.
	expected [2]table.List
	quiet    [2]table.List // likewise, the workers that never count as silent
	// taken lists workers that report to this directory from now on. The list is meant for the directories that share
	// the log.
	taken []Want `snap:"skip"`
	// gone lists workers that reported to this directory and were dropped. The list is likewise for the directories
	// that share the log.
	gone    []Want `snap:"skip"`
	origins origins
	conns   connections
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

// find returns the worker with the sender's instance and rank, or 0 if the worker is unknown.
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

// of returns the instance of a worker.
func (r *roster) of(w *worker) *instance { return r.instances.Get(w.instance) }

// hear records that a fact of a worker arrived now.
func (r *roster) hear(now effects.Time, h table.Handle, w *worker, s *Sender) {
	w.heard = now
	r.workers.Unlink(r.heardBy(w), h)
	r.workers.PushBack(r.heardBy(w), h)
	if w.by == 0 {
		r.conns.hear(now, h, w, s.Source)
	}
}

// heardBy returns the list that contains a worker, depending on whether the worker is expected to be heard and on
// which directory hears the worker.
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

// beats sets whether a worker sends heartbeats. The caller must call hear next, which moves the worker to the end of
// that list.
func (r *roster) beats(h table.Handle, w *worker, does bool) {
	r.workers.Unlink(r.heardBy(w), h)
	w.beats = does
	r.workers.PushBack(r.heardBy(w), h)
}

// comes sets which directory a worker reports to from now on.
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

// takes records, for the directories that share the log, that a worker reports to this directory from now on.
func (r *roster) takes(w *worker) {
	r.taken = append(r.taken, Want{Instance: r.of(w).name, Worker: w.rank})
}

// fits reports whether there is room for the sender after the worker gone has been removed (nil: none is removed).
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

// givesWay returns the worker to drop so that the sender fits: among the workers whose removal makes room, the one
// that has been without a connection for the longest time. It examines at most looks workers, and returns 0 if no
// removal would make room.
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

// add inserts a worker. The caller has checked that there is room.
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

// moves counts a worker without records against the origin of the latest fact, if the share of that origin has room.
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

// remove deletes a worker that has no feeds and no syncs any more.
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

// heard returns the worker of this directory that counts as silent next, and when that worker was last heard; ok is
// false if there is none.
func (r *roster) heard() (h table.Handle, at effects.Time, ok bool) {
	if h = r.expected[0].Front(); h == 0 {
		return 0, 0, false
	}
	return h, r.workers.Get(h).heard, true
}
