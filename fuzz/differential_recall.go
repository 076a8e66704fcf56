package fuzz

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// libraryQuery is a CacheQueryRequest as msgpack/v5 reads it.
type libraryQuery struct {
	Type        string   `msgpack:"type"`
	Keys        []string `msgpack:"keys"`
	Version     *uint64  `msgpack:"kvf_v"`
	Incarnation string   `msgpack:"kvf_inc"`
	To          string   `msgpack:"kvf_to"`
	Operation   uint64   `msgpack:"kvf_op"`
	Attempt     uint64   `msgpack:"kvf_try"`
	PatienceNS  uint64   `msgpack:"kvf_patience_ns"`
	Request     string   `msgpack:"kvf_req"`
	Done        []uint64 `msgpack:"kvf_done"`
}

func compareCacheQueryRequest(b []byte) error {
	var m protocol.CacheQueryRequest
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryQuery
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "CacheQueryRequest", v.Type)
	d.want("keys", fmt.Sprintf("%q", m.Keys), fmt.Sprintf("%q", v.Keys))
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.wantUUID("kvf_to", m.Ext.To, v.To)
		d.want("kvf_op", m.Ext.Operation, v.Operation)
		d.want("kvf_try", m.Ext.Attempt, v.Attempt)
		d.want("kvf_patience_ns", m.Ext.PatienceNS, v.PatienceNS)
		d.want("kvf_req", string(m.Ext.Request), v.Request)
		d.want("kvf_done", m.Ext.Done, v.Done)
	}
	return d.err
}

// libraryCached is a CacheQueryResponse as msgpack/v5 reads it.
type libraryCached struct {
	Type        string   `msgpack:"type"`
	Keys        []string `msgpack:"cached_keys"`
	Indexes     []int64  `msgpack:"cached_indexes"`
	Version     *uint64  `msgpack:"kvf_v"`
	Incarnation string   `msgpack:"kvf_inc"`
	Grant       uint64   `msgpack:"kvf_grant"`
	Generations []uint64 `msgpack:"kvf_gens"`
	Lengths     []uint64 `msgpack:"kvf_lengths"`
	LeaseNS     uint64   `msgpack:"kvf_lease_ns"`
	Code        uint64   `msgpack:"kvf_code"`
	RetryNS     uint64   `msgpack:"kvf_retry_ns"`
	Done        []uint64 `msgpack:"kvf_done"`
	Reason      string   `msgpack:"kvf_reason"`
}

func compareCacheQueryResponse(b []byte) error {
	var m protocol.CacheQueryResponse
	if m.Decode(b, nil) != nil {
		return nil // The library must not see these.
	}
	var v libraryCached
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("accepted, but the library says %w", err)
	}
	var d differ
	d.want("type", "CacheQueryResponse", v.Type)
	d.want("cached_keys", fmt.Sprintf("%q", m.CachedKeys), fmt.Sprintf("%q", v.Keys))
	d.want("cached_indexes", m.CachedIndexes, v.Indexes)
	d.want("has ext", m.HasExt, v.Version != nil)
	if m.HasExt {
		d.want("kvf_v", m.Ext.Version, *v.Version)
		d.wantUUID("kvf_inc", m.Ext.Incarnation, v.Incarnation)
		d.want("kvf_grant", m.Ext.Grant, v.Grant)
		d.want("kvf_gens", m.Ext.Generations, v.Generations)
		d.want("kvf_lengths", m.Ext.Lengths, v.Lengths)
		d.want("kvf_lease_ns", m.Ext.LeaseNS, v.LeaseNS)
		d.want("kvf_code", m.Ext.Code, v.Code)
		d.want("kvf_retry_ns", m.Ext.RetryNS, v.RetryNS)
		d.want("kvf_done", m.Ext.Done, v.Done)
		d.want("kvf_reason", string(m.Ext.Reason), v.Reason)
	}
	return d.err
}
