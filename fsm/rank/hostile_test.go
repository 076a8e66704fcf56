package rank

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// What peers and drivers do to a rank that they should not, or that it cannot help.

// message returns the bytes of an item that is a message, to be changed in place.
func (it *item) message() *[]byte {
	switch ev := it.ev.(type) {
	case *effects.Received:
		return &ev.Body
	case *effects.Replied:
		return &ev.Body
	default: // Completions carry no bytes.
		return nil
	}
}

// findPending finds the first item under way whose name starts so.
func (r *rig) findPending(what string) *item {
	for i := range r.items {
		if strings.HasPrefix(r.items[i].name, what) {
			return &r.items[i]
		}
	}
	r.t.Fatalf("no %s is under way", what)
	return nil
}

// corruptBytes changes bytes the way that broken and hostile peers do.
func corruptBytes(t *testing.T, body []byte, how string) []byte {
	switch how {
	case "truncated":
		return body[:len(body)/2]
	case "trailing":
		return append(body, 0xC0)
	case "empty":
		return nil
	case "unknown": // a tag that nobody knows
		return (&protocol.HixlReadyRequest{}).Append(nil)[:1]
	case "type": // a map where a message is a tagged array or map of its own
		return []byte{0x81, 0xA1, 'x', 0x01}
	case "long": // an array that claims more elements than there can be
		return []byte{0xDD, 0xFF, 0xFF, 0xFF, 0xFF}
	case "deep":
		return []byte(strings.Repeat("\x91", 5000))
	case "huge": // a string that claims more bytes than a message may have
		return append([]byte{0xDB, 0x7F, 0xFF, 0xFF, 0xFF}, "x"...)
	case "ready": // a whole message, but not the one that belongs here
		return (&protocol.HixlReadyResponse{}).Append(nil)
	case "taken": // what was not carried
		var m protocol.AllocResponse
		lim := protocol.DefaultLimits()
		if err := m.Decode(body, &lim); err != nil {
			t.Fatal(err)
		}
		m.RemoteIndexes, m.RemoteUUIDs, m.Ext.Generations, m.Ext.Taken = nil, nil, nil, 1
		return m.Append(nil)
	case "list": // of who said no hello
		return (&protocol.HixlMemInfoRequest{LocalID: []byte("nobody")}).Append(nil)
	case "alloc":
		return (&protocol.AllocRequest{Keys: keys([]string{"a"}), Format: layout.Format, Shape: layout.Shape,
			Dtype: layout.Dtype, LastChunkTokens: 4}).Append(nil)
	}
	t.Fatalf("bytes cannot be spoilt as %q", how)
	return nil
}

// alterHello decodes a hello, changes what the peer says of itself, and encodes it again.
func (r *rig) alterHello(it *item, arg func(string) []string) {
	body, lim := it.message(), protocol.DefaultLimits()
	var ask protocol.HixlInitRequest
	var answer protocol.HixlInitResponse
	change := func(e *protocol.HelloExt) {
		for _, v := range arg("proto") {
			n, err := strconv.Atoi(v)
			if err != nil {
				r.t.Fatal(err)
			}
			e.ProtoMin, e.ProtoMax = uint32(n), uint32(n)
		}
		if len(arg("inc")) > 0 {
			e.Incarnation = protocol.UUID{}
		}
		if len(arg("page")) > 0 {
			e.PageBytes *= 2
		}
		if len(arg("dtype")) > 0 {
			e.Layout.Dtype = protocol.DtypeBFloat16
		}
		if len(arg("format")) > 0 {
			e.Layout.Format = protocol.FormatKVMLA
		}
		if len(arg("planes")) > 0 {
			e.Planes, e.Blobs = [][]byte{[]byte(arg("planes")[0])}, [][]byte{[]byte("blob")}
		}
		if len(arg("cache")) > 0 { // The place of the number that is another one, and which.
			at, err := strconv.Atoi(arg("cache")[0])
			if err != nil {
				r.t.Fatal(err)
			}
			if e.Geometry[at], err = strconv.ParseUint(arg("cache")[1], 10, 64); err != nil {
				r.t.Fatal(err)
			}
		}
		if len(arg("blobs")) > 0 {
			e.Blobs = nil
		}
	}
	if err := ask.Decode(*body, &lim); err == nil {
		change(&ask.Ext)
		ask.HasExt = len(arg("plain")) == 0
		*body = ask.Append(nil)
		return
	}
	if err := answer.Decode(*body, &lim); err != nil {
		r.t.Fatalf("%s is no hello: %v", it.name, err)
	}
	change(&answer.Ext)
	answer.HasExt = len(arg("plain")) == 0
	*body = answer.Append(nil)
}

