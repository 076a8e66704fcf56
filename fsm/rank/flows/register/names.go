package register

import (
	"bytes"

	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A name identifies a request by the router's name of the transfer, if present, and by an engine's name of the
// request. Two ends mean the same request if their transfers are equal. Without transfers, the names of the requests
// are compared, either completely or without the suffix that the engine appended.
type name struct {
	transfer, request []byte
}

func (n *name) keep(transfer, request []byte) {
	n.transfer, n.request = append(n.transfer[:0], transfer...), append(n.request[:0], request...)
}

func (n *name) base() []byte { return protocol.NixlBase(n.request) }

// A likeness says how certainly two names identify the same request.
type likeness uint8

const (
	unlike likeness = iota
	alike           // equal except for the suffix
	exact
)

func (n *name) like(other *name) likeness {
	switch {
	case !bytes.Equal(n.transfer, other.transfer):
		return unlike
	case len(n.transfer) > 0:
		return exact
	case bytes.Equal(n.request, other.request):
		return exact
	case bytes.Equal(n.base(), other.base()):
		return alike
	}
	return unlike
}

// byName finds rows by any of their names.
type byName struct{ transfers, bases table.Index }

func (x *byName) emptied() byName {
	return byName{transfers: x.transfers.Emptied(), bases: x.bases.Emptied()}
}

func (x *byName) add(e *flow.Env, n *name, h table.Handle) {
	if len(n.transfer) > 0 {
		x.transfers.Add(e.Store.Hash(n.transfer), h)
	}
	x.bases.Add(e.Store.Hash(n.base()), h)
}

func (x *byName) remove(e *flow.Env, n *name, h table.Handle) {
	if len(n.transfer) > 0 {
		x.transfers.Remove(e.Store.Hash(n.transfer), h)
	}
	x.bases.Remove(e.Store.Hash(n.base()), h)
}

// find appends the rows with names like n. The function of returns the name of a row.
func (x *byName) find(e *flow.Env, n *name, of func(table.Handle) *name, into []table.Handle) []table.Handle {
	if len(n.transfer) > 0 {
		for p := x.transfers.Seek(e.Store.Hash(n.transfer)); p.Found(); p = x.transfers.Next(p) {
			if other := of(p.Handle()); bytes.Equal(other.transfer, n.transfer) {
				into = append(into, p.Handle())
			}
		}
		return into
	}
	for p := x.bases.Seek(e.Store.Hash(n.base())); p.Found(); p = x.bases.Next(p) {
		if of(p.Handle()).like(n) != unlike {
			into = append(into, p.Handle())
		}
	}
	return into
}

// remembered returns the hash for the record of an ended request: of the transfer if present, otherwise of the
// request's name without the suffix.
func (n *name) remembered(e *flow.Env) uint64 {
	if len(n.transfer) > 0 {
		return e.Store.Hash(n.transfer)
	}
	return e.Store.Hash(n.base())
}
