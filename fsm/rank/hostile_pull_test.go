package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// What peers say about offers that they should not, or that comes too late. Directives:
//
//	offer NAME inc=WHO to=WHO keys=(a) [page=9] [buffer=none] [grant=0] [gens=none] [done=0.0.0.0:1] [plain=1]
//	      [withdraw=(1)]
//	done NAME inc=WHO to=WHO of=1 [grant=2] [plain=1] [how=HOW]
//	renew NAME inc=WHO to=WHO [grants=(1)] [done=(1)]
//
// Offers are told by the order in which the ranks made them, grants by theirs.

// offering notes the offers that ranks make.
func (r *rig) offering(body []byte) {
	lim := protocol.DefaultLimits()
	var m protocol.PullReadyNotif
	if err := m.Decode(append([]byte(nil), body...), &lim); err == nil && len(m.Keys) > 0 && m.Ext.Attempt <= 1 {
		r.pulls = append(r.pulls, m.PullID)
	}
}

// pullIDs turns ordinals of offers into ids; one that nobody made is made up.
func (r *rig) pullIDs(ordinals []string) (ids []protocol.PullID) {
	for _, o := range ordinals {
		i, err := strconv.Atoi(o)
		if err != nil {
			r.t.Fatal(err)
		}
		id := protocol.PullID{byte(i), 0xFF}
		if i <= len(r.pulls) {
			id = r.pulls[i-1]
		}
		ids = append(ids, id)
	}
	return ids
}

func (r *rig) hostilePull(cmd, first string, arg func(string) []string) bool {
	has := func(key string) bool { return len(arg(key)) > 0 }
	ids := func() (inc, to protocol.UUID) {
		a, b := r.statedNames(r.node(first), arg("inc")[0], arg("to")[0])
		return protocol.UUID(a), protocol.UUID(b)
	}
	receive := func(channel effects.Channel, body []byte) {
		if has("how") {
			body = corruptBytes(r.t, body, arg("how")[0])
		}
		ev := &effects.Received{Conn: effects.Conn(r.id()), Channel: channel, Request: effects.Request(r.id()), Body: body}
		if channel == effects.ChannelDone {
			ev.Request = 0
		}
		r.step(r.node(first), ev)
	}
	switch cmd {
	case "offer":
		r.receiveOffer(arg, has, ids, receive)
	case "done":
		m := protocol.PullDoneSignal{PullID: r.pullIDs(arg("of"))[0], HasExt: !has("plain")}
		m.Ext.Version = 1
		m.Ext.Incarnation, m.Ext.To = ids()
		m.Ext.Grant = r.grantIDs(r.node(first), arg("of"))[0]
		if has("grant") {
			m.Ext.Grant = r.grantIDs(r.node(first), arg("grant"))[0]
		}
		receive(effects.ChannelDone, m.Append(nil))
	case "renew":
		m := protocol.RenewRequest{Version: 1, Operation: 1, Grants: r.grantIDs(r.node(first), arg("grants")),
			Done: r.grantIDs(r.node(first), arg("done"))}
		m.Incarnation, m.To = ids()
		receive(effects.ChannelInit, m.Append(nil))
	default:
		return r.hostileRecall(cmd, first, arg)
	}
	return true
}

func (r *rig) receiveOffer(arg func(string) []string, has func(string) bool, ids func() (inc, to protocol.UUID),
	receive func(effects.Channel, []byte)) {
	m := protocol.PullReadyNotif{
		PullID: protocol.PullID{1, 2, 3}, Keys: keys(arg("keys")), SenderID: []byte("x:3"), SenderDoneURL: []byte("x:3"),
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4, HasExt: !has("plain"),
	}
	m.Ext = protocol.PullReadyExt{Version: 1, Operation: 999 + r.id(), Attempt: 1, PatienceNS: 1e9, Grant: 5 << 16,
		GrantedNS: int64(r.now), LeaseNS: 60e9,
		Stamps: protocol.Stamps{ClockNS: int64(r.now), EchoNS: 1}, Withdraw: r.pullIDs(arg("withdraw"))}
	m.Ext.Incarnation, m.Ext.To = ids()
	if has("grant") {
		m.Ext.Grant = 0
	}
	if has("again") {
		m.Ext.Operation = 999
	}
	if has("request") {
		m.Ext.Request = []byte(arg("request")[0])
	}
	if has("tail") {
		m.LastChunkTokens = 3
	}
	if has("done") {
		m.SenderDoneURL = []byte(arg("done")[0])
	}
	for range m.Keys {
		buffer, page := protocol.UUID{9}, int64(0)
		if !has("buffer") {
			buffer = protocol.UUID(r.node(arg("inc")[0]).rank.Buffer())
		}
		if has("page") {
			n, err := strconv.Atoi(arg("page")[0])
			if err != nil {
				r.t.Fatal(err)
			}
			page = int64(n)
		}
		m.SenderUUIDs, m.SenderIndexes = append(m.SenderUUIDs, buffer), append(m.SenderIndexes, page)
		if !has("gens") {
			m.Ext.Generations = append(m.Ext.Generations, 1)
		}
	}
	receive(effects.ChannelAlloc, m.Append(nil))
}
