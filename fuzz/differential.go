package fuzz

import (
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// What a decoder of ours accepts, msgpack/v5 reads as the same fields. That library sees nothing else: on hostile
// bytes it can exhaust memory and stack.
var (
	DifferentialAllocRequest  = compared("DifferentialAllocRequest", compareAllocRequest, protocol.TagAllocRequest)
	DifferentialAllocResponse = compared("DifferentialAllocResponse", compareAllocResponse,
		protocol.TagAllocResponse, protocol.TagAscendAllocResponse)
	DifferentialPullReadyNotif = compared("DifferentialPullReadyNotif", comparePullReadyNotif,
		protocol.TagPullReadyNotif)
	DifferentialPullReadyDoneAck = compared("DifferentialPullReadyDoneAck", comparePullReadyDoneAck,
		protocol.TagPullReadyDoneAck)
	DifferentialPullDoneSignal = compared("DifferentialPullDoneSignal", comparePullDoneSignal,
		protocol.TagPullDoneSignal)
	DifferentialEndRequest    = compared("DifferentialEndRequest", compareEndRequest, protocol.TagEndRequest)
	DifferentialRenewRequest  = compared("DifferentialRenewRequest", compareRenewRequest, protocol.TagRenewRequest)
	DifferentialRenewResponse = compared("DifferentialRenewResponse", compareRenewResponse,
		protocol.TagRenewResponse)
	DifferentialCacheQueryRequest = compared("DifferentialCacheQueryRequest", compareCacheQueryRequest,
		protocol.TagCacheQueryRequest)
	DifferentialCacheQueryResponse = compared("DifferentialCacheQueryResponse", compareCacheQueryResponse,
		protocol.TagCacheQueryResponse)
)

// compared makes a target of a check that compares what two readers say of the messages with the given tags.
func compared(name string, check Check, tags ...protocol.Tag) Target {
	return Target{name: name, tags: tags, begin: func() Check { return check }}
}

// libraryRequest is an AllocRequest as msgpack/v5 reads it: declared with types wide enough that
// the library cannot wrap an integer, and with pointers where absence differs from zero.
type libraryRequest struct {
	Type            string   `msgpack:"type"`
	Keys            []string `msgpack:"keys"`
	Format          uint64   `msgpack:"fmt"`
	Shape           []uint64 `msgpack:"shape"`
	Dtype           string   `msgpack:"dtype"`
	LastChunkTokens uint64   `msgpack:"last_chunk_toks"`
	RequestID       *string  `msgpack:"req_id"`
	IsLastBatch     *bool    `msgpack:"is_last_batch"`
	TotalChunks     *uint64  `msgpack:"total_chunks"`
	Version         *uint64  `msgpack:"kvf_v"`
	Incarnation     string   `msgpack:"kvf_inc"`
	To              string   `msgpack:"kvf_to"`
	Operation       uint64   `msgpack:"kvf_op"`
	Attempt         uint64   `msgpack:"kvf_try"`
	PatienceNS      uint64   `msgpack:"kvf_patience_ns"`
	Request         string   `msgpack:"kvf_req"`
	Commit          []uint64 `msgpack:"kvf_commit"`
	Abort           []uint64 `msgpack:"kvf_abort"`
	Code            uint64   `msgpack:"kvf_code"`
	Reason          string   `msgpack:"kvf_reason"`
	Layers          uint64   `msgpack:"kvf_layers"`
	Epoch           uint64   `msgpack:"kvf_epoch"`
	Opened          uint64   `msgpack:"kvf_opened"`
}

func compareAllocRequest(b []byte) error {
	var m protocol.AllocRequest
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryRequest
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "AllocRequest", v.Type)
	d.want("keys", fmt.Sprintf("%q", m.Keys), fmt.Sprintf("%q", v.Keys))
	d.want("fmt", uint64(m.Format), v.Format)
	d.want("shape", m.Shape.Dims[:m.Shape.N], v.Shape)
	d.wantDtype(m.Dtype, v.Dtype)
	d.want("last_chunk_toks", m.LastChunkTokens, v.LastChunkTokens)
	d.want("with async", m.WithAsync, v.RequestID != nil || v.IsLastBatch != nil || v.TotalChunks != nil)
	d.want("req_id", string(m.RequestID), orZero(v.RequestID))
	d.want("is_last_batch", m.IsLastBatch, orZero(v.IsLastBatch))
	d.want("total_chunks", m.TotalChunks, orZero(v.TotalChunks))
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.wantUUID("kvf_to", m.Ext.To, v.To)
		d.want("kvf_op", m.Ext.Operation, v.Operation)
		d.want("kvf_try", m.Ext.Attempt, v.Attempt)
		d.want("kvf_patience_ns", m.Ext.PatienceNS, v.PatienceNS)
		d.want("kvf_req", string(m.Ext.Request), v.Request)
		d.want("kvf_commit", m.Ext.Commit, v.Commit)
		d.want("kvf_abort", m.Ext.Abort, v.Abort)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
		d.want("kvf_layers", m.Ext.Layers, v.Layers)
		d.want("kvf_epoch", m.Ext.Epoch, v.Epoch)
		d.want("kvf_opened", m.Ext.Opened, v.Opened)
	}
	return d.err
}

