package session

import (
	"slices"

	"github.com/kvferry/kvferry/protocol"
)

// A HoldingKind is the kind of a holding.
type HoldingKind uint8

// The kinds of holdings.
const (
	NoHolding HoldingKind = iota
	Pages                 // pages of a reserve or of a get
	Share                 // pages that are shared with peers
	Prefill               // a request that is pushed layer by layer
)

//kvferry:table
var kindNames = [...]string{NoHolding: "nothing", Pages: "pages", Share: "what is shared", Prefill: "a prefill"}

// String returns the kind in words, for messages to people.
func (k HoldingKind) String() string { return kindNames[k] }

// A holdingRule describes how an operation uses the holdings of its engine.
type holdingRule struct {
	creates        HoldingKind // the kind of holding that the operation creates if it succeeds
	target         HoldingKind // the kind of holding that its target must be
	targetOptional bool        // the target may be absent
	needsPrefill   bool        // the call names a prefill as well
	endsHolding    bool        // the holding is gone when the operation has succeeded
	touchesBlocks  bool        // until a call of the operation is over, peers may read or write blocks of the engine
}

// holdingRules holds the rule of each operation that the machine does not carry out itself. An operation that is not
// listed uses no holding.
//
//kvferry:table
var holdingRules = [protocol.CallDetach]holdingRule{
	protocol.CallReserve:        {creates: Pages},
	protocol.CallRelease:        {target: Pages, endsHolding: true},
	protocol.CallAwaitReturn:    {target: Pages},
	protocol.CallPut:            {target: Pages},
	protocol.CallRecall:         {target: Pages},
	protocol.CallBeginPrefill:   {creates: Prefill},
	protocol.CallSaveLayer:      {target: Pages, targetOptional: true, needsPrefill: true},
	protocol.CallPreemptPrefill: {needsPrefill: true},
	protocol.CallFinishPrefill:  {needsPrefill: true, endsHolding: true},
	protocol.CallDropPrefill:    {needsPrefill: true, endsHolding: true},
	protocol.CallGet:            {creates: Pages},
	protocol.CallStore:          {target: Pages},
	protocol.CallShare:          {target: Pages, creates: Share},
	protocol.CallWithdraw:       {target: Share, endsHolding: true},
	protocol.CallSharedGet:      {creates: Pages},
	protocol.CallRegister:       {touchesBlocks: true},
	protocol.CallFinished:       {touchesBlocks: true},
}

// touchesBlocks reports whether peers may touch blocks of the engine until a call of the operation is over.
func touchesBlocks(op protocol.CallOp) bool {
	return int(op) < len(holdingRules) && holdingRules[op].touchesBlocks
}

// A holding is something that an engine holds. A holding has the number of the call that brought the holding.
type holding struct {
	id         uint64
	kind       HoldingKind
	users      int    // number of calls that use the holding, and of shares made of it
	pagesOf    uint64 // of a share: the holding with its pages
	endingCall uint64 // the call that is to end the holding when nothing uses it any more
	freeSent   bool   // a Free was emitted
	orphaned   bool   // the engine did not wait for the call and does not know of the holding
}

// findHolding returns the session's holding with the number, or nil.
func (s *session) findHolding(id uint64) *holding {
	i, ok := slices.BinarySearchFunc(s.holdings, id, func(h *holding, id uint64) int { return compareIDs(h.id, id) })
	if !ok {
		return nil
	}
	return s.holdings[i]
}

// compareIDs orders numbers of calls and holdings.
func compareIDs(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// addHolding inserts a holding that a call brought.
func (s *session) addHolding(h *holding) {
	i, _ := slices.BinarySearchFunc(s.holdings, h.id, func(h *holding, id uint64) int { return compareIDs(h.id, id) })
	s.holdings = slices.Insert(s.holdings, i, h)
}

// releaseUse records that one call or share less uses the holding.
func (m *Machine) releaseUse(s *session, id uint64, out *Effects) {
	if id == 0 {
		return
	}
	h := s.findHolding(id)
	h.users--
	m.endIfUnused(s, h, out)
}

// endIfUnused continues with the end of a holding when nothing uses that holding any more: the call that waited to end
// the holding begins, or the holding is freed if the session is leaving or the engine does not know of the holding.
func (m *Machine) endIfUnused(s *session, h *holding, out *Effects) {
	if h.users > 0 || h.freeSent {
		return
	}
	if c := s.findCall(h.endingCall); c != nil {
		if !c.started && !s.leaving {
			m.startWaitingCall(s, c, out)
		}
		return
	}
	if s.leaving || h.orphaned {
		h.freeSent = true
		out.Frees = append(out.Frees, Free{s.id, h.id, h.kind})
	}
}

// removeHolding removes a holding that has ended.
func (m *Machine) removeHolding(s *session, h *holding, out *Effects) {
	s.holdings = slices.DeleteFunc(s.holdings, func(x *holding) bool { return x == h })
	m.releaseUse(s, h.pagesOf, out)
}

// OnHoldingFreed completes a Free.
func (m *Machine) OnHoldingFreed(sessionID, holdingID uint64, out *Effects) {
	s := m.findSession(sessionID)
	m.removeHolding(s, s.findHolding(holdingID), out)
	m.finishLeaving(s, out)
}
