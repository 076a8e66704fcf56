package fuzz

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// libraryOffer is a PullReadyNotif as msgpack/v5 reads it.
type libraryOffer struct {
	Type            string   `msgpack:"type"`
	PullID          string   `msgpack:"pull_id"`
	Keys            []string `msgpack:"keys"`
	SenderUUIDs     []string `msgpack:"sender_buffer_uuids"`
	SenderIndexes   []int64  `msgpack:"sender_mem_indexes"`
	SenderID        string   `msgpack:"sender_id"`
	SenderDoneURL   string   `msgpack:"sender_done_url"`
	Format          uint64   `msgpack:"fmt"`
	Shape           []uint64 `msgpack:"shape"`
	Dtype           string   `msgpack:"dtype"`
	LastChunkTokens uint64   `msgpack:"last_chunk_toks"`
	Version         *uint64  `msgpack:"kvf_v"`
	Incarnation     string   `msgpack:"kvf_inc"`
	To              string   `msgpack:"kvf_to"`
	Operation       uint64   `msgpack:"kvf_op"`
	Attempt         uint64   `msgpack:"kvf_try"`
	PatienceNS      uint64   `msgpack:"kvf_patience_ns"`
	Request         string   `msgpack:"kvf_req"`
	Grant           uint64   `msgpack:"kvf_grant"`
	Generations     []uint64 `msgpack:"kvf_gens"`
	GrantedNS       uint64   `msgpack:"kvf_granted_ns"`
	LeaseNS         uint64   `msgpack:"kvf_lease_ns"`
	ClockNS         uint64   `msgpack:"kvf_clock_ns"`
	EchoNS          uint64   `msgpack:"kvf_echo_ns"`
	Renew           string   `msgpack:"kvf_renew"`
	Withdraw        []string `msgpack:"kvf_withdraw"`
	Code            uint64   `msgpack:"kvf_code"`
	Reason          string   `msgpack:"kvf_reason"`
}

func comparePullReadyNotif(b []byte) error {
	var m protocol.PullReadyNotif
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryOffer
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "PullReadyNotif", v.Type)
	d.want("pull_id", m.PullID, v.PullID)
	d.want("keys", fmt.Sprintf("%q", m.Keys), fmt.Sprintf("%q", v.Keys))
	d.wantUUIDs("sender_buffer_uuids", m.SenderUUIDs, v.SenderUUIDs)
	d.want("sender_mem_indexes", m.SenderIndexes, v.SenderIndexes)
	d.want("one page per key", len(m.SenderIndexes), len(v.Keys))
	d.want("sender_id", string(m.SenderID), v.SenderID)
	d.want("sender_done_url", string(m.SenderDoneURL), v.SenderDoneURL)
	d.want("fmt", uint64(m.Format), v.Format)
	d.want("shape", m.Shape.Dims[:m.Shape.N], v.Shape)
	d.wantDtype(m.Dtype, v.Dtype)
	d.want("last_chunk_toks", m.LastChunkTokens, v.LastChunkTokens)
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.wantUUID("kvf_to", m.Ext.To, v.To)
		d.want("kvf_op", m.Ext.Operation, v.Operation)
		d.want("kvf_try", m.Ext.Attempt, v.Attempt)
		d.want("kvf_patience_ns", m.Ext.PatienceNS, v.PatienceNS)
		d.want("kvf_req", string(m.Ext.Request), v.Request)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_gens", m.Ext.Generations, v.Generations)
		d.want("kvf_granted_ns", m.Ext.GrantedNS, v.GrantedNS)
		d.want("kvf_lease_ns", m.Ext.LeaseNS, v.LeaseNS)
		d.wantStamps(m.Ext.Stamps, v.ClockNS, v.EchoNS)
		d.want("kvf_renew", string(m.Ext.Renew), v.Renew)
		d.want("kvf_withdraw", m.Ext.Withdraw, v.Withdraw)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
	}
	return d.err
}

// libraryAck is a PullReadyDoneAck as msgpack/v5 reads it.
type libraryAck struct {
	Type        string  `msgpack:"type"`
	AlreadySent []int64 `msgpack:"already_sent_indexes"`
	AllocFailed bool    `msgpack:"alloc_failed"`
	Version     *uint64 `msgpack:"kvf_v"`
	Incarnation string  `msgpack:"kvf_inc"`
	Code        uint64  `msgpack:"kvf_code"`
	RetryNS     uint64  `msgpack:"kvf_retry_ns"`
	ClockNS     uint64  `msgpack:"kvf_clock_ns"`
	EchoNS      uint64  `msgpack:"kvf_echo_ns"`
	Delayed     bool    `msgpack:"kvf_delayed"`
	Reason      string  `msgpack:"kvf_reason"`
}

func comparePullReadyDoneAck(b []byte) error {
	var m protocol.PullReadyDoneAck
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryAck
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "PullReadyDoneAck", v.Type)
	d.want("already_sent_indexes", m.AlreadySent, v.AlreadySent)
	d.want("alloc_failed", m.AllocFailed, v.AllocFailed)
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_retry_ns", m.Ext.RetryNS, v.RetryNS)
		d.wantStamps(m.Ext.Stamps, v.ClockNS, v.EchoNS)
		d.want("kvf_delayed", m.Ext.Delayed, v.Delayed)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
	}
	return d.err
}

