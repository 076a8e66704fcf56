package rank

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/protocol"
)

// A rig joins ranks by a driver that does nothing by itself: everything that is
// under way is an item in a list, and the transcript says what becomes of it.
type rig struct {
	t            *testing.T
	met          map[effects.Mark]bool // nil: nobody asks
	now          effects.Time
	nodes        []*node
	items        []item
	ids          uint64
	log          strings.Builder
	quiet        bool
	facts        bool
	pulls        []protocol.PullID // offered, in order
	savedMessage []byte            // that was overheard
	savedChannel effects.Channel
	grants       []effects.GrantID // of all nodes, in order: the n-th is printed as gn
	effects      effects.Effects
	onFailure    func(*effects.Why) // of each outcome that failed; may be nil
	// rewriteMessage returns what a node's message is when it goes out; nil: what it is.
	rewriteMessage func(*node, []byte) []byte
}

type node struct {
	name  string
	rank  *Rank
	cfg   Config
	conns []conn
	links []importedLink
	// granted are its grants, in the order given.
	granted []effects.GrantID
}

type conn struct {
	id      effects.Conn
	channel effects.Channel
	peer    string
	corr    effects.Corr // outstanding Send
	request effects.Request
}

type importedLink struct {
	us   effects.Incarnation // as its peer knows us
	id   effects.Link
	peer string
}

// An item is something on its way: an event for a node.
type item struct {
	to   *node
	name string
	ev   effects.Event
	conn effects.Conn // of a TransferDone: the landing that must be confirmed before
}

var layout = protocol.Layout{
	Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
	Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4},
}

func (r *rig) id() uint64 { r.ids++; return r.ids }

func (r *rig) node(name string) *node {
	for _, n := range r.nodes {
		if n.name == name {
			return n
		}
	}
	r.t.Fatalf("no node %q", name)
	return nil
}

func (r *rig) printf(format string, args ...any) {
	if !r.quiet {
		line := fmt.Sprintf(format, args...)
		for i, id := range r.grants {
			line = strings.ReplaceAll(line, strconv.FormatUint(uint64(id), 10), fmt.Sprintf("g%d", i+1))
		}
		fmt.Fprintln(&r.log, line)
	}
}

