package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

const alice, mallory = effects.Principal(0xA), effects.Principal(0xB)

// sendAs sends a message of a principal with roles, and returns the replies of the step.
func (r *serving) sendAs(who effects.Principal, roles effects.Roles, c effects.Channel, body []byte) (replies [][]byte) {
	r.t.Helper()
	r.requests++
	r.step(&effects.Received{Conn: effects.Conn(r.requests), Principal: who, Roles: roles, Tenants: r.tenants, Realm: r.realm, Channel: c,
		Request: helloRequest + r.requests, Body: body})
	for i := range r.out.Len() {
		if e, ok := r.out.At(i).(*effects.Reply); ok {
			replies = append(replies, append([]byte(nil), e.Body...))
		}
	}
	return replies
}

func helloOf(peer effects.Incarnation) []byte {
	size, _ := layout.PageBytes()
	m := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(peer), PageBytes: size, Layout: layout}}
	return m.Append(nil)
}

func requestOf(peer effects.Incarnation, operation uint64, change func(*protocol.AllocRequest)) []byte {
	m := protocol.AllocRequest{Keys: numberedKeys(int(operation), 1), Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
		LastChunkTokens: 4, HasExt: true, Ext: protocol.AllocExt{Version: link.VersionMax, Incarnation: protocol.UUID(peer),
			To: protocol.UUID(key1.InboundName(peer)), Operation: operation, Attempt: 1, PatienceNS: uint64(allocTimeout),
			Request: []byte("r")}}
	if change != nil {
		change(&m)
	}
	return m.Append(nil)
}

// codeOf returns the code that a reply of this rank states in any of the forms of a refusal.
func codeOf(t fatal, body []byte) effects.Code {
	lim := protocol.DefaultLimits()
	var alloc protocol.AllocResponse
	var ack protocol.PullReadyDoneAck
	var hello protocol.HixlInitResponse
	var ready protocol.HixlReadyResponse
	var end protocol.EndResponse
	var query protocol.CacheQueryResponse
	var get protocol.AscendBatchedLookupAndGetRetMsg
	switch {
	case query.Decode(body, &lim) == nil:
		return effects.Code(query.Ext.Code)
	case get.Decode(body, &lim) == nil:
		return effects.Code(get.Ext.Code)
	case ready.Decode(body, &lim) == nil:
		return effects.Code(ready.Code)
	case hello.Decode(body, &lim) == nil:
		return effects.Code(hello.Ext.Code)
	case end.Decode(body, &lim) == nil:
		return effects.Code(end.Code)
	case alloc.Decode(body, &lim) == nil:
		return effects.Code(alloc.Ext.Code)
	case ack.Decode(body, &lim) == nil:
		return effects.Code(ack.Ext.Code)
	}
	t.Fatalf("%x is no reply", body)
	return 0
}

// describePeers returns what the rank knows of peers and has for them. The simulator compares whole ranks.
func (r *serving) describePeers() string {
	s := fmt.Sprintf("%+v", r.rank.Stats())
	for class := range r.rank.links.CountClasses() {
		if x := r.rank.links.IncarnationByClass(class); x != nil {
			s += fmt.Sprintf("\n%+v", *x)
		}
	}
	return s
}

// wantForbidden requires that the message gets one reply, that the reply says Forbidden, and that the rank stays as it
// was.
func (r *serving) wantForbidden(what string, who effects.Principal, roles effects.Roles, c effects.Channel, body []byte) {
	r.t.Helper()
	before := r.describePeers()
	replies := r.sendAs(who, roles, c, body)
	if len(replies) != 1 || codeOf(r.t, replies[0]) != effects.Forbidden {
		r.t.Fatalf("%s: replies %x, want one that says forbidden", what, replies)
	}
	if after := r.describePeers(); after != before {
		r.t.Fatalf("%s has changed\n%s\nto\n%s", what, before, after)
	}
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Reply:
		case *effects.Observe:
			if e.Code != effects.Forbidden || e.Why == nil {
				r.t.Fatalf("%s: %+v is observed, want forbidden with a reason", what, e)
			}
		default:
			r.t.Fatalf("%s leads to %T", what, e)
		}
	}
}

func endOf(peer, selfID effects.Incarnation) []byte {
	m := protocol.EndRequest{Version: link.VersionMax, Incarnation: protocol.UUID(peer), To: protocol.UUID(selfID), Operation: 9,
		Request: []byte("r"), Code: uint32(effects.Faulted)}
	return m.Append(nil)
}

func offerOf(peer effects.Incarnation) []byte {
	m := protocol.PullReadyNotif{SenderID: []byte("p:1"), SenderDoneURL: []byte("10.0.0.1:9"), Keys: numberedKeys(1, 1),
		SenderUUIDs: []protocol.UUID{{1}}, SenderIndexes: []int64{0}, Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
		LastChunkTokens: 4, PullID: protocol.PullID{1}, HasExt: true,
		Ext: protocol.PullReadyExt{Version: link.VersionMax, Incarnation: protocol.UUID(peer), To: protocol.UUID(key1.InboundName(peer)),
			Operation: 77, Attempt: 1, Grant: 5, Generations: []uint64{1}}}
	return m.Append(nil)
}

