package session

import (
	"slices"

	"github.com/kvferry/kvferry/protocol"
)

// A Kind is what an engine holds.
type Kind uint8

// What engines hold.
const (
	Nothing Kind = iota
	Pages        // of a reserve, or of a get
	Share        // pages that are shared
	Prefill      // a request that goes layer by layer
)

//kvferry:table
var kindNames = [...]string{Nothing: "nothing", Pages: "pages", Share: "what is shared", Prefill: "a prefill"}

func (k Kind) String() string { return kindNames[k] }

// A part is what an operation has to do with what its engine holds.
type part struct {
	gives   Kind // what it brings, if it ends well
	target  Kind // what its target is
	may     bool // it may have no target
	prefill bool // it names a prefill beside
	ends    bool // what it is about is no more when it has ended well
	blocks  bool // until it is over, blocks of the engine's may be read or written by peers
}

// parts has every operation that the machine does not carry out itself.
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

// onBlocks says whether blocks of the engine's may be touched by peers until a call of an operation is over.
func onBlocks(op protocol.CallOp) bool { return int(op) < len(parts) && parts[op].blocks }

// A holding is something that an engine holds, by the number of the call that brought it.
type holding struct {
	id    uint64
	kind  Kind
	uses  int    // calls, and what is shared of it
	of    uint64 // of what is shared: its pages
	ender uint64 // the call that is to end it, when nothing uses it any more
	freed bool   // a Free is out
	lost  bool   // its engine did not wait for it, and does not know it
}

func (s *session) holding(id uint64) *holding {
	i, ok := slices.BinarySearchFunc(s.holds, id, func(h *holding, id uint64) int { return compare(h.id, id) })
	if !ok {
		return nil
	}
	return s.holds[i]
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// hold notes what a call brought.
func (s *session) hold(h *holding) {
	i, _ := slices.BinarySearchFunc(s.holds, h.id, func(h *holding, id uint64) int { return compare(h.id, id) })
	s.holds = slices.Insert(s.holds, i, h)
}

// unuse says that one thing less uses a holding.
func (m *Machine) unuse(s *session, id uint64, out *Out) {
	if id == 0 {
		return
	}
	h := s.holding(id)
	h.uses--
	m.settle(s, h, out)
}

// settle goes on with a holding that is to end, when nothing uses it.
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

// drop takes a holding out that has ended.
func (m *Machine) drop(s *session, h *holding, out *Out) {
	s.holds = slices.DeleteFunc(s.holds, func(x *holding) bool { return x == h })
	m.unuse(s, h.of, out)
}

// Freed answers a Free.
func (m *Machine) Freed(id, of uint64, out *Out) {
	s := m.session(id)
	m.drop(s, s.holding(of), out)
	m.left(s, out)
}
