package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An Incarnation is one life of a peer: one that we call, from when it is wanted until it is evicted, or one that shook
// hands with us, until another takes its place. Both directions have their rows in one table, so each has a class of
// its own in the fairness tables: the number of its row. Class 0 is nobody's, and behind the rows' come those of peers
// without our extensions.
//
// An inbound one is who knows the name that it has for us and the one that we have for it, each of which was told to
// the other only. Who says hello in another name is another one, and learns another name of ours.
type Incarnation struct {
	who     effects.Incarnation // its name for us; of one that we call, once it is met
	us      effects.Incarnation // what it knows us by
	former  effects.Incarnation // its name for us when it was met last, also if the link is down
	name    string              // what it calls itself, for people
	caps    uint64
	echo    int64  // its newest stamp that we saw
	anchor  anchor // zero: nothing ties the clocks together
	buffers []effects.Buffer
	link    Link // to its pages

	peer  table.Handle // of one that we call; zero: it calls us
	seen  effects.Time `snap:"skip"` // decides only when more peers come than there is room for
	spoke bool         // in the name that it was told
	conn  effects.Conn // on which it said hello last
	hello int64        // the stamp of that hello; 0: it had none
	gone  bool         // its link to our pages is

	geometry []uint64 // what lies in which of its pages, as it said

	layers  uint32 // of one that we call: of its chunks, where each has a page of its own
	chunks  bool   // likewise: its pages have all layers of a chunk, and ours one
	window  uint16 // of one that we call: requests at a time on one connection to its alloc port; 0 is one
	carries uint32 // likewise: most bytes of chunks in a request to its alloc port
}

func (x *Incarnation) inbound() bool { return x.peer == 0 }

// Link returns what a transfer needs: zero if there is no link.
func (x *Incarnation) Link() (effects.Link, effects.Incarnation) { return x.link.id, x.who }

// Us is what it knows us by.
func (x *Incarnation) Us() effects.Incarnation { return x.us }

// Extended says whether it speaks our extensions.
func (x *Incarnation) Extended() bool { return x.who != effects.Incarnation{} }

// Commits says whether it takes commits.
func (x *Incarnation) Commits() bool { return x.caps&protocol.CapCommit != 0 }

// Withdrawals says whether it takes withdrawals of offers.
func (x *Incarnation) Withdrawals() bool { return x.caps&protocol.CapPull != 0 }

// Leases says whether it keeps to leases.
func (x *Incarnation) Leases() bool { return x.caps&protocol.CapLease != 0 }

// Recalls says whether it answers which chunks of its own may be read back.
func (x *Incarnation) Recalls() bool { return x.caps&protocol.CapRecall != 0 }

// Layers is how many layers a chunk of its has, each in a page of its own; 0: a page has a whole chunk.
func (x *Incarnation) Layers() uint32 { return x.layers }

// Chunks says whether its pages have all layers of a chunk while ours have one layer each.
func (x *Incarnation) Chunks() bool { return x.chunks }

// Geometry is what lies in which of its pages, as it said; none if it takes no registrations. Nobody keeps it.
func (x *Incarnation) Geometry() []uint64 { return x.geometry }

// Carries is how many bytes of chunks a request to its alloc port may carry, at the most.
func (x *Incarnation) Carries() uint32 { return x.carries }

// PageBytes is how large its pages are; zero if it listed none.
func (x *Incarnation) PageBytes() uint64 {
	if len(x.buffers) > 0 {
		return x.buffers[0].PageBytes
	}
	return 0
}

// TakesLayers says whether it takes them one by one.
func (x *Incarnation) TakesLayers() bool { return x.caps&protocol.CapLayers != 0 }

// Stamps are those of a message to it now.
func (x *Incarnation) Stamps(now effects.Time) protocol.Stamps {
	return protocol.Stamps{ClockNS: int64(now), EchoNS: x.echo}
}

// Seen notes the stamp of a message of it.
func (x *Incarnation) Seen(s protocol.Stamps) {
	if s.ClockNS != 0 {
		x.echo = s.ClockNS
	}
}

// Gone says that its link to our pages is, and that it has not shaken hands since: it is given nothing. What it gives
// back is taken.
func (x *Incarnation) Gone() bool { return x.gone }

// Listed says whether it told its buffers. One that calls us and whose words crossed those of a former connection may
// not have.
func (x *Incarnation) Listed() bool { return len(x.buffers) > 0 }

// FirstBuffer is the one that it listed first; zero if it listed none.
func (x *Incarnation) FirstBuffer() effects.BufferID {
	if len(x.buffers) > 0 {
		return x.buffers[0].ID
	}
	return effects.BufferID{}
}

// Buffer finds one of its buffers.
func (x *Incarnation) Buffer(id effects.BufferID) (effects.Buffer, bool) {
	for _, b := range x.buffers {
		if b.ID == id {
			return b, true
		}
	}
	return effects.Buffer{}, false
}