// A message of an identity without the role for it changes nothing, not even that a peer counts as present (S28).
func TestRoleIsRequired(t *testing.T) {
	r := newServing(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	for _, roles := range []effects.Roles{0, effects.RoleDecode, effects.RoleDirectory | effects.RoleProxy | effects.RoleOperator} {
		r.wantForbidden("a hello of "+roles.String(), alice, roles, effects.ChannelInit, helloOf(peer))
	}
	r.sendAs(alice, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
	r.sendAs(alice, effects.RolePrefill|effects.RoleDecode, effects.ChannelAlloc, requestOf(peer, 1, nil))
	if len(r.grants) != 1 {
		t.Fatalf("%d grants, want one", len(r.grants))
	}
	id := uint64(r.grants[0].ID)
	r.now++
	for what, body := range map[string][]byte{
		"a request": requestOf(peer, 2, nil),
		"a retry":   requestOf(peer, 1, nil),
		"an abort": requestOf(peer, 3, func(m *protocol.AllocRequest) {
			m.Keys, m.Ext.Abort = nil, []uint64{id}
		}),
		"an end":   endOf(peer, key1.InboundName(peer)),
		"an offer": offerOf(peer),
	} {
		r.wantForbidden(what, alice, effects.RoleDecode, effects.ChannelAlloc, body)
		r.wantForbidden(what, mallory, effects.RoleDecode, effects.ChannelAlloc, body)
	}
	r.wantForbidden("a list of buffers", alice, effects.RoleDecode, effects.ChannelInit, (&protocol.HixlMemInfoRequest{}).Append(nil))
}

// A name belongs to the identity of its first hello: messages in the name by another identity, or by none, change
// nothing (S29).
func TestNameBelongsToItsIdentity(t *testing.T) {
	r := newServing(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	r.sendAs(alice, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
	r.sendAs(alice, effects.RolePrefill, effects.ChannelAlloc, requestOf(peer, 1, nil))
	id := uint64(r.grants[0].ID)
	r.now++
	for _, who := range []effects.Principal{mallory, 0} {
		r.wantForbidden("a hello", who, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
		for what, body := range map[string][]byte{
			"a request": requestOf(peer, 2, nil),
			"a retry":   requestOf(peer, 1, nil),
			"an abort":  requestOf(peer, 3, func(m *protocol.AllocRequest) { m.Keys, m.Ext.Abort = nil, []uint64{id} }),
			"an end":    endOf(peer, key1.InboundName(peer)),
			"an offer":  offerOf(peer),
		} {
			r.wantForbidden(what, who, effects.RolePrefill, effects.ChannelAlloc, body)
		}
	}
	// Another identity is not told what would differ if it were the peer.
	unlike := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMax + 1, ProtoMax: link.VersionMax + 1, Incarnation: protocol.UUID(peer)}}
	r.wantForbidden("a hello that does not fit", mallory, effects.RolePrefill, effects.ChannelInit, unlike.Append(nil))
	if code := codeOf(t, r.sendAs(alice, effects.RolePrefill, effects.ChannelAlloc, requestOf(peer, 2, nil))[0]); code != effects.OK {
		t.Fatalf("the peer itself is answered %v", code)
	}
	// The end of a request by a forged name is not compared with the ends of that name.
	ev := &effects.Received{Principal: mallory}
	if class := r.rank.links.StatedClass(ev, peer); class != 0 {
		t.Fatalf("the forged name stands for class %d", class)
	}
	if ev.Principal = alice; r.rank.links.StatedClass(ev, peer) == 0 {
		t.Fatal("the name stands for no class")
	}
}

// A peer that proved no identity may prove one with a later hello, and must prove it from then on.
func TestIdentityIsRaised(t *testing.T) {
	r := newServing(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	r.sendAs(0, 0, effects.ChannelInit, helloOf(peer))
	// The lane may be authenticated before the next hello is.
	if code := codeOf(t, r.sendAs(alice, effects.RolePrefill, effects.ChannelAlloc, requestOf(peer, 1, nil))[0]); code != effects.OK {
		t.Fatalf("a lane that proves more than the hello is answered %v", code)
	}
	r.sendAs(alice, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
	r.wantForbidden("a hello without an identity", 0, 0, effects.ChannelInit, helloOf(peer))
	r.wantForbidden("a request without an identity", 0, 0, effects.ChannelAlloc, requestOf(peer, 2, nil))
	r.wantForbidden("a hello of another identity", mallory, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
}

// The list of buffers counts for the peer that said hello on the connection, and only from the identity of the hello.
func TestBuffersOfAnotherIdentity(t *testing.T) {
	r := newServing(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	send := func(who effects.Principal, body []byte) effects.Code {
		r.step(&effects.Received{Conn: 1, Principal: who, Roles: effects.RolePrefill, Channel: effects.ChannelInit,
			Request: helloRequest, Body: body})
		e, ok := r.out.At(r.out.Len() - 1).(*effects.Reply)
		if !ok {
			t.Fatal("no reply")
		}
		lim := protocol.DefaultLimits()
		var ready protocol.HixlReadyResponse
		if ready.Decode(e.Body, &lim) == nil {
			return effects.Code(ready.Code)
		}
		return effects.OK
	}
	list := (&protocol.HixlMemInfoRequest{LocalID: []byte("p:1"), HasExt: true}).Append(nil)
	send(alice, helloOf(peer))
	if code := send(mallory, list); code != effects.Forbidden {
		t.Fatalf("the list of another identity is answered %v", code)
	}
	if code := send(alice, list); code != effects.OK {
		t.Fatalf("the list of the peer is answered %v", code)
	}
}
