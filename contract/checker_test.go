package contract

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

var (
	peer           = effects.Incarnation{1}
	other          = effects.Incarnation{2}
	page           = effects.Page{Index: 3, Length: 10, Generation: 7}
	nextGeneration = effects.Page{Index: 3, Length: 10, Generation: 8}
)

// requestSteps opens a connection and sends on it.
func requestSteps() []any {
	return []any{
		&effects.Open{Corr: 1, Channel: effects.ChannelAlloc}, &effects.Opened{Corr: 1, Conn: 5},
		&effects.Send{Corr: 2, Conn: 5},
	}
}

// windowSteps opens a connection for two questions at a time and asks both.
func windowSteps() []any {
	return []any{
		&effects.Open{Corr: 1, Channel: effects.ChannelAlloc, Window: 2}, &effects.Opened{Corr: 1, Conn: 5},
		&effects.Send{Corr: 2, Conn: 5}, &effects.Send{Corr: 3, Conn: 5},
	}
}

// transferSteps imports a peer and starts a transfer of a page.
func transferSteps() []any {
	return []any{
		&effects.Import{Corr: 1}, &effects.Imported{Corr: 1, Link: 9}, &effects.Publish{Pages: []effects.Page{page}},
		&effects.Transfer{Corr: 2, Link: 9, Pairs: []effects.Pair{{Local: page}}},
	}
}

// gatheredTransfer pushes a page that is put together of these.
func gatheredTransfer(layers ...effects.Page) *effects.Transfer {
	whole := page
	whole.Length = 2 * page.Length
	return &effects.Transfer{Corr: 2, Link: 9, Pairs: []effects.Pair{{Local: whole}},
		Gather: effects.Gather{Pages: layers, Layers: 2, Stripes: 1}}
}

func grantSteps() []any { return []any{&effects.Grant{ID: 4, Peer: peer, Pages: []effects.Page{page}}} }

func landing() *effects.Landed {
	return &effects.Landed{Landing: 1, Grant: 4, Peer: peer, Pages: []effects.Page{page}, Complete: true}
}

// readGrantSteps publishes a page and grants it to be read.
func readGrantSteps() []any {
	return []any{&effects.Publish{Pages: []effects.Page{page}},
		&effects.Grant{ID: 4, Peer: peer, Read: true, Pages: []effects.Page{page}}}
}

// readSteps imports a peer and starts a read into a page.
func readSteps() []any {
	return appendSteps(transferSteps()[:3], &effects.Transfer{Corr: 2, Link: 9, Read: true, Pairs: []effects.Pair{{Local: page}}})
}

// scatterSteps reads a page and scatters it for a command.
func scatterSteps() []any {
	return appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Settled: true}, &effects.Command{Ticket: 6},
		&effects.Scatter{Corr: 3, Ticket: 6, Pages: []effects.Page{page}})
}

func appendSteps(list []any, more ...any) []any { return append(list, more...) }