// libraryDone is a PullDoneSignal as msgpack/v5 reads it.
type libraryDone struct {
	Type        string  `msgpack:"type"`
	PullID      string  `msgpack:"pull_id"`
	Version     *uint64 `msgpack:"kvf_v"`
	Incarnation string  `msgpack:"kvf_inc"`
	To          string  `msgpack:"kvf_to"`
	Grant       uint64  `msgpack:"kvf_grant"`
	Code        uint64  `msgpack:"kvf_code"`
	Missing     uint64  `msgpack:"kvf_missing"`
	Reason      string  `msgpack:"kvf_reason"`
}

func comparePullDoneSignal(b []byte) error {
	var m protocol.PullDoneSignal
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryDone
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "PullDoneSignal", v.Type)
	d.want("pull_id", m.PullID, v.PullID)
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.wantUUID("kvf_to", m.Ext.To, v.To)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_missing", m.Ext.Missing, v.Missing)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
	}
	return d.err
}

// libraryRenew is a RenewRequest as msgpack/v5 reads it.
type libraryRenew struct {
	Type        string   `msgpack:"type"`
	Version     uint64   `msgpack:"kvf_v"`
	Incarnation string   `msgpack:"kvf_inc"`
	To          string   `msgpack:"kvf_to"`
	Operation   uint64   `msgpack:"kvf_op"`
	Grants      []uint64 `msgpack:"kvf_grants"`
	Done        []uint64 `msgpack:"kvf_done"`
	ClockNS     uint64   `msgpack:"kvf_clock_ns"`
	EchoNS      uint64   `msgpack:"kvf_echo_ns"`
}

func compareRenewRequest(b []byte) error {
	var m protocol.RenewRequest
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryRenew
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "KvfRenewRequest", v.Type)
	d.want("kvf_v", m.Version, v.Version)
	d.wantUUID("kvf_inc", m.Incarnation, v.Incarnation)
	d.wantUUID("kvf_to", m.To, v.To)
	d.want("kvf_op", m.Operation, v.Operation)
	d.want("kvf_grants", m.Grants, v.Grants)
	d.want("kvf_done", m.Done, v.Done)
	d.wantStamps(m.Stamps, v.ClockNS, v.EchoNS)
	return d.err
}

// libraryRenewed is a RenewResponse as msgpack/v5 reads it.
type libraryRenewed struct {
	Type        string   `msgpack:"type"`
	Version     uint64   `msgpack:"kvf_v"`
	Incarnation string   `msgpack:"kvf_inc"`
	Extended    []uint64 `msgpack:"kvf_extended"`
	LeaseNS     uint64   `msgpack:"kvf_lease_ns"`
	Gone        []uint64 `msgpack:"kvf_gone"`
	Done        []uint64 `msgpack:"kvf_done"`
	ClockNS     uint64   `msgpack:"kvf_clock_ns"`
	EchoNS      uint64   `msgpack:"kvf_echo_ns"`
}

func compareRenewResponse(b []byte) error {
	var m protocol.RenewResponse
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryRenewed
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "KvfRenewResponse", v.Type)
	d.want("kvf_v", m.Version, v.Version)
	d.wantUUID("kvf_inc", m.Incarnation, v.Incarnation)
	d.want("kvf_extended", m.Extended, v.Extended)
	d.want("kvf_lease_ns", m.LeaseNS, v.LeaseNS)
	d.want("kvf_gone", m.Gone, v.Gone)
	d.want("kvf_done", m.Done, v.Done)
	d.wantStamps(m.Stamps, v.ClockNS, v.EchoNS)
	return d.err
}

// libraryEnd is an EndRequest as msgpack/v5 reads it.
type libraryEnd struct {
	Type        string `msgpack:"type"`
	Version     uint64 `msgpack:"kvf_v"`
	Incarnation string `msgpack:"kvf_inc"`
	To          string `msgpack:"kvf_to"`
	Operation   uint64 `msgpack:"kvf_op"`
	Request     string `msgpack:"kvf_req"`
	Code        uint64 `msgpack:"kvf_code"`
	Reason      string `msgpack:"kvf_reason"`
}

func compareEndRequest(b []byte) error {
	var m protocol.EndRequest
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryEnd
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "KvfEndRequest", v.Type)
	d.want("kvf_v", m.Version, v.Version)
	d.wantUUID("kvf_inc", m.Incarnation, v.Incarnation)
	d.wantUUID("kvf_to", m.To, v.To)
	d.want("kvf_op", m.Operation, v.Operation)
	d.want("kvf_req", string(m.Request), v.Request)
	d.want("kvf_code", m.Code, v.Code)
	d.want("kvf_reason", string(m.Reason), v.Reason)
	return d.err
}

// wantUUIDs compares lists, in which no entry may be absent.
func (d *differ) wantUUIDs(field string, ours []protocol.UUID, library []string) {
	d.want(field, len(ours), len(library))
	for i := range min(len(ours), len(library)) {
		d.wantUUID(field, ours[i], library[i])
	}
}

func (d *differ) wantStamps(ours protocol.Stamps, clock, echo uint64) {
	d.want("kvf_clock_ns", ours.ClockNS, clock)
	d.want("kvf_echo_ns", ours.EchoNS, echo)
}