// incarnationOf resolves the name of an incarnation: a rank's, a stranger's, or none.
func (r *rig) incarnationOf(name string) effects.Incarnation {
	switch name {
	case "none":
		return effects.Incarnation{}
	case "stranger":
		return effects.Incarnation{0xBA, 0xD1}
	}
	return r.node(name).rank.Incarnation()
}

// grantIDs turns ordinals of a rank's grants into ids; one that it never gave is made up.
func (r *rig) grantIDs(n *node, ordinals []string) (ids []uint64) {
	for _, o := range ordinals {
		i, err := strconv.Atoi(o)
		if err != nil {
			r.t.Fatal(err)
		}
		if i <= len(n.granted) {
			ids = append(ids, uint64(n.granted[i-1]))
		} else {
			ids = append(ids, uint64(i)<<16)
		}
	}
	return ids
}

// sendForged gives a rank a message on a connection of its own, from somebody who is no rank.
func (r *rig) sendForged(n *node, arg func(string) []string) {
	one := func(key, otherwise string) string {
		if v := arg(key); len(v) > 0 {
			return v[0]
		}
		return otherwise
	}
	m := protocol.AllocRequest{
		Keys: keys(arg("keys")), Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4,
	}
	if inc := one("inc", ""); inc != "" {
		m.HasExt = true
		from, whom := r.statedNames(n, inc, one("to", "none"))
		m.Ext = protocol.AllocExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(from), To: protocol.UUID(whom), Operation: 999, Attempt: 1,
			Commit: r.grantIDs(n, arg("commit")), Abort: r.grantIDs(n, arg("abort")),
		}
	}
	m.Ext.Request = []byte(one("request", ""))
	if one("waits", "") != "" {
		m.Ext.PatienceNS = 1e9
	}
	if one("tail", "") != "" {
		m.LastChunkTokens = 3
	}
	if one("dtype", "") != "" {
		m.Dtype = protocol.DtypeBFloat16
	}
	body := m.Append(nil)
	if how := one("how", ""); how != "" {
		body = corruptBytes(r.t, body, how)
	}
	channel := map[string]effects.Channel{"init": effects.ChannelInit, "alloc": effects.ChannelAlloc,
		"proxy": effects.ChannelProxy}[one("channel", "alloc")]
	request := effects.Request(r.id())
	if channel == effects.ChannelProxy {
		request = 0
	}
	r.step(n, &effects.Received{Conn: effects.Conn(r.id()), Channel: channel, Request: request, Body: body})
}

// loseConn loses a connection that a rank opened: what is in flight on it is unanswered,
// and then the transport says so.
func (r *rig) loseConn(n *node, channel string) {
	for i := range n.conns {
		c := &n.conns[i]
		if c.id == 0 || c.channel.String() != channel {
			continue
		}
		if corr := c.corr; corr != 0 {
			c.corr, c.request = 0, 0
			r.dropReply(corr)
			r.step(n, &effects.Unanswered{Corr: corr, Code: effects.PeerLost})
		}
		if c := n.conn(n.conns[i].id); c != nil && c.id != 0 {
			r.step(n, &effects.ConnLost{Conn: c.id})
		}
		return
	}
	r.t.Fatalf("%s has no %s connection", n.name, channel)
}

func codeNamed(t *testing.T, name string) effects.Code {
	for c := range effects.Code(effects.CodeCount) {
		if c.String() == name {
			return c
		}
	}
	t.Fatalf("no code is called %q", name)
	return 0
}

