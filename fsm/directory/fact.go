package directory

import "github.com/kvferry/kvferry/effects"

// Texts and lists in facts are borrowed for the call.

// A Sender is who reports: one worker of an instance, by its rank.
type Sender struct {
	Instance []byte
	Worker   int64
	// Incarnation is that of its process; zero: it does not say, as LMCache's do not.
	Incarnation effects.Incarnation
	// Source is the connection on which it is heard; zero: none. A worker that was heard on one that is open is
	// connected. One connection connects Config.OfSource workers at the most.
	Source uint64
	// Origin is the network address that it is heard from. All shares go by it, because names are free: a worker counts
	// to the address that made it known.
	Origin effects.Origin
	// By is who heard it: zero, this directory; otherwise another one, which tells of it. Gaps is another number where
	// something may be missing between this and what that one told before.
	By   uint64
	Gaps uint64
}

// An Address is where a worker says it can be reached.
type Address struct {
	IP   []byte
	Port int64
	URL  []byte // for peers, who begin there; empty: none can reach it
}

// An Operation is one chunk that came to a location or went from it.
type Operation struct {
	Evict    bool
	Hash     uint64
	Sequence uint64
}

// A Report is what happened at one location, in its order.
type Report struct {
	Sender
	Location   []byte
	Operations []Operation
	Unnumbered bool // the sequences mean nothing: the worker's release has none
}

// A SyncBegin announces all that a location has.
type SyncBegin struct {
	Sender
	Location []byte
	ID       []byte
	Batches  int64
	// Next is the sequence of the first operation that the sync does not tell of, if Numbered. Otherwise it is the one
	// after the last that came, or 0; or if none has come, whichever is first: nobody can tell what was lost before that.
	Next     uint64
	Numbered bool
}

// A SyncBatch is a part of it.
type SyncBatch struct {
	Sender
	Location []byte
	ID       []byte
	Batch    int64 // from 0
	Hashes   []uint64
}

// A SyncEnd says that all batches were sent, and how many chunks there were in them.
type SyncEnd struct {
	Sender
	Location []byte
	ID       []byte
	Chunks   int64
}

// Progress is how far a sync is.
type Progress struct {
	Complete bool
	// Resume says that the worker need not keep still for it any more: it is complete, or nobody knows it.
	Resume  bool
	Done    int     // of 10,000
	Missing []int64 // batches
}

// A Peer is one that may have the first chunks of a prefix. Its texts are nobody's to change, and can be kept.
type Peer struct {
	Instance string
	Location string
	URL      string
	Chunks   int
}

// Reason is why a worker is asked for a full sync.
type Reason uint8

// The reasons.
const (
	NoSync    Reason = iota // it is not
	Unknown                 // it was not known when its heartbeat came
	Gap                     // operations are missing
	SyncLost                // a sync did not come to its end
	Elsewhere               // another directory misses something of it
)

// String is what workers are told; the first one is LMCache's word.
func (r Reason) String() string {
	switch r {
	case NoSync:
		return ""
	case Unknown:
		return "worker_re_registered"
	case Gap:
		return "sequence_gap"
	case SyncLost:
		return "sync_lost"
	case Elsewhere:
		return "replica_gap"
	}
	panic("BUG: there is no such reason")
}
