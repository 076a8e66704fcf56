package protocol

import "math"

// A FullSyncStartMsg begins a full sync, which reports to a controller every chunk that a worker has: on the reply
// socket, answered by a FullSyncStartRetMsg. The batches follow on the pull socket, which also carries the operations
// that happen during the sync.
//
//wire:message json
type FullSyncStartMsg struct {
	Worker      `wire:",inline"`
	Location    []byte `wire:"location"` // the backend that has the chunks
	SyncID      []byte `wire:"sync_id"`
	TotalKeys   uint64 `wire:"total_keys"`
	BatchCount  uint32 `wire:"batch_count"`
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the worker's incarnation; zero: not stated
	// Next is the number of the first operation that the sync does not cover; the wire carries Next + 1. The field is
	// present if Numbered is true: the worker numbers its operations.
	Next     uint64 `wire:"kvf_next,with=Numbered,as=successor"`
	Numbered bool   `wire:"-"`
}

// validate accepts a kvf_next of 0, which no number precedes, as the message of a worker that does not number
// operations.
func (m *FullSyncStartMsg) validate(*mapReader) {
	if m.Next == math.MaxUint64 {
		m.Next, m.Numbered = 0, false
	}
}

// A FullSyncStartRetMsg is the reply to a FullSyncStartMsg.
//
//wire:message json
type FullSyncStartRetMsg struct {
	SyncID   []byte `wire:"sync_id"`
	Accepted bool   `wire:"accepted"`
	ErrorMsg []byte `wire:"error_msg,optional,nil"` // why the sync is refused, for people; may be empty
}

// A FullSyncBatchMsg is a batch of a full sync. There is no reply.
//
//wire:message json
type FullSyncBatchMsg struct {
	Worker      `wire:",inline"`
	Location    []byte      `wire:"location"`
	SyncID      []byte      `wire:"sync_id"`
	BatchID     uint32      `wire:"batch_id"` // from 0
	Keys        []ChunkHash `wire:"keys"`
	Incarnation UUID        `wire:"kvf_inc,omitzero"`
}

// A FullSyncEndMsg ends a full sync. There is no reply.
//
//wire:message json
type FullSyncEndMsg struct {
	Worker          `wire:",inline"`
	Location        []byte `wire:"location"`
	SyncID          []byte `wire:"sync_id"`
	ActualTotalKeys uint64 `wire:"actual_total_keys"`
	Incarnation     UUID   `wire:"kvf_inc,omitzero"`
}

// A FullSyncStatusMsg asks a controller for the progress of a full sync, on the reply socket.
//
//wire:message json
type FullSyncStatusMsg struct {
	Worker `wire:",inline"`
	SyncID []byte `wire:"sync_id"`
}

// A FullSyncStatusRetMsg is the reply to a FullSyncStatusMsg.
//
//wire:message json
type FullSyncStatusRetMsg struct {
	SyncID         []byte  `wire:"sync_id"`
	IsComplete     bool    `wire:"is_complete"`              // every batch of this worker has arrived
	GlobalProgress float64 `wire:"global_progress"`          // of all workers, 0 to 1; the range is unchecked
	CanExitFreeze  bool    `wire:"can_exit_freeze"`          // the controller answers lookups again
	MissingBatches []int64 `wire:"missing_batches,optional"` // batches to be sent again; the range is unchecked
}

// SetProgress sets GlobalProgress to a number of ten-thousandths. Machines compute without fractions.
func (m *FullSyncStatusRetMsg) SetProgress(parts int) { m.GlobalProgress = float64(parts) / 10_000 }
