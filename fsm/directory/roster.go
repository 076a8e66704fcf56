package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A roster is the table of known workers and their instances.
type roster struct {
	seed               uint64 `snap:"share"` // key of the hashes of names
	workersPerInstance int    `snap:"share"` // limit of workers of an instance
	heartbeatersOnly   bool   `snap:"share"` // workers without heartbeats never count as silent
	instances          table.Slab[instance]
	byName             table.Index
	workers            table.Slab[worker]
	byRank             table.Index // by instance and rank
	owners             table.Slab[owner]
	// expected lists the workers that count as silent when no fact arrives for too long, heard longest ago first: [0]
	// workers that report to this directory, [1] workers known by reports of another directory.
	expected [2]table.List
	quiet    [2]table.List // likewise, the workers that never count as silent
	// takenWorkers lists workers that report to this directory from now on. The list is meant for the directories that
	// share the log.
	takenWorkers []WorkerRef `snap:"skip"`
	// goneWorkers lists workers that reported to this directory and were dropped. The list is likewise for the
	// directories that share the log.
	goneWorkers []WorkerRef `snap:"skip"`
	origins     origins
	conns       connections
}

func newRoster(c *Config, seed uint64) roster {
	return roster{
		seed: seed, workersPerInstance: c.WorkersPerInstance, heartbeatersOnly: c.HeartbeatersOnly,
		instances: table.NewSlab[instance](c.Instances), workers: table.NewSlab[worker](c.Workers),
		owners: table.NewSlab[owner](c.Workers), origins: newOrigins(c), conns: newConnections(c),
	}
}

func (r *roster) nameHash(name []byte) uint64 { return table.Hash(r.seed, name) }

func (r *roster) rankHash(name []byte, rank uint32) uint64 {
	return table.Hash(r.seed^(uint64(rank)+1)*0x9E3779B97F4A7C15, name)
}

// findWorker returns the worker with the sender's instance and rank, or 0 if the worker is unknown.
func (r *roster) findWorker(s *Sender) table.Handle {
	for p := r.byRank.Find(r.rankHash(s.Instance, uint32(s.Worker))); p.Found(); p = r.byRank.Next(p) {
		w := r.workers.Get(p.Handle())
		if w.rank == uint32(s.Worker) && r.instances.Get(w.instance).name == string(s.Instance) {
			return p.Handle()
		}
	}
	return 0
}

func (r *roster) findInstance(name []byte) table.Handle {
	for p := r.byName.Find(r.nameHash(name)); p.Found(); p = r.byName.Next(p) {
		if r.instances.Get(p.Handle()).name == string(name) {
			return p.Handle()
		}
	}
	return 0
}

// instanceOf returns the instance of a worker.
func (r *roster) instanceOf(w *worker) *instance { return r.instances.Get(w.instance) }

// recordHeard records that a fact of a worker arrived now.
func (r *roster) recordHeard(now effects.Time, h table.Handle, w *worker, s *Sender) {
	w.heardAt = now
	r.workers.Unlink(r.listFor(w), h)
	r.workers.PushBack(r.listFor(w), h)
	if w.directory == 0 {
		r.conns.recordHeard(now, h, w, s.Source)
	}
}

// listFor returns the list that contains a worker, depending on whether the worker is expected to be heard and on
// which directory hears the worker.
func (r *roster) listFor(w *worker) *table.List {
	lists := &r.expected
	if r.heartbeatersOnly && !w.sendsHeartbeats {
		lists = &r.quiet
	}
	if w.directory == 0 {
		return &lists[0]
	}
	return &lists[1]
}

// setHeartbeats sets whether a worker sends heartbeats. The caller must call hear next, which moves the worker to the
// end of that list.
func (r *roster) setHeartbeats(h table.Handle, w *worker, sends bool) {
	r.workers.Unlink(r.listFor(w), h)
	w.sendsHeartbeats = sends
	r.workers.PushBack(r.listFor(w), h)
}

// setDirectory sets which directory a worker reports to from now on.
func (r *roster) setDirectory(h table.Handle, w *worker, s *Sender) {
	r.workers.Unlink(r.listFor(w), h)
	if s.Directory == 0 && w.directory != 0 {
		r.recordTaken(w, s)
	}
	if w.directory, w.gaps = s.Directory, s.Gaps; w.directory != 0 {
		r.conns.removeWorker(w)
	}
	r.workers.PushBack(r.listFor(w), h)
}

// recordTaken records, for the directories that share the log, that a worker reports to this directory from now on.
func (r *roster) recordTaken(w *worker, s *Sender) {
	r.takenWorkers = append(r.takenWorkers, WorkerRef{Instance: r.instanceOf(w).name, Worker: w.rank, Principal: s.Principal})
}