func (r *rig) add(cfg Config, name string) {
	if cfg.LocalID, cfg.Planes = name, []Plane{{Name: "shm", Blob: []byte(name)}}; cfg.Layout.Shape.N == 0 {
		cfg.Layout = layout
	}
	machine, err := New(cfg, uint64(len(name))*1000+r.id(), r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range r.nodes {
		if n.name == name {
			n.rank, n.cfg, n.conns, n.links, n.granted = machine, cfg, nil, nil, nil
			return
		}
	}
	r.nodes = append(r.nodes, &node{name: name, rank: machine, cfg: cfg})
}

func (r *rig) step(n *node, ev effects.Event) {
	out := &r.effects
	out.Reset()
	n.rank.Step(r.now, ev, out)
	for _, m := range out.Marks() {
		if r.met != nil {
			r.met[m] = true
		}
	}
	for i := range out.Len() {
		r.executeEffect(n, out.At(i))
	}
	out.Scribble()
	r.checkPages(n)
	checkListings(r.t, n.rank, r.now)
}

// checkPages is S5 in small: every page is free or has a reason not to be.
func (r *rig) checkPages(n *node) {
	s := n.rank.Stats()
	r.checkPool(n, 0, 0, s.PagesFree+s.PagesPromised, s.PagesTotal)
	r.checkPool(n, 0, s.PagesTotal, s.ArenaFree, s.ArenaTotal)
	r.checkPool(n, 0, s.PagesTotal+s.ArenaTotal, s.DeviceFree, s.DeviceTotal)
}

// pages are so many of its pool, from one on.
func (n *node) pages(from, count int, length uint32) (all []effects.Page) {
	for i := from; len(all) < count; i++ {
		all = append(all, effects.Page{Index: uint32(i), Length: length, Generation: n.rank.PageState(0, uint32(i)).Generation})
	}
	return all
}

func (r *rig) push(to *node, what string, ev effects.Event) {
	r.items = append(r.items, item{to: to, name: what, ev: ev})
}

func (n *node) conn(id effects.Conn) *conn {
	for i := range n.conns {
		if n.conns[i].id == id {
			return &n.conns[i]
		}
	}
	return nil
}

// dropReply drops an answer under way: its connection was closed.
func (r *rig) dropReply(c effects.Corr) {
	for i := range r.items {
		if reply, ok := r.items[i].ev.(*effects.Replied); ok && reply.Corr == c {
			r.items = append(r.items[:i:i], r.items[i+1:]...)
			return
		}
	}
}

func tag(body []byte) string {
	if bytes.HasPrefix(body, []byte("PUSH_")) {
		return pushTag(body)
	}
	t, err := protocol.PeekTag(body, nil)
	if len(body) == 0 {
		return "an empty frame"
	}
	if err != nil {
		return "garbage"
	}
	text, err := protocol.Describe(body, nil)
	if err != nil {
		return t.String()
	}
	var notable []string
	of := "" // What is said of leases is told where recalls are.
	if t == protocol.TagCacheQueryRequest || t == protocol.TagCacheQueryResponse {
		of = "kvf_"
	}
	for _, line := range strings.Split(text, "\n") {
		for _, field := range []string{
			"already_sent_indexes", "remote_indexes", "alloc_failed", "kvf_commit", "kvf_abort", "kvf_try", "kvf_failed",
			"kvf_code", "kvf_reason", "kvf_committed", "kvf_gone", "kvf_missing", "kvf_withdraw", "kvf_delayed",
			"kvf_extended", "cached_indexes", "kvf_lengths", of + "lease_ns", of + "done",
			"num_hit_chunks", "remote_mem_indexes", "lease_ttl_s", "error_code", "done_url", "peer_lookup_url",
			"kvf_epoch", "kvf_opened", "kvf_taken",
		} {
			if strings.HasPrefix(strings.TrimSpace(line), field+" ") || strings.HasPrefix(strings.TrimSpace(line), field+":") {
				notable = append(notable, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	if len(notable) > 0 {
		return t.String() + " (" + strings.Join(notable, ", ") + ")"
	}
	return t.String()
}

func indexes(pages []effects.Page) string {
	var s []string
	for _, p := range pages {
		s = append(s, fmt.Sprint(p.Index))
	}
	return "[" + strings.Join(s, " ") + "]"
}

// carriedPages says which pages go with a message.
func carriedPages(e *effects.Send) string {
	if len(e.Carries) == 0 {
		return ""
	}
	return " with pages " + indexes(e.Carries)
}

// executeEffect carries out one effect of n.
func (r *rig) executeEffect(n *node, e effects.Effect) {
	switch e := e.(type) {
	case *effects.Open:
		r.printf("%s Open %v %s:%d", n.name, e.Channel, e.Addr.Host, e.Addr.Port)
		id := effects.Conn(r.id())
		n.conns = append(n.conns, conn{id: id, channel: e.Channel, peer: e.Addr.Host})
		r.push(n, "Opened", &effects.Opened{Corr: e.Corr, Conn: id})
	case *effects.Close:
		c := n.conn(e.Conn)
		r.printf("%s Close %v", n.name, c.channel)
		if c.corr != 0 {
			r.dropReply(c.corr)
			r.push(n, "Unanswered", &effects.Unanswered{Corr: c.corr, Code: effects.Closed})
		}
		*c = conn{}
	case *effects.Send:
		c := n.conn(e.Conn)
		r.printf("%s Send %v: %s%s", n.name, c.channel, tag(e.Body), carriedPages(e))
		if c.corr != 0 {
			r.t.Fatalf("%s: two requests in flight on one lockstep connection", n.name)
		}
		c.corr, c.request = e.Corr, effects.Request(r.id())
		r.offering(e.Body)
		to := r.node(c.peer)
		r.items = append(r.items, item{
			to: to, name: tag(e.Body),
			ev: &effects.Received{Conn: e.Conn + 1000, Channel: c.channel, Request: c.request,
				Body: r.outgoingBytes(n, e.Body)},
		})
	case *effects.Reply:
		r.printf("%s Reply: %s", n.name, tag(e.Body))
		for _, asker := range r.nodes {
			for i := range asker.conns {
				if c := &asker.conns[i]; c.request == e.Request {
					r.push(asker, tag(e.Body), &effects.Replied{Corr: c.corr, Body: r.outgoingBytes(n, e.Body)})
					c.request = 0 // answered; the answer may still be lost
				}
			}
		}
	case *effects.Post:
		r.printf("%s Post: %s", n.name, tag(e.Body))
		r.push(n, "SendDone", &effects.SendDone{Corr: e.Corr})
		if c := n.conn(e.Conn); c.channel == effects.ChannelDone {
			r.push(r.node(c.peer), tag(e.Body),
				&effects.Received{Conn: e.Conn + 1000, Channel: c.channel, Body: append([]byte(nil), e.Body...)})
		}
	case *effects.Import:
		id := effects.Link(r.id())
		r.printf("%s Import %s from %s", n.name, e.Plane, e.Blob[:len(e.Blob)-tokenBytes])
		n.links = append(n.links, importedLink{id: id, peer: string(e.Blob[:len(e.Blob)-tokenBytes]), us: e.Us})
		r.push(n, "Imported", &effects.Imported{Corr: e.Corr, Link: id})
	case *effects.Drop:
		r.printf("%s Drop", n.name)
		r.push(n, "Dropped", &effects.Dropped{Link: e.Link})
	case *effects.Publish:
		r.printf("%s Publish %s", n.name, indexes(e.Pages))
	case *effects.Grant:
		what := ""
		if e.Read {
			what = " to read"
		}
		r.printf("%s Grant%s %s", n.name, what, indexes(e.Pages))
		n.granted, r.grants = append(n.granted, e.ID), append(r.grants, e.ID)
	case *effects.Revoke:
		r.printf("%s Revoke", n.name)
		r.push(n, "Revoked", &effects.Revoked{Grant: e.Grant})
	case *effects.Transfer:
		r.startTransfer(n, e)
	case *effects.Scatter:
		r.printf("%s Scatter #%d from %d %s", n.name, e.Ticket, e.First, indexes(e.Pages))
		r.push(n, "Scattered", &effects.Scattered{Corr: e.Corr})
	case *effects.Store:
		r.printf("%s Store %d bytes into page %d", n.name, len(e.Bytes), e.Page.Index)
	case *effects.Copy:
		r.startCopy(n, e)
	case *effects.Cancel:
		r.printf("%s Cancel", n.name)
	case *effects.Confirm:
		r.printf("%s Confirm %v", n.name, e.Code)
		for _, other := range r.nodes {
			for i := range r.items {
				if d, ok := r.items[i].ev.(*effects.TransferDone); ok && r.items[i].to == other &&
					r.items[i].conn == effects.Conn(e.Landing) {
					d.Code = e.Code
					r.items[i].conn = 0
				}
			}
		}
	case *effects.Deliver:
		held := ""
		if e.Held {
			held = " held"
		}
		if e.Begun {
			held += " begun"
		}
		r.printf("%s Deliver #%d %v%s pages=%s sent=%d skipped=%d hits=%d left=%d", n.name, e.Ticket, e.Code, held,
			indexes(e.Pages), e.Sent, e.Skipped, e.Hits, e.Left)
		r.printReason(e.Why)
		if e.Why != nil && r.onFailure != nil {
			r.onFailure(e.Why)
		}
	case *effects.Return:
		r.printf("%s Return #%d", n.name, e.Ticket)
	case *effects.Observe:
		r.printFact(n, e)
	}
}

// outgoingBytes is a copy of a node's message as it goes out.
func (r *rig) outgoingBytes(n *node, body []byte) []byte {
	body = append([]byte(nil), body...)
	if r.rewriteMessage != nil {
		return r.rewriteMessage(n, body)
	}
	return body
}

// isGranted reports whether the pages of a write are under its grant at the other end of its link, each once.
func (r *rig) isGranted(n *node, e *effects.Transfer, pages []effects.Page) bool {
	for _, l := range n.links {
		if l.id != e.Link {
			continue
		}
		to, claimed := r.node(l.peer), map[uint32]bool{}
		for _, p := range pages {
			if int(p.Index) >= int(to.cfg.Pages) || claimed[p.Index] {
				return false
			}
			claimed[p.Index] = true
			if s := to.rank.PageState(0, p.Index); s.Grant != e.Grant || s.Quarantined || s.Generation != p.Generation {
				return false
			}
		}
		return true
	}
	return false
}

// printReason prints what is said of a failure, but for what helps.
func (r *rig) printReason(w *effects.Why) {
	if w == nil {
		return
	}
	text := w.PeerName()
	if facts := w.Facts(); facts != "" && text != "" {
		text += ", " + facts
	} else {
		text += facts
	}
	r.printf("  because: %s", text)
}

// startTransfer puts the end of a write on its way: at the target a Landed (fenced),
// and then at the initiator the TransferDone.
func (r *rig) startTransfer(n *node, e *effects.Transfer) {
	var pages []effects.Page
	for _, p := range e.Pairs {
		pages = append(pages, effects.Page{
			Index: r.pageNumber(p.Remote), Generation: p.Remote.Generation, Length: p.Local.Length,
		})
	}
	done := item{to: n, name: "TransferDone", ev: &effects.TransferDone{Corr: e.Corr, Settled: true, At: r.now}}
	if e.Read {
		r.printf("%s Transfer from pages %s", n.name, indexes(pages))
		for _, p := range pages {
			if n.cfg.recallsChunks() && p.Length != 32 {
				r.printf("  %d bytes of page %d", p.Length, p.Index)
			}
		}
		r.items = append(r.items, done)
		return
	}
	r.printf("%s Transfer to pages %s%s", n.name, indexes(pages), gatheredLayers(&e.Gather))
	if r.rewriteMessage != nil && !r.isGranted(n, e, pages) { // As the pool of a watched plane refuses.
		done.ev.(*effects.TransferDone).Code = effects.Refused
	} else if !n.cfg.Leased {
		landing := effects.Landing(r.id())
		done.conn = effects.Conn(landing) // not to be delivered before the Confirm
		for _, l := range n.links {
			if l.id == e.Link {
				r.push(r.node(l.peer), "Landed", &effects.Landed{
					Landing: landing, Grant: e.Grant, Peer: l.us, Pages: pages, Complete: true,
				})
			}
		}
	}
	r.items = append(r.items, done)
}

// pageNumber is the number of a page of a peer's, as its own machine has it.
func (r *rig) pageNumber(p effects.RemotePage) uint32 {
	for _, n := range r.nodes {
		if id, from, has := n.rank.Device(); has && id == p.Buffer {
			return from + p.Index
		}
	}
	return p.Index
}

// gatheredLayers says of which pages those of a transfer are put together.
func gatheredLayers(g *effects.Gather) (text string) {
	for i := 0; i < len(g.Pages); i += int(g.Layers) {
		text += " of " + indexes(g.Pages[i:i+int(g.Layers)])
	}
	if g.Layers > 0 {
		text += fmt.Sprintf(", %d stripes each", g.Stripes)
	}
	return text
}

// deliverNext delivers the first item that may be delivered.
func (r *rig) deliverNext() bool {
	for i, it := range r.items {
		if _, ok := it.ev.(*effects.TransferDone); ok && it.conn != 0 {
			continue
		}
		r.items = append(r.items[:i:i], r.items[i+1:]...)
		if reply, ok := it.ev.(*effects.Replied); ok {
			for c := range it.to.conns {
				if it.to.conns[c].corr == reply.Corr {
					it.to.conns[c].corr = 0
				}
			}
		}
		r.step(it.to, it.ev)
		return true
	}
	return false
}

// advance moves the clock from deadline to deadline.
func (r *rig) advance(d effects.Duration) {
	end := r.now.Add(d)
	for range 1000 {
		var next *node
		at := end
		for _, n := range r.nodes {
			if t, ok := n.rank.Deadline(); ok && t <= at && (next == nil || t < at) {
				next, at = n, t
			}
		}
		if next == nil {
			break
		}
		r.now = max(r.now, at)
		r.step(next, &effects.Tick{})
	}
	r.now = end
}

// commands builds a command body from the words of a directive.
func (r *rig) command(n *node, name string, arg func(string) []string, ticket uint64) effects.CommandBody {
	one := func(key, otherwise string) string {
		if v := arg(key); len(v) > 0 {
			return v[0]
		}
		return otherwise
	}
	number := func(key string, otherwise int) (v int) {
		if _, err := fmt.Sscan(one(key, fmt.Sprint(otherwise)), &v); err != nil {
			r.t.Fatalf("%s: %v", key, err)
		}
		return v
	}
	wait := effects.Duration(number("wait_ms", 0)) * effects.Millisecond
	switch name {
	case "reserve":
		return &engine.Reserve{Count: uint32(number("count", 1)), Timeout: wait}
	case "unreserve":
		return &engine.Release{Reserved: effects.Ticket(number("of", 0))}
	case "put":
		k := keys(arg("keys"))
		tokens := uint32(number("tokens", 4))
		var pages []effects.Page
		token := 8 * n.cfg.Layout.Shape.Dims[1]
		for i := number("from", 0); i < n.rank.Stats().PagesTotal; i++ {
			if p := n.rank.PageState(0, uint32(i)); p.Refs > 0 && len(pages) < len(k) {
				pages = append(pages, effects.Page{Index: uint32(i), Length: 4 * token, Generation: p.Generation})
			}
		}
		if len(pages) == len(k) {
			pages[len(pages)-1].Length = token * tokens
		}
		return &engine.Put{
			Peer: engine.Peer{Host: one("to", "r"), InitPort: 1, AllocPort: 2}, Request: []byte(one("request", "")),
			Keys: k, Pages: pages, Layout: n.cfg.Layout, LastChunkTokens: tokens, Last: number("last", 0) == 1, Timeout: wait,
		}
	case "recall":
		body := &recall.Recall{
			Peer: recall.Peer{Host: one("from", "r"), InitPort: 1, AllocPort: 2, QueryPort: 4},
			Keys: keys(arg("keys")), Request: []byte(one("request", "")), Timeout: wait,
		}
		for i := number("at", 0); len(body.Pages) < len(body.Keys); i++ {
			body.Pages = append(body.Pages, effects.Page{Index: uint32(i), Generation: n.rank.PageState(0, uint32(i)).Generation})
		}
		return body
	case "store":
		body := &engine.Store{Reserved: effects.Ticket(number("of", 0)), Keys: keys(arg("keys"))}
		for i := number("at", 0); len(body.Pages) < len(body.Keys); i++ {
			body.Pages = append(body.Pages, effects.Page{Index: uint32(i), Generation: n.rank.PageState(0, uint32(i)).Generation})
		}
		return body
	case "bring":
		return &p2p.Bring{
			From: p2p.Peer{Host: one("from", "b"), InitPort: 1}, Request: []byte(one("request", "q")), Keys: keys(arg("keys")),
			Timeout: wait, Mode: p2p.Mode(number("mode", 0)),
		}
	case "abort":
		return &engine.Abort{Target: effects.Ticket(number("of", 0))}
	case "get":
		return &engine.Get{
			Request: []byte(one("request", "")), Keys: keys(arg("keys")), Wait: wait, Layered: number("layered", 0) == 1,
		}
	case "begin":
		to := engine.Peer{Host: one("to", "r"), InitPort: 1, AllocPort: 2}
		if to.Host == "nobody" {
			to = engine.Peer{}
		}
		return &layerwise.Begin{
			Peer: to, Request: []byte(one("request", "r1")), Skip: uint32(number("skip", 0)), Figures: layerwise.Figures{
				Chunks: uint32(number("chunks", 0)), ComputeNS: uint64(number("compute_us", 0)) * 1000,
				LinkBytes: uint64(number("link", 0)), BatchNS: uint64(number("batch_us", 0)) * 1000,
			},
		}
	case "save":
		body := &layerwise.Save{
			Request: []byte(one("request", "r1")), Run: effects.Ticket(number("of", 0)),
			Layer: uint32(number("layer", 0)), Tokens: uint32(number("tokens", 4)),
			First: uint32(number("first", 0)), Keys: keys(arg("keys")),
		}
		body.Pages = n.pages(number("at", 0), len(body.Keys), 32)
		return body
	case "preempt":
		return &layerwise.Preempt{Request: []byte(one("request", "r1")), Run: effects.Ticket(number("of", 0))}
	case "finish":
		body := &layerwise.Finish{
			Request: []byte(one("request", "r1")), Run: effects.Ticket(number("of", 0)),
			Tokens: uint32(number("tokens", 4)), Timeout: wait,
		}
		if tail := keys(arg("keys")); len(tail) > 0 {
			body.Key, body.Pages = tail[0], n.pages(number("at", 0), int(n.cfg.Layers), 8*(body.Tokens%4))
		}
		return body
	case "drop":
		return &layerwise.Drop{Request: []byte(one("request", "r1")), Run: effects.Ticket(number("of", 0))}
	case "fetch":
		return &engine.Fetch{Request: []byte(one("request", "")), Keys: keys(arg("keys")), Timeout: wait}
	case "contains":
		return &engine.Contains{Keys: keys(arg("keys"))}
	case "release":
		return &engine.Unpin{Got: effects.Ticket(number("of", 0))}
	case "abandon":
		return &engine.Abandon{Request: []byte(one("request", ""))}
	case "end":
		return &end.End{
			Request: []byte(one("request", "r1")), Peer: engine.Peer{Host: one("to", "r"), InitPort: 1, AllocPort: 2},
			Code: effects.Code(number("code", 0)), Reason: []byte(one("reason", "")), Timeout: wait,
		}
	case "share":
		body := &engine.Share{Reserved: effects.Ticket(number("of", 0)), Keys: keys(arg("keys"))}
		for i := number("at", 0); len(body.Pages) < len(body.Keys); i++ {
			body.Pages = append(body.Pages, effects.Page{Index: uint32(i), Generation: n.rank.PageState(0, uint32(i)).Generation})
		}
		return body
	case "withdraw":
		return &engine.Withdraw{Shared: effects.Ticket(number("of", 0))}
	case "giveup":
		return &engine.GiveUp{Request: []byte(one("request", "")), Keys: keys(arg("keys"))}
	case "drain":
		return &Drain{Timeout: wait}
	}
	if body := r.registering(n, name, arg); body != nil {
		return body
	}
	r.t.Fatalf("unknown directive %q", name)
	return nil
}