// libraryResponse is an AllocResponse of either family as msgpack/v5 reads it.
type libraryResponse struct {
	Type          string   `msgpack:"type"`
	AlreadySent   []int64  `msgpack:"already_sent_indexes"`
	RemoteIndexes []int64  `msgpack:"remote_indexes"`
	Version       *uint64  `msgpack:"kvf_v"`
	Grant         uint64   `msgpack:"kvf_grant"`
	Generations   []uint64 `msgpack:"kvf_gens"`
	LeaseNS       uint64   `msgpack:"kvf_lease_ns"`
	Code          uint64   `msgpack:"kvf_code"`
	RetryNS       uint64   `msgpack:"kvf_retry_ns"`
	Committed     []uint64 `msgpack:"kvf_committed"`
	Gone          []uint64 `msgpack:"kvf_gone"`
	Reason        string   `msgpack:"kvf_reason"`
}

// libraryAscend has the fields that only one family declares; the other may hold anything there.
type libraryAscend struct {
	RemoteUUIDs []string `msgpack:"remote_buffer_uuids"`
	AllocFailed bool     `msgpack:"alloc_failed"`
}

func compareAllocResponse(b []byte) error {
	var m protocol.AllocResponse
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryResponse
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("already_sent_indexes", m.AlreadySent, v.AlreadySent)
	d.want("remote_indexes", m.RemoteIndexes, v.RemoteIndexes)
	if m.Form == protocol.FormAscend {
		var a libraryAscend
		if err := msgpack.Unmarshal(b, &a); err != nil {
			return fmt.Errorf("accepted, but the library says %w", err)
		}
		d.want("type", "AscendAllocResponse", v.Type)
		d.want("alloc_failed", m.AllocFailed, a.AllocFailed)
		d.wantUUIDs("remote_buffer_uuids", m.RemoteUUIDs, a.RemoteUUIDs)
	} else {
		d.want("type", "AllocResponse", v.Type)
		d.want("remote_buffer_uuids", 0, len(m.RemoteUUIDs))
	}
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_gens", m.Ext.Generations, v.Generations)
		d.want("kvf_lease_ns", m.Ext.LeaseNS, v.LeaseNS)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_retry_ns", m.Ext.RetryNS, v.RetryNS)
		d.want("kvf_committed", m.Ext.Committed, v.Committed)
		d.want("kvf_gone", m.Ext.Gone, v.Gone)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
	}
	return d.err
}

// A differ compares fields of types that differ in width alone, by what they print, and keeps the first that differ.
type differ struct{ err error }

func (d *differ) want(field string, ours, library any) {
	if d.err == nil && fmt.Sprint(ours) != fmt.Sprint(library) {
		d.err = fmt.Errorf("%s: ours %v, the library's %v", field, ours, library)
	}
}

// wantUUID takes an absent field for the zero UUID, as extensions do.
func (d *differ) wantUUID(field string, ours protocol.UUID, library string) {
	if library == "" {
		library = protocol.UUID{}.String()
	}
	d.want(field, ours.String(), strings.ToLower(library))
}

// wantDtype allows for the old names.
func (d *differ) wantDtype(ours protocol.Dtype, library string) {
	switch library {
	case "fp8":
		library = "uint8"
	case "fp8_e4m3":
		library = "fp8_e4m3fn"
	}
	d.want("dtype", ours.String(), library)
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