// Each stream is legal up to its last step, where the side named breaks its promise;
// without a side the whole stream is legal and owes nothing.
func TestChecker(t *testing.T) {
	checkStreams(t, []testStream{
		{name: "answered", stream: appendSteps(requestSteps(), &effects.Replied{Corr: 2})},
		{name: "answer behind a close", stream: appendSteps(requestSteps(), &effects.Close{Conn: 5}, &effects.Replied{Corr: 2})},
		{name: "answered twice", stream: appendSteps(requestSteps(), &effects.Replied{Corr: 2},
			&effects.Unanswered{Corr: 2, Code: effects.Closed}),
			by: Driver, story: "a second time"},
		{name: "answer to nobody", stream: []any{&effects.Replied{Corr: 2}}, by: Driver, story: "never given"},
		{name: "a send ends as a post", stream: appendSteps(requestSteps(), &effects.SendDone{Corr: 2}), by: Driver,
			story: "as if it were a post"},
		{name: "an ending that is none", stream: appendSteps(requestSteps(), &effects.Unanswered{Corr: 2, Code: effects.NoMemory}),
			by:    Driver,
			story: "no legal ending"},
		{name: "a send crosses with the loss",
			stream: appendSteps(requestSteps(), &effects.ConnLost{Conn: 5}, &effects.Unanswered{Corr: 2, Code: effects.PeerLost})},
		{name: "an answer after the loss", stream: appendSteps(requestSteps(), &effects.ConnLost{Conn: 5}, &effects.Replied{Corr: 2}),
			by: Driver, story: "after its loss"},
		{name: "scattered", stream: appendSteps(scatterSteps(), &effects.Scattered{Corr: 3},
			&effects.Scatter{Corr: 4, Ticket: 6, Pages: []effects.Page{page}},
			&effects.Deliver{Ticket: 6, Code: effects.Expired, Held: true}, &effects.Scattered{Corr: 4, Code: effects.Faulted},
			&effects.Return{Ticket: 6})},
		{name: "delivered unheld while scattered", stream: appendSteps(scatterSteps(), &effects.Deliver{Ticket: 6}), by: Machine,
			story: "while chunks of it are scattered"},
		{name: "returned while scattered",
			stream: appendSteps(scatterSteps(), &effects.Deliver{Ticket: 6, Held: true}, &effects.Return{Ticket: 6}),
			by:     Machine, story: "while chunks of it are scattered"},
		{name: "scattered for nobody", stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.Scatter{Corr: 3, Ticket: 6, Pages: []effects.Page{page}}),
			by: Machine, story: "not given"},
		{name: "nothing scattered", stream: []any{&effects.Command{Ticket: 6}, &effects.Scatter{Corr: 3, Ticket: 6}},
			by: Machine, story: "scatters nothing"},
		{name: "two scatters of a command",
			stream: appendSteps(scatterSteps(), &effects.Scatter{Corr: 4, Ticket: 6, Pages: []effects.Page{page}}), by: Machine,
			story: "beside others"},
		{name: "scattered before it was read",
			stream: appendSteps(readSteps(), &effects.Command{Ticket: 6}, &effects.Scatter{Corr: 3, Ticket: 6,
				Pages: []effects.Page{page}}),
			by: Machine, story: "into which 2 stores"},
		{name: "another life scattered", stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.Command{Ticket: 6},
			&effects.Scatter{Corr: 3, Ticket: 6, Pages: []effects.Page{nextGeneration}}), by: Machine, story: "newest published"},
		{name: "put together", stream: appendSteps(transferSteps()[:3], gatheredTransfer(page, page),
			&effects.TransferDone{Corr: 2, Settled: true})},
		{name: "put together of another life", stream: appendSteps(transferSteps()[:3], gatheredTransfer(page, nextGeneration)),
			by:    Machine,
			story: "newest published"},
		{name: "put together of what does not fit", stream: appendSteps(transferSteps()[:3], gatheredTransfer(page)), by: Machine,
			story: "do not fit"},
		{name: "read into while scattered",
			stream: appendSteps(scatterSteps(), &effects.Transfer{Corr: 4, Link: 9, Read: true, Pairs: []effects.Pair{{Local: page}}}),
			by:     Machine, story: "which is scattered"},
		{name: "a new life while scattered", stream: appendSteps(scatterSteps(), &effects.Publish{Pages: []effects.Page{nextGeneration}}),
			by: Machine, story: "which is scattered"},
		{name: "scattered twice", stream: appendSteps(scatterSteps(), &effects.Scattered{Corr: 3}, &effects.Scattered{Corr: 3}), by: Driver,
			story: "a second time"},
		{name: "a scatter ends as expired", stream: appendSteps(scatterSteps(), &effects.Scattered{Corr: 3, Code: effects.Expired}),
			by: Driver, story: "no legal ending"},
		{name: "loss told twice", stream: appendSteps(requestSteps(), &effects.Replied{Corr: 2}, &effects.ConnLost{Conn: 5},
			&effects.ConnLost{Conn: 5}), by: Driver, story: "told twice"},
		{name: "two in flight", stream: appendSteps(requestSteps(), &effects.Send{Corr: 3, Conn: 5}), by: Machine,
			story: "1 of 1 requests are in flight there"},
		{name: "answered out of order", stream: appendSteps(windowSteps(), &effects.Replied{Corr: 3}, &effects.Replied{Corr: 2})},
		{name: "one more when one was answered", stream: appendSteps(windowSteps(),
			&effects.Replied{Corr: 3}, &effects.Send{Corr: 4, Conn: 5}, &effects.Replied{Corr: 2}, &effects.Replied{Corr: 4})},
		{name: "all end at the close", stream: appendSteps(windowSteps(), &effects.Close{Conn: 5},
			&effects.Unanswered{Corr: 2, Code: effects.Closed}, &effects.Unanswered{Corr: 3, Code: effects.Closed})},
		{name: "more than the window", stream: appendSteps(windowSteps(), &effects.Send{Corr: 4, Conn: 5}), by: Machine,
			story: "2 of 2 requests are in flight there"},
		{name: "a window in lockstep", stream: []any{&effects.Open{Corr: 1, Channel: effects.ChannelInit, Window: 2}},
			by: Machine, story: "opens init with a window of 2"},
		{name: "a window where nobody answers",
			stream: []any{&effects.Open{Corr: 1, Channel: effects.ChannelDone, Window: 2}},
			by:     Machine, story: "opens done with a window of 2"},
		{name: "corr used twice", stream: appendSteps(requestSteps(), &effects.Import{Corr: 2}), by: Machine, story: "given before"},
		{name: "a send on a closed conn", stream: appendSteps(requestSteps(), &effects.Replied{Corr: 2}, &effects.Close{Conn: 5},
			&effects.Send{Corr: 3, Conn: 5}), by: Machine, story: "does not have"},
		{name: "closed twice", stream: appendSteps(requestSteps(), &effects.Close{Conn: 5}, &effects.Close{Conn: 5}), by: Machine,
			story: "closes conn"},
		{name: "a post where one asks", stream: appendSteps(requestSteps(), &effects.Post{Corr: 3, Conn: 5}), by: Machine,
			story: "which asks"},
		{name: "a failed open with a conn",
			stream: []any{&effects.Open{Corr: 1}, &effects.Opened{Corr: 1, Conn: 5, Code: effects.Unreachable}}, by: Driver,
			story: "gives conn"},
		{name: "a conn given twice", stream: appendSteps(requestSteps(), &effects.Open{Corr: 3}, &effects.Opened{Corr: 3, Conn: 5}),
			by: Driver, story: "given before"},

		{name: "answers once", stream: []any{&effects.Received{Request: 8}, &effects.Reply{Request: 8}}},
		{name: "answers twice", stream: []any{&effects.Received{Request: 8}, &effects.Reply{Request: 8},
			&effects.Reply{Request: 8}}, by: Machine, story: "has its answer"},
		{name: "a request twice", stream: []any{&effects.Received{Request: 8}, &effects.Received{Request: 8}}, by: Driver,
			story: "received twice"},

		{name: "moved", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Settled: true})},
		{name: "moved, settled later", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Code: effects.Expired},
			&effects.Settled{Corr: 2, Code: effects.OK})},
		{name: "well but unsettled", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2}), by: Driver,
			story: "no legal ending"},
		{name: "settled unasked", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.Settled{Corr: 2}), by: Driver, story: "a second time"},
		{name: "settled twice", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Code: effects.Expired},
			&effects.Settled{Corr: 2}, &effects.Settled{Corr: 2}), by: Driver, story: "a second time"},
		{name: "a transfer crosses with the loss",
			stream: appendSteps(transferSteps(), &effects.LinkLost{Link: 9},
				&effects.TransferDone{Corr: 2, Code: effects.PeerLost, Settled: true})},
		{name: "well after the loss", stream: appendSteps(transferSteps(), &effects.LinkLost{Link: 9},
			&effects.TransferDone{Corr: 2, Settled: true}), by: Driver, story: "after the loss"},
		{name: "a link lost twice", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.LinkLost{Link: 9}, &effects.LinkLost{Link: 9}), by: Driver, story: "told twice"},
		{name: "dropped too early", stream: appendSteps(transferSteps(), &effects.Drop{Link: 9}, &effects.Dropped{Link: 9}), by: Driver,
			story: "before its 1 transfers"},
		{name: "dropped unasked", stream: appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.Dropped{Link: 9}), by: Driver, story: "nobody wanted"},
		{name: "dropped twice", stream: appendSteps(transferSteps(), &effects.Drop{Link: 9}, &effects.Drop{Link: 9}), by: Machine,
			story: "drops link"},
		{name: "a transfer after the loss",
			stream: appendSteps(transferSteps(), &effects.LinkLost{Link: 9}, &effects.Transfer{Corr: 3, Link: 9}), by: Machine,
			story: "was told"},
		{name: "a transfer of an older life", stream: appendSteps(transferSteps(), &effects.Publish{Pages: []effects.Page{nextGeneration}},
			&effects.Transfer{Corr: 3, Link: 9, Pairs: []effects.Pair{{Local: page}}}), by: Machine, story: "newest published"},

		{name: "landed", stream: appendSteps(grantSteps(), landing(), &effects.Confirm{Landing: 1}, &effects.Revoke{Grant: 4},
			&effects.Revoked{Grant: 4})},
		{name: "a landing that nobody was granted", stream: []any{landing()}, by: Driver, story: "was not given"},
		{name: "a landing of another peer", stream: appendSteps(grantSteps(), &effects.Landed{Landing: 1, Grant: 4, Peer: other}),
			by: Driver, story: "was not given"},
		{name: "a landing after Revoked", stream: appendSteps(grantSteps(), &effects.Revoke{Grant: 4}, &effects.Revoked{Grant: 4},
			landing()), by: Driver, story: "after Revoked"},
		{name: "an empty landing after Revoked", stream: appendSteps(grantSteps(), &effects.Revoke{Grant: 4}, &effects.Revoked{Grant: 4},
			&effects.Landed{Landing: 1, Grant: 4, Peer: peer})},
		{name: "a page lands twice", stream: appendSteps(grantSteps(), landing(),
			&effects.Landed{Landing: 2, Grant: 4, Peer: peer, Pages: []effects.Page{page}}), by: Driver,
			story: "not under grant"},
		{name: "another life lands", stream: appendSteps(grantSteps(),
			&effects.Landed{Landing: 1, Grant: 4, Peer: peer, Pages: []effects.Page{nextGeneration}}), by: Driver,
			story: "not under grant"},
		{name: "more bytes than granted", stream: appendSteps(grantSteps(), &effects.Landed{Landing: 1, Grant: 4, Peer: peer,
			Pages: []effects.Page{{Index: 3, Length: 11, Generation: 7}}}), by: Driver, story: "were granted"},
		{name: "confirmed twice", stream: appendSteps(grantSteps(), landing(), &effects.Confirm{Landing: 1},
			&effects.Confirm{Landing: 1}), by: Machine, story: "is confirmed"},
		{name: "revoked unasked", stream: appendSteps(grantSteps(), &effects.Revoked{Grant: 4}), by: Driver, story: "nobody wanted"},
		{name: "revokes twice", stream: appendSteps(grantSteps(), &effects.Revoke{Grant: 4}, &effects.Revoke{Grant: 4}), by: Machine,
			story: "has revoked"},
		{name: "granted while granted",
			stream: appendSteps(grantSteps(), &effects.Grant{ID: 5, Peer: peer, Pages: []effects.Page{nextGeneration}}), by: Machine,
			story: "under grant 4"},
		{name: "granted after Revoked", stream: appendSteps(grantSteps(), &effects.Revoke{Grant: 4}, &effects.Revoked{Grant: 4},
			&effects.Grant{ID: 5, Peer: peer, Pages: []effects.Page{nextGeneration}})},
		{name: "granted in an old life",
			stream: appendSteps(grantSteps(), landing(), &effects.Grant{ID: 5, Peer: peer, Pages: []effects.Page{page}}),
			by:     Machine, story: "publishes generation"},
		{name: "a grant given twice", stream: appendSteps(grantSteps(), &effects.Grant{ID: 4, Peer: peer}), by: Machine,
			story: "given before"},

		{name: "lent twice and again",
			stream: appendSteps(readGrantSteps(), &effects.Grant{ID: 5, Peer: other, Read: true, Pages: []effects.Page{page}},
				&effects.Revoke{Grant: 4}, &effects.Revoke{Grant: 5},
				&effects.Revoked{Grant: 5}, &effects.Revoked{Grant: 4}, &effects.Publish{Pages: []effects.Page{nextGeneration}})},
		{name: "a landed page is lent",
			stream: appendSteps(grantSteps(), landing(), &effects.Confirm{Landing: 1},
				&effects.Grant{ID: 5, Peer: other, Read: true, Pages: []effects.Page{page}})},
		{name: "lent while granted to store",
			stream: appendSteps(grantSteps(), &effects.Grant{ID: 5, Peer: peer, Read: true, Pages: []effects.Page{page}}), by: Machine,
			story: "under grant 4"},
		{name: "lent in an older life",
			stream: appendSteps(readGrantSteps(), &effects.Grant{ID: 5, Peer: peer, Read: true, Pages: []effects.Page{nextGeneration}}),
			by:     Machine,
			story:  "newest published"},
		{name: "more is lent than there is",
			stream: appendSteps(readGrantSteps(), &effects.Grant{ID: 5, Peer: peer, Read: true,
				Pages: []effects.Page{{Index: 3, Length: 11, Generation: 7}}}), by: Machine, story: "it has 10"},
		{name: "published while lent", stream: appendSteps(readGrantSteps(), &effects.Publish{Pages: []effects.Page{nextGeneration}}),
			by:    Machine,
			story: "to be read"},
		{name: "granted to store while lent",
			stream: appendSteps(readGrantSteps(), &effects.Grant{ID: 5, Peer: peer, Pages: []effects.Page{nextGeneration}}), by: Machine,
			story: "to be read"},
		{name: "published before Revoked",
			stream: appendSteps(readGrantSteps(), &effects.Revoke{Grant: 4}, &effects.Publish{Pages: []effects.Page{nextGeneration}}),
			by:     Machine,
			story:  "to be read"},
		{name: "a landing under a grant to read", stream: appendSteps(readGrantSteps(), landing()), by: Driver, story: "was not given"},
		{name: "a read into a lent page", stream: appendSteps(readGrantSteps(), appendSteps(readSteps()[:2], readSteps()[3])...),
			by:    Machine,
			story: "to be read"},

		{name: "read", stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Settled: true},
			&effects.Publish{Pages: []effects.Page{nextGeneration}})},
		{name: "read, settled later", stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Code: effects.Cancelled},
			&effects.Settled{Corr: 2}, &effects.Publish{Pages: []effects.Page{nextGeneration}})},
		{name: "a read of too little",
			stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Code: effects.Mismatch, Settled: true}), by: Driver,
			story: "less than was granted"},
		{name: "a page is given away while a read fills it",
			stream: appendSteps(readSteps(), &effects.Publish{Pages: []effects.Page{nextGeneration}}), by: Machine,
			story: "into which 2 stores"},
		{name: "a page is given away before its read is settled",
			stream: appendSteps(readSteps(), &effects.TransferDone{Corr: 2, Code: effects.Cancelled},
				&effects.Publish{Pages: []effects.Page{nextGeneration}}), by: Machine, story: "into which 2 stores"},
		{name: "a page is lent while a read fills it",
			stream: appendSteps(readSteps(), &effects.Grant{ID: 5, Peer: peer, Read: true, Pages: []effects.Page{page}}), by: Machine,
			story: "into which 2 stores"},
		{name: "two reads into one page",
			stream: appendSteps(readSteps(), &effects.Transfer{Corr: 3, Link: 9, Read: true, Pairs: []effects.Pair{{Local: page}}}),
			by:     Machine, story: "into which 2 stores"},

		{name: "held and returned", stream: []any{&effects.Command{Ticket: 1}, &effects.Deliver{Ticket: 1, Held: true},
			&effects.Return{Ticket: 1}}},
		{name: "delivered twice", stream: []any{&effects.Command{Ticket: 1}, &effects.Deliver{Ticket: 1},
			&effects.Deliver{Ticket: 1}}, by: Machine, story: "delivers ticket"},
		{name: "returned without being held", stream: []any{&effects.Command{Ticket: 1}, &effects.Deliver{Ticket: 1},
			&effects.Return{Ticket: 1}}, by: Machine, story: "not held"},
		{name: "a ticket given twice", stream: []any{&effects.Command{Ticket: 1}, &effects.Command{Ticket: 1}}, by: Driver,
			story: "given twice"},
	})
}

