package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An owner is an identity to which workers of an instance belong. A worker belongs to the identity that the worker's
// process proved when it registered or sent a heartbeat, until the directory drops the worker. A worker whose process
// proved no identity belongs to nobody, and may be taken by any process that states its name.
type owner struct {
	principal effects.Principal
	workers   int // workers of the instance that belong to the principal
}

// isForbidden reports whether a worker belongs to an identity that the sender did not prove. A sender that proves no
// identity may be anybody, so it is none of the owner's processes.
func (r *roster) isForbidden(w *worker, s *Sender) bool {
	return w.owner != 0 && r.owners.Get(w.owner).principal != s.Principal
}

// mayJoin reports whether the sender may add a worker to its instance: workers of the instance belong to nobody, or one
// of them belongs to the sender. Otherwise a stranger could take all places of the instance.
func (r *roster) mayJoin(s *Sender) bool {
	h := r.findInstance(s.Instance)
	if h == 0 {
		return true
	}
	in := r.instances.Get(h)
	return in.owners.Len() == 0 || r.findOwner(in, s.Principal) != 0
}

// findOwner returns the owner with the principal among those of an instance, or 0 if there is none.
func (r *roster) findOwner(in *instance, p effects.Principal) table.Handle {
	for h := in.owners.Front(); h != 0; h = r.owners.Next(h) {
		if r.owners.Get(h).principal == p {
			return h
		}
	}
	return 0
}

// isRaise reports whether the sender of a registration or a heartbeat is the first to prove an identity of a worker.
func (r *roster) isRaise(w *worker, s *Sender) bool { return w.owner == 0 && s.Principal != 0 }

// setOwner records that a worker which belonged to nobody belongs to the sender, if the sender has proved an identity.
func (r *roster) setOwner(w *worker, s *Sender) {
	if !r.isRaise(w, s) {
		return
	}
	in := r.instanceOf(w)
	h := r.findOwner(in, s.Principal)
	if h == 0 {
		var x *owner
		h, x = r.owners.Add()
		*x = owner{principal: s.Principal}
		r.owners.PushBack(&in.owners, h)
	}
	r.owners.Get(h).workers++
	w.owner = h
}

// removeOwner records that a worker belongs to nobody any more.
func (r *roster) removeOwner(w *worker) {
	if w.owner == 0 {
		return
	}
	if x := r.owners.Get(w.owner); x.workers > 1 {
		x.workers--
	} else {
		r.owners.Unlink(&r.instanceOf(w).owners, w.owner)
		r.owners.Remove(w.owner)
	}
	w.owner = 0
}