// hasRoomFor reports whether there is room for the sender after the worker removed has been removed (nil: none is
// removed).
func (r *roster) hasRoomFor(s *Sender, removed *worker) bool {
	in, origin := r.findInstance(s.Instance), r.origins.classOf(s.Origin)
	workers, freedClass, lastWorker := r.workers.Len(), -1, false
	if removed != nil {
		workers--
		freedClass, lastWorker = removed.shareClass(), r.instanceOf(removed).workers == 1
	}
	if workers >= r.workers.Max() || !r.origins.workerShare.HasRoomAfter(origin, freedClass) {
		return false
	}
	if in != 0 && (!lastWorker || removed.instance != in) {
		count := r.instances.Get(in).workers
		if removed != nil && removed.instance == in {
			count--
		}
		return count < r.workersPerInstance
	}
	instances := r.instances.Len()
	if freedClass = -1; lastWorker {
		instances--
		freedClass = int(r.instanceOf(removed).origin.Slot())
	}
	return instances < r.instances.Max() && r.origins.instanceShare.HasRoomAfter(origin, freedClass)
}

// findDisplaceable returns the worker to drop so that the sender fits: among the workers whose removal makes room, the
// one that has been without a connection for the longest time. It examines at most limit workers, and returns 0 if no
// removal would make room.
func (r *roster) findDisplaceable(s *Sender, limit int) table.Handle {
	for h := r.conns.disconnectedOrder.Front(); h != 0 && limit > 0; h = r.conns.disconnections.Next(h) {
		wh := r.conns.disconnections.Get(h).worker
		if r.hasRoomFor(s, r.workers.Get(wh)) {
			return wh
		}
		limit--
	}
	return 0
}

// addWorker inserts a worker. The caller has checked that there is room.
func (r *roster) addWorker(now effects.Time, s *Sender, a *Address) (table.Handle, *worker) {
	origin := r.origins.addRef(s.Origin)
	in := r.findInstance(s.Instance)
	if in == 0 {
		h, i := r.instances.Add()
		*i = instance{name: string(s.Instance), origin: r.origins.addRef(s.Origin)}
		r.origins.instanceShare.Acquire(int(origin.Slot()))
		r.byName.Add(r.nameHash(s.Instance), h)
		in = h
	}
	r.instances.Get(in).workers++
	r.origins.workerShare.Acquire(int(origin.Slot()))
	h, w := r.workers.Add()
	*w = worker{
		instance: in, rank: uint32(s.Worker), incarnation: s.Incarnation, origin: origin, heardAt: now, directory: s.Directory,
		gaps: s.Gaps,
	}
	w.setAddress(a)
	r.setOwner(w, s)
	r.byRank.Add(r.rankHash(s.Instance, w.rank), h)
	r.workers.PushBack(r.listFor(w), h)
	if w.directory == 0 {
		r.conns.recordHeard(now, h, w, s.Source)
	}
	return h, w
}

// moveOrigin counts a worker without records against the origin of the latest fact, if the share of that origin has
// room.
func (r *roster) moveOrigin(w *worker, s *Sender) {
	if r.origins.rows.Get(w.origin).id == s.Origin || !r.origins.workerShare.HasRoomAfter(r.origins.classOf(s.Origin), w.shareClass()) {
		return
	}
	origin := r.origins.addRef(s.Origin)
	r.origins.workerShare.Release(w.shareClass())
	r.origins.removeRef(w.origin)
	w.origin = origin
	r.origins.workerShare.Acquire(w.shareClass())
}

// removeWorker deletes a worker that has no feeds and no syncs any more.
func (r *roster) removeWorker(h table.Handle, w *worker) {
	i := r.instanceOf(w)
	name := []byte(i.name)
	r.byRank.Remove(r.rankHash(name, w.rank), h)
	r.removeOwner(w)
	if i.workers--; i.workers == 0 {
		r.byName.Remove(r.nameHash(name), w.instance)
		r.origins.instanceShare.Release(int(i.origin.Slot()))
		r.origins.removeRef(i.origin)
		r.instances.Remove(w.instance)
	}
	r.conns.removeWorker(w)
	r.origins.workerShare.Release(w.shareClass())
	r.origins.removeRef(w.origin)
	r.workers.Unlink(r.listFor(w), h)
	r.workers.Remove(h)
}

// longestUnheard returns the worker of this directory that counts as silent next, and when that worker was last heard;
// ok is false if there is none.
func (r *roster) longestUnheard() (h table.Handle, at effects.Time, ok bool) {
	if h = r.expected[0].Front(); h == 0 {
		return 0, 0, false
	}
	return h, r.workers.Get(h).heardAt, true
}
