package session

import (
	"slices"

	"github.com/kvferry/kvferry/protocol"
)

// A Kind is the kind of a holding.
type Kind uint8

// The kinds of holdings.
const (
	Nothing Kind = iota
	Pages        // pages of a reserve or of a get
	Share        // pages that are shared with peers
	Prefill      // a request that is pushed layer by layer
)

//kvferry:table
var kindNames = [...]string{Nothing: "nothing", Pages: "pages", Share: "what is shared", Prefill: "a prefill"}

// String returns the kind in words, for messages to people.
func (k Kind) String() string { return kindNames[k] }

// A part describes how an operation uses the holdings of its engine.
type part struct {
	gives   Kind // the kind of holding that the operation brings if it succeeds
	target  Kind // the kind of holding that its target must be
	may     bool // the target may be absent
	prefill bool // it names a prefill as well
	ends    bool // the holding is gone when the operation has succeeded
	blocks  bool // until a call of it is over, peers may read or write blocks of the engine
}

// parts lists the operations that the machine does not carry out itself.
//
//kvferry:table
var parts = [...]part{
	protocol.CallStats:          {},
	protocol.CallReserve:        {gives: Pages},
	protocol.CallRelease:        {target: Pages, ends: true},
	protocol.CallAwaitReturn:    {target: Pages},
	protocol.CallPut:            {target: Pages},
	protocol.CallTakeBack:       {},
	protocol.CallRecall:         {target: Pages},
	protocol.CallBeginPrefill:   {gives: Prefill},
	protocol.CallSaveLayer:      {target: Pages, may: true, prefill: true},
	protocol.CallPreemptPrefill: {prefill: true},
	protocol.CallFinishPrefill:  {prefill: true, ends: true},
	protocol.CallDropPrefill:    {prefill: true, ends: true},
	protocol.CallGet:            {gives: Pages},
	protocol.CallContains:       {},
	protocol.CallFetch:          {},
	protocol.CallAbandon:        {},
	protocol.CallStore:          {target: Pages},
	protocol.CallShare:          {target: Pages, gives: Share},
	protocol.CallWithdraw:       {target: Share, ends: true},
	protocol.CallLookup:         {},
	protocol.CallSharedGet:      {gives: Pages},
	protocol.CallKeep:           {},
	protocol.CallSharedFetch:    {},
	protocol.CallRegister:       {blocks: true},
	protocol.CallExpect:         {},
	protocol.CallNotNeeded:      {},
	protocol.CallFinished:       {blocks: true},
	protocol.CallAborted:        {},
	protocol.CallEnd:            {},
}

// onBlocks reports whether peers may touch blocks of the engine until a call of the operation is over.
func onBlocks(op protocol.CallOp) bool { return int(op) < len(parts) && parts[op].blocks }

// A holding is something that an engine holds. A holding has the number of the call that brought the holding.
type holding struct {
	id    uint64
	kind  Kind
	uses  int    // number of calls that use it, and of shares made of it
	of    uint64 // of a share: the holding of its pages
	ender uint64 // the call that is to end it when nothing uses it any more
	freed bool   // a Free was emitted
	lost  bool   // its engine did not wait for the call and does not know of the holding
}

// holding returns the session's holding with the number, or nil.
func (s *session) holding(id uint64) *holding {
	i, ok := slices.BinarySearchFunc(s.holds, id, func(h *holding, id uint64) int { return compare(h.id, id) })
	if !ok {
		return nil
	}
	return s.holds[i]
}

// compare orders numbers of calls and holdings.
func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// hold inserts a holding that a call brought.
func (s *session) hold(h *holding) {
	i, _ := slices.BinarySearchFunc(s.holds, h.id, func(h *holding, id uint64) int { return compare(h.id, id) })
	s.holds = slices.Insert(s.holds, i, h)
}

// unuse records that one call or share less uses the holding.
func (m *Machine) unuse(s *session, id uint64, out *Out) {
	if id == 0 {
		return
	}
	h := s.holding(id)
	h.uses--
	m.settle(s, h, out)
}

// settle continues with the end of a holding when nothing uses that holding any more: the call that waited to end the
// holding begins, or the holding is freed if the session is leaving or the engine does not know of the holding.
func (m *Machine) settle(s *session, h *holding, out *Out) {
	if h.uses > 0 || h.freed {
		return
	}
	if c := s.call(h.ender); c != nil {
		if !c.begun && !s.leaving {
			m.begin(s, c, out)
		}
		return
	}
	if s.leaving || h.lost {
		h.freed = true
		out.Frees = append(out.Frees, Free{s.id, h.id, h.kind})
	}
}

// drop removes a holding that has ended.
func (m *Machine) drop(s *session, h *holding, out *Out) {
	s.holds = slices.DeleteFunc(s.holds, func(x *holding) bool { return x == h })
	m.unuse(s, h.of, out)
}

// Freed completes a Free.
func (m *Machine) Freed(id, of uint64, out *Out) {
	s := m.session(id)
	m.drop(s, s.holding(of), out)
	m.left(s, out)
}
