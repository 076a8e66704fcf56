package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A roster is the workers that are known, and their instances.
type roster struct {
	seed      uint64 `snap:"share"` // of the names' hashes
	ofOne     int    `snap:"share"` // workers of one instance
	ofSource  int    `snap:"share"` // workers of one source
	instances table.Slab[instance]
	byName    table.Index
	workers   table.Slab[worker]
	byRank    table.Index // of instance and rank
	quiet     table.List  // workers that are heard here, those heard longest ago first
	told      table.List  // likewise those that other directories tell of
	taken     []Want      `snap:"skip"` // workers that are heard here from this step on, as others are to hear
	sources   table.Slab[source]
	bySource  table.Index
}

// A source is by which way workers were made known.
type source struct {
	id      uint64
	workers int
}

func newRoster(c *Config, seed uint64) roster {
	return roster{
		seed: seed, ofOne: c.OfOne, ofSource: c.OfSource,
		instances: table.NewSlab[instance](c.Instances), workers: table.NewSlab[worker](c.Workers),
		sources: table.NewSlab[source](c.Workers),
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

// source is that of an id; 0: nobody is known by it.
func (r *roster) source(id uint64) table.Handle {
	for p := r.bySource.Seek(id); p.Found(); p = r.bySource.Next(p) {
		if r.sources.Get(p.Handle()).id == id {
			return p.Handle()
		}
	}
	return 0
}

// joins counts a worker to the source that makes it known.
func (r *roster) joins(id uint64) table.Handle {
	if id == 0 {
		return 0
	}
	h := r.source(id)
	if h == 0 {
		var s *source
		h, s = r.sources.Add()
		*s = source{id: id}
		r.bySource.Add(id, h)
	}
	r.sources.Get(h).workers++
	return h
}

// leaves is the opposite.
func (r *roster) leaves(h table.Handle) {
	if h == 0 {
		return
	}
	if s := r.sources.Get(h); s.workers > 1 {
		s.workers--
	} else {
		r.bySource.Remove(s.id, h)
		r.sources.Remove(h)
	}
}

// of is the instance of a worker.
func (r *roster) of(w *worker) *instance { return r.instances.Get(w.instance) }

// hear notes that something came from a worker.
func (r *roster) hear(now effects.Time, h table.Handle, w *worker) {
	w.heard = now
	r.workers.Unlink(r.heardBy(w), h)
	r.workers.PushBack(r.heardBy(w), h)
}

// heardBy is the list of workers that are known in the same way.
func (r *roster) heardBy(w *worker) *table.List {
	if w.by == 0 {
		return &r.quiet
	}
	return &r.told
}

// comes notes by which way a worker is known from now on.
func (r *roster) comes(h table.Handle, w *worker, s *Sender) {
	r.workers.Unlink(r.heardBy(w), h)
	if s.By == 0 && w.by != 0 {
		r.takes(w)
	}
	w.by, w.gaps = s.By, s.Gaps
	r.workers.PushBack(r.heardBy(w), h)
}

// takes notes a worker of which others are to hear by this directory.
func (r *roster) takes(w *worker) {
	r.taken = append(r.taken, Want{Instance: r.of(w).name, Worker: w.rank})
}

// add makes a worker known.
func (r *roster) add(now effects.Time, s *Sender, a *Address) (*worker, effects.Code) {
	in := r.instance(s.Instance)
	if r.workers.Full() || in == 0 && r.instances.Full() || in != 0 && r.instances.Get(in).workers >= r.ofOne {
		return nil, effects.TooMany
	}
	if by := r.source(s.Source); by != 0 && r.sources.Get(by).workers >= r.ofSource {
		return nil, effects.TooMany
	}
	if in == 0 {
		h, i := r.instances.Add()
		*i = instance{name: string(s.Instance)}
		r.byName.Add(r.nameHash(s.Instance), h)
		in = h
	}
	r.instances.Get(in).workers++
	h, w := r.workers.Add()
	*w = worker{
		instance: in, rank: uint32(s.Worker), is: s.Incarnation, source: r.joins(s.Source), heard: now, by: s.By,
		gaps: s.Gaps,
	}
	w.moves(a)
	r.byRank.Add(r.rankHash(s.Instance, w.rank), h)
	r.workers.PushBack(r.heardBy(w), h)
	return w, effects.OK
}

// remove makes one unknown that has nothing.
func (r *roster) remove(h table.Handle, w *worker) {
	i := r.of(w)
	name := []byte(i.name)
	r.byRank.Remove(r.rankHash(name, w.rank), h)
	if i.workers--; i.workers == 0 {
		r.byName.Remove(r.nameHash(name), w.instance)
		r.instances.Remove(w.instance)
	}
	r.leaves(w.source)
	r.workers.Unlink(r.heardBy(w), h)
	r.workers.Remove(h)
}

// heard is who was heard here longest ago, and when; ok is false if nobody is.
func (r *roster) heard() (h table.Handle, at effects.Time, ok bool) {
	if h = r.quiet.Front(); h == 0 {
		return 0, 0, false
	}
	return h, r.workers.Get(h).heard, true
}
