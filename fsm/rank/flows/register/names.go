package register

import (
	"bytes"

	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A requestName identifies a request by the router's name of the transfer, if present, and by an engine's name of the
// request. Two ends mean the same request if their transfers are equal. Without transfers, the names of the requests
// are compared, either completely or without the suffix that the engine appended.
type requestName struct {
	transfer, request []byte
}

func (n *requestName) copyFrom(transfer, request []byte) {
	n.transfer, n.request = append(n.transfer[:0], transfer...), append(n.request[:0], request...)
}

func (n *requestName) baseName() []byte { return protocol.TrimRequestSuffix(n.request) }

// A likeness says how certainly two names identify the same request.
type likeness uint8

const (
	nameDiffers likeness = iota
	nameSimilar          // equal except for the suffix
	nameExact
)

func (n *requestName) likenessTo(other *requestName) likeness {
	switch {
	case !bytes.Equal(n.transfer, other.transfer):
		return nameDiffers
	case len(n.transfer) > 0:
		return nameExact
	case bytes.Equal(n.request, other.request):
		return nameExact
	case bytes.Equal(n.baseName(), other.baseName()):
		return nameSimilar
	}
	return nameDiffers
}

// nameIndex finds rows by any of their names.
type nameIndex struct{ transfers, bases table.Index }

func (x *nameIndex) recycle() nameIndex {
	return nameIndex{transfers: x.transfers.Recycle(), bases: x.bases.Recycle()}
}

func (x *nameIndex) addRow(e *flow.Env, n *requestName, h table.Handle) {
	if len(n.transfer) > 0 {
		x.transfers.Add(e.Store.HashKey(n.transfer), h)
	}
	x.bases.Add(e.Store.HashKey(n.baseName()), h)
}

func (x *nameIndex) removeRow(e *flow.Env, n *requestName, h table.Handle) {
	if len(n.transfer) > 0 {
		x.transfers.Remove(e.Store.HashKey(n.transfer), h)
	}
	x.bases.Remove(e.Store.HashKey(n.baseName()), h)
}

// findRows appends the rows with names like n. The function nameFor returns the name of a row.
func (x *nameIndex) findRows(e *flow.Env, n *requestName, nameFor func(table.Handle) *requestName, into []table.Handle) []table.Handle {
	if len(n.transfer) > 0 {
		for p := x.transfers.Find(e.Store.HashKey(n.transfer)); p.Found(); p = x.transfers.Next(p) {
			if other := nameFor(p.Handle()); bytes.Equal(other.transfer, n.transfer) {
				into = append(into, p.Handle())
			}
		}
		return into
	}
	for p := x.bases.Find(e.Store.HashKey(n.baseName())); p.Found(); p = x.bases.Next(p) {
		if nameFor(p.Handle()).likenessTo(n) != nameDiffers {
			into = append(into, p.Handle())
		}
	}
	return into
}

// recordHash returns the hash for the record of an ended request: of the transfer if present, otherwise of the
// request's name without the suffix.
func (n *requestName) recordHash(e *flow.Env) uint64 {
	if len(n.transfer) > 0 {
		return e.Store.HashKey(n.transfer)
	}
	return e.Store.HashKey(n.baseName())
}
