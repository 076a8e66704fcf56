package directory

import "github.com/kvferry/kvferry/effects"

// Byte slices and lists in facts are borrowed for the duration of the call.

// A Sender identifies the reporting worker by its instance and rank.
type Sender struct {
	Instance []byte
	Worker   int64
	// Incarnation is the incarnation of the worker's process. Zero: the worker names none, as LMCache's workers do.
	Incarnation effects.Incarnation
	// Source is the connection on which the fact arrived; zero: none. A worker that was heard on an open connection
	// counts as connected. One connection counts for at most Config.WorkersPerConnection workers.
	Source uint64
	// Origin is the network address from which the fact arrived. All shares are counted per origin, because instance
	// names cost nothing: a worker counts against the address that made the worker known.
	Origin effects.Origin
	// Principal is the identity that the sender proved; zero: none. A worker belongs to the identity that made the worker
	// known, and facts about the worker from another one are refused as Forbidden.
	Principal effects.Principal
	// Directory identifies the directory that heard the fact: zero is this directory, a nonzero value names the
	// directory that reported the fact through the shared log. Gaps differs from the value of the previous fact of
	// the same directory if reports of that directory may be missing in between.
	Directory uint64
	Gaps      uint64
}

// An Address is the network address at which a worker says that peers can connect.
type Address struct {
	IP   []byte
	Port int64
	URL  []byte // where peers connect first; empty: peers cannot reach the worker
}

// An Operation says that a chunk was stored at a location or evicted from it.
type Operation struct {
	Evict    bool
	Hash     uint64
	Sequence uint64
}

// A Report lists the operations at one location, in their order.
type Report struct {
	Sender
	Location   []byte
	Operations []Operation
	// Unnumbered says that the sequences have no meaning, because the worker's release does not number operations.
	Unnumbered bool
}

// A SyncBegin announces a full sync: a list of all chunks that a location has.
type SyncBegin struct {
	Sender
	Location []byte
	ID       []byte
	Batches  int64
	// NextSequence is the sequence of the first operation that the sync does not cover, if Numbered is set. Otherwise
	// the expected sequence follows that of the last operation that arrived, or 0. If no operation has arrived yet, any
	// first sequence is accepted, because losses before that operation cannot be detected.
	NextSequence uint64
	Numbered     bool
}

// A SyncBatch is a part of a full sync.
type SyncBatch struct {
	Sender
	Location []byte
	ID       []byte
	Batch    int64 // from 0
	Hashes   []uint64
}

// A SyncEnd says that all batches of a full sync were sent, and how many chunks the batches contained.
type SyncEnd struct {
	Sender
	Location []byte
	ID       []byte
	Chunks   int64
}

// Progress describes how far a full sync is.
type Progress struct {
	Complete bool
	// Resume says that the worker may stop waiting for this sync: the sync is complete, or is unknown to the
	// directory.
	Resume  bool
	Done    int     // in 1/10,000
	Missing []int64 // numbers of batches that have not arrived
}

// A Peer may have the first chunks of a looked-up prefix. Its strings are immutable and may be kept.
type Peer struct {
	Instance string
	Location string
	URL      string
	Chunks   int
}

// SyncReason says why a worker is asked for a full sync.
type SyncReason uint8

// The reasons.
const (
	NoSync        SyncReason = iota // no sync is requested
	UnknownWorker                   // a heartbeat of an unknown worker arrived
	OperationGap                    // operations are missing
	SyncLost                        // an earlier sync was not completed
	ReplicaGap                      // another directory misses operations of the worker
)

// String returns the reason in the form that is sent to workers. LMCache defines the word of UnknownWorker.
func (r SyncReason) String() string {
	switch r {
	case NoSync:
		return ""
	case UnknownWorker:
		return "worker_re_registered"
	case OperationGap:
		return "sequence_gap"
	case SyncLost:
		return "sync_lost"
	case ReplicaGap:
		return "replica_gap"
	}
	panic("BUG: there is no such reason")
}
