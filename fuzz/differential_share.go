package fuzz

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// The same for what an owner, and a directory, read most.
var (
	DifferentialP2PGet      = compared("DifferentialP2PGet", compareP2PGet, protocol.TagAscendBatchedLookupAndGetMsg)
	DifferentialP2PGetReply = compared("DifferentialP2PGetReply", compareP2PGetReply,
		protocol.TagAscendBatchedLookupAndGetRetMsg)
	DifferentialControllerFeed = compared("DifferentialControllerFeed", compareOperations,
		protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg, protocol.TagBatchedKVOperationMsg)
)

// libraryGet is an AscendBatchedLookupAndGetMsg as msgpack/v5 reads it.
type libraryGet struct {
	Type        string   `msgpack:"type"`
	LookupID    string   `msgpack:"lookup_id"`
	ReceiverID  string   `msgpack:"receiver_id"`
	Keys        []string `msgpack:"keys"`
	MemIndexes  []int64  `msgpack:"mem_indexes"`
	BufferUUIDs []string `msgpack:"buffer_uuids"`
	PullMode    bool     `msgpack:"pull_mode"`
	Version     *uint64  `msgpack:"kvf_v"`
	Incarnation string   `msgpack:"kvf_inc"`
	To          string   `msgpack:"kvf_to"`
	Operation   uint64   `msgpack:"kvf_op"`
	Attempt     uint64   `msgpack:"kvf_try"`
	PatienceNS  uint64   `msgpack:"kvf_patience_ns"`
	Grant       uint64   `msgpack:"kvf_grant"`
	Generations []uint64 `msgpack:"kvf_gens"`
	GrantedNS   uint64   `msgpack:"kvf_granted_ns"`
	LeaseNS     uint64   `msgpack:"kvf_lease_ns"`
	ClockNS     uint64   `msgpack:"kvf_clock_ns"`
	EchoNS      uint64   `msgpack:"kvf_echo_ns"`
}

func compareP2PGet(b []byte) error {
	var m protocol.AscendBatchedLookupAndGetMsg
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryGet
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "AscendBatchedLookupAndGetMsg", v.Type)
	d.want("lookup_id", string(m.LookupID), v.LookupID)
	d.want("receiver_id", string(m.ReceiverID), v.ReceiverID)
	d.want("keys", fmt.Sprintf("%q", m.Keys), fmt.Sprintf("%q", v.Keys))
	d.want("mem_indexes", m.MemIndexes, v.MemIndexes)
	d.wantUUIDs("buffer_uuids", m.BufferUUIDs, v.BufferUUIDs)
	d.want("pull_mode", m.PullMode, v.PullMode)
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.wantUUID("kvf_to", m.Ext.To, v.To)
		d.want("kvf_op", m.Ext.Operation, v.Operation)
		d.want("kvf_try", m.Ext.Attempt, v.Attempt)
		d.want("kvf_patience_ns", m.Ext.PatienceNS, v.PatienceNS)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_gens", m.Ext.Generations, v.Generations)
		d.want("kvf_granted_ns", m.Ext.GrantedNS, v.GrantedNS)
		d.want("kvf_lease_ns", m.Ext.LeaseNS, v.LeaseNS)
		d.wantStamps(m.Ext.Stamps, v.ClockNS, v.EchoNS)
	}
	return d.err
}

// libraryGot is an AscendBatchedLookupAndGetRetMsg as msgpack/v5 reads it.
type libraryGot struct {
	Type          string   `msgpack:"type"`
	HitChunks     uint64   `msgpack:"num_hit_chunks"`
	RemoteUUIDs   []string `msgpack:"remote_buffer_uuids"`
	RemoteIndexes []int64  `msgpack:"remote_mem_indexes"`
	LeaseSeconds  any      `msgpack:"lease_ttl_s"`
	Version       *uint64  `msgpack:"kvf_v"`
	Incarnation   string   `msgpack:"kvf_inc"`
	Grant         uint64   `msgpack:"kvf_grant"`
	Generations   []uint64 `msgpack:"kvf_gens"`
	Code          uint64   `msgpack:"kvf_code"`
	RetryNS       uint64   `msgpack:"kvf_retry_ns"`
	Reason        string   `msgpack:"kvf_reason"`
	ClockNS       uint64   `msgpack:"kvf_clock_ns"`
	EchoNS        uint64   `msgpack:"kvf_echo_ns"`
}

func compareP2PGetReply(b []byte) error {
	var m protocol.AscendBatchedLookupAndGetRetMsg
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryGot
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "AscendBatchedLookupAndGetRetMsg", v.Type)
	d.want("num_hit_chunks", m.HitChunks, v.HitChunks)
	d.wantUUIDs("remote_buffer_uuids", m.RemoteUUIDs, v.RemoteUUIDs)
	d.want("remote_mem_indexes", m.RemoteIndexes, v.RemoteIndexes)
	d.want("lease_ttl_s", m.LeaseSeconds, seconds(v.LeaseSeconds))
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_gens", m.Ext.Generations, v.Generations)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_retry_ns", m.Ext.RetryNS, v.RetryNS)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
		d.wantStamps(m.Ext.Stamps, v.ClockNS, v.EchoNS)
	}
	return d.err
}

// seconds widens what the library read as the number that it is.
func seconds(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case float32:
		return float64(v)
	case int8:
		return float64(v)
	case int16:
		return float64(v)
	case int32:
		return float64(v)
	case int64:
		return float64(v)
	case uint8:
		return float64(v)
	case uint16:
		return float64(v)
	case uint32:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return 0
}

// libraryBatch is a BatchedKVOperationMsg as msgpack/v5 reads it.
type libraryBatch struct {
	Type       string `msgpack:"type"`
	InstanceID string `msgpack:"instance_id"`
	WorkerID   uint64 `msgpack:"worker_id"`
	Location   string `msgpack:"location"`
	Operations []struct {
		Type string `msgpack:"op_type"`
		Key  any    `msgpack:"key"`
		Seq  uint64 `msgpack:"seq_num"`
	} `msgpack:"operations"`
	Incarnation string `msgpack:"kvf_inc"`
}

func compareOperations(b []byte) error {
	var m protocol.BatchedKVOperationMsg
	if len(b) > 0 && b[0] == '{' || m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryBatch
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "BatchedKVOperationMsg", v.Type)
	d.want("instance_id", string(m.InstanceID), v.InstanceID)
	d.want("worker_id", m.WorkerID, v.WorkerID)
	d.want("location", string(m.Location), v.Location)
	d.wantUUID("kvf_inc", m.Incarnation, v.Incarnation)
	d.want("operations", len(m.Operations), len(v.Operations))
	for i := range min(len(m.Operations), len(v.Operations)) {
		ours, theirs := m.Operations[i], v.Operations[i]
		d.want("op_type", ours.Type, theirs.Type)
		d.want("key", ours.Key, theirs.Key)
		d.want("seq_num", ours.Seq, theirs.Seq)
	}
	return d.err
}