// failCompletion lets a completion under way say that its effect failed.
func (r *rig) failCompletion(it *item, code effects.Code) {
	switch ev := it.ev.(type) {
	case *effects.Opened:
		*it.to.conn(ev.Conn) = conn{}
		ev.Code, ev.Conn = code, 0
	case *effects.Imported:
		ev.Code, ev.Link = code, 0
	case *effects.SendDone:
		ev.Code = code
	case *effects.TransferDone:
		ev.Code, it.conn = code, 0
	case *effects.CopyDone:
		ev.Code = code
	default:
		r.t.Fatalf("%s cannot fail", it.name)
	}
}

// hostileDirective carries out the directives of this file; false says that it is none of them.
func (r *rig) hostileDirective(cmd, first string, arg func(string) []string) bool {
	switch cmd {
	case "facts":
		r.facts = true
	case "fail":
		r.failCompletion(r.findPending(first), codeNamed(r.t, arg("code")[0]))
	case "unsettled":
		r.unsettle(r.findPending(first), codeNamed(r.t, arg("code")[0]))
	case "spoil":
		body := r.findPending(first).message()
		*body = corruptBytes(r.t, *body, arg("how")[0])
	case "alter":
		r.alterHello(r.findPending(first), arg)
	case "overhear":
		x := r.findPending(first)
		r.savedMessage, r.savedChannel = append(r.savedMessage[:0], *x.message()...), effects.ChannelInit
		if ev, ok := x.ev.(*effects.Received); ok {
			r.savedChannel = ev.Channel
		}
	case "repeat":
		ev := &effects.Received{
			Conn: effects.Conn(r.id()), Channel: r.savedChannel, Request: effects.Request(r.id()), Body: r.savedMessage,
		}
		if r.savedChannel == effects.ChannelInit {
			r.alterHello(&item{ev: ev}, arg)
		}
		r.step(r.node(first), ev)
	case "late":
		// It is in the mailbox: closing its connection does not take it back any more.
		ev, ok := r.findPending(first).ev.(*effects.Replied)
		if !ok {
			r.t.Fatalf("%s is no answer", first)
		}
		for _, n := range r.nodes {
			for i := range n.conns {
				if n.conns[i].corr == ev.Corr {
					n.conns[i].corr = 0
				}
			}
		}
	case "say":
		r.sendForged(r.node(first), arg)
	case "lookup":
		r.lookup(r.node(first), arg)
	case "cut":
		r.loseConn(r.node(first), arg("channel")[0])
	case "landed":
		n := r.node(first)
		var pages []effects.Page
		for _, i := range arg("pages") {
			index, err := strconv.ParseUint(i, 10, 32)
			if err != nil {
				r.t.Fatal(err)
			}
			pg := effects.Page{Index: uint32(index), Length: 32, Generation: 1 << 40}
			if index < uint64(n.rank.Stats().PagesTotal) && len(arg("forged")) == 0 {
				pg.Generation = n.rank.PageState(0, uint32(index)).Generation
			}
			pages = append(pages, pg)
		}
		r.step(n, &effects.Landed{
			Landing: effects.Landing(r.id()), Grant: effects.GrantID(r.grantIDs(n, arg("grant"))[0]),
			Peer:  r.planePeerName(n, arg("peer")[0]),
			Pages: pages, Complete: true,
		})
	default:
		return r.hostilePull(cmd, first, arg)
	}
	return true
}

// printFact prints the facts that hostile transcripts are about.
func (r *rig) printFact(n *node, e *effects.Observe) {
	if !r.facts {
		return
	}
	switch e.Fact {
	case effects.FactLinkUp, effects.FactMalformed, effects.FactLinkDown, effects.FactHelloRefused:
		r.printf("%s Observe %v", n.name, strings.TrimSpace(fmt.Sprint(e.Fact, " ", codeUnlessOK(e.Code))))
		r.printReason(e.Why)
	default: // The others show in what the rank does.
	}
}

func codeUnlessOK(c effects.Code) string {
	if c == effects.OK {
		return ""
	}
	return c.String()
}