// testStream is a stream of effects and events, and the breach in its last step if there is one.
type testStream struct {
	name   string
	stream []any
	by     Side
	story  string
}

func checkStreams(t *testing.T, streams []testStream) {
	for _, c := range streams {
		t.Run(c.name, func(t *testing.T) {
			checker := New(true)
			for i, step := range c.stream {
				err := feed(checker, step)
				if i < len(c.stream)-1 || c.by == "" {
					if err != nil {
						t.Fatalf("step %d, %T: %v", i, step, err)
					}
					continue
				}
				var b *Breach
				if !errors.As(err, &b) || b.Side != c.by || !strings.Contains(b.Text, c.story) {
					t.Fatalf("the last step, %T, gave %v; want one of the %s with %q", step, err, c.by, c.story)
				}
			}
			if err := checker.CheckCompleted(); c.by == "" && err != nil {
				t.Fatal(err)
			}
		})
	}
}

func feed(c *Checker, step any) error {
	if e, ok := step.(effects.Effect); ok {
		return c.CheckEffect(e)
	}
	return c.CheckEvent(step.(effects.Event))
}

// What is never completed is a debt of the driver.
func TestOwed(t *testing.T) {
	for name, stream := range map[string][]any{
		"send":   requestSteps(),
		"revoke": appendSteps(grantSteps(), &effects.Revoke{Grant: 4}),
		"drop":   appendSteps(transferSteps()[:2], &effects.Drop{Link: 9}),
		"settle": appendSteps(transferSteps(), &effects.TransferDone{Corr: 2, Code: effects.Expired}),
	} {
		c := New(true)
		for _, step := range stream {
			if err := feed(c, step); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c.CheckCompleted() == nil {
			t.Errorf("%s: nothing is owed", name)
		}
	}
}

// On leased planes the peer's word ends a grant, and nothing lands in sight.
func TestLeased(t *testing.T) {
	c := New(false)
	for _, step := range appendSteps(grantSteps(), &effects.Grant{ID: 5, Peer: peer, Pages: []effects.Page{nextGeneration}}) {
		if err := feed(c, step); err != nil {
			t.Fatal(err)
		}
	}
	if c.CheckEvent(&effects.Landed{Landing: 1, Grant: 5, Peer: peer}) == nil {
		t.Error("a landing was told where nobody can see one")
	}
}

// Every ending that is listed is legal, is listed once, and counts as seen.
func TestLegal(t *testing.T) {
	listed := map[Ending]bool{}
	for _, e := range LegalEndings() {
		if listed[e] || !e.IsLegal() {
			t.Errorf("%v is listed twice, or not legal", e)
		}
		listed[e] = true
	}
	for v := Verb(0); v <= verbCount; v++ {
		for code := range effects.Code(effects.CodeCount) {
			for _, unsettled := range []bool{false, true} {
				if e := (Ending{Verb: v, Code: code, Unsettled: unsettled}); e.IsLegal() != listed[e] {
					t.Errorf("%v: legal %v, listed %v", e, e.IsLegal(), listed[e])
				}
			}
		}
	}
	c := New(true)
	for _, step := range appendSteps(requestSteps(), &effects.Replied{Corr: 2}) {
		if err := feed(c, step); err != nil {
			t.Fatal(err)
		}
	}
	if c.CountEnding(Ending{Verb: Sending}) != 1 || c.CountEnding(Ending{Verb: Opening}) != 1 ||
		c.CountEnding(Ending{Verb: Dropping}) != 0 {
		t.Error("endings are not counted")
	}
}
